"""The way that texts will take through the model: packs over a GPU's kernels, packs run by run, or padded batches."""

from rmlab.checks.report import Row
from rmlab.scorers.protocol import LocalModel

__all__ = ["row"]


def row(scorer: LocalModel) -> Row:
    """How texts go through the scorer's model together, and why not in a faster way; found by trying."""
    from rmlab.inference.probe import how_packed, packing_support

    packing = packing_support(scorer.backbone)
    if not packing.packed:
        return Row("packs", "pass", f"batches of similar length, no packs: {packing.refused}")
    found, trouble = how_packed(scorer.backbone)
    if not trouble:
        return Row("packs", "pass", str(found))
    remedy = (
        "scores are right either way; for more speed install a C compiler and the triton that belongs to this torch"
    )
    return Row("packs", "warn", str(found), remedy)
