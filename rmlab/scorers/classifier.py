"""Reward models that give one text one score: a backbone, a head, and where the head is
read.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack, get_args

import numpy as np

from rmlab.inference.backbone import Batch
from rmlab.inference.encoding import Encoded, encode
from rmlab.metrics.steps import StepRule
from rmlab.scorers.base import Floats, Provenance
from rmlab.scorers.checkpoints.adapters import Adapted
from rmlab.scorers.checkpoints.stored_weights import as_float32
from rmlab.scorers.encoder import EncodeOptions, Ids, TextEncoder, complete_options
from rmlab.scorers.in_memory import Source, open_model
from rmlab.scorers.local import LocalScorer, Placement, remakeable
from rmlab.scorers.models import loading
from rmlab.scorers.models.arguments import with_arguments
from rmlab.scorers.models.classification import head_keys, label_weights, split
from rmlab.scorers.models.heads import Function, Head, choose
from rmlab.scorers.reads import ENDS, Read
from rmlab.tables import DataError, check_option, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rmlab.scorers.readout import LoadedModel, Readout

_POOLING = {"last": Read.LAST, "before_pad": Read.BEFORE_PAD}


@remakeable
def classifier(
    model: "str | Path | PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    *,
    fingerprint: str | None = None,
    head: str | None = None,
    weights: Mapping[str, float] | Sequence[float] | None = None,
    pooling: str | None = None,
    combine: StepRule | None = None,
    base: str | Path | None = None,
    dtype: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    revision: str | None = None,
    max_batch_tokens: int | None = None,
    name: str | None = None,
    **writing: Unpack[EncodeOptions],
) -> "Classifier":
    """A reward model that gives each (prompt, response) one raw score; never a sigmoid.

    Parameters
    ----------
    model : str or Path or PreTrainedModel
        An id on the hub, a folder, also of a LoRA adapter, or a model in memory. The
        last is scored as it is, in training too, and left as it was.
    tokenizer : PreTrainedTokenizerBase, optional
        Of a model in memory.
    fingerprint : str, optional
        Names the weights of a model in memory, such as "run-7-step-300". Without one
        its scores cannot be stored.
    head : str, optional
        A name in `rmlab.scorers.models.heads.HEADS`, or of a head that another package
        brings. By default the one whose weights
        the checkpoint has.
    weights : mapping or sequence of float, optional
        For a model with several labels, by label name or one for each label: the reward
        is weights . labels.
    pooling : str, optional
        Where a head that reads the end of the text reads: "last", its last token, as
        vLLM does; "before_pad", the last that is not the pad token. They differ where
        the pad token is the EOS token. By default as the model's class: transformers'
        read before the pad token.
    combine : str, optional
        How a process reward model's scores of the steps become one: "last" (by
        default), "min", "mean" or "product"; see `rmlab.metrics.combine_steps`, which
        changes the rule afterwards.
    base : str or Path, optional
        Where configuration and tokenizer are, if not beside the weights. Of an adapter:
        the model that it changes, by default the one that it names.
    dtype, device : str, optional
        "float32", "bfloat16" or "float16", and "cpu", "cuda" or "mps". Chosen for the
        machine: bfloat16 on a GPU that has it, float32 on a CPU. The head always runs
        in float32.
    trust_remote_code, allow_pickle : bool
        Whether code that comes with the model, and pickled weights, may be read.
    revision : str, optional
        A commit, tag or branch on the hub.
    max_batch_tokens : int, optional
        Tokens forwarded at once, by default what suits the machine.
    name : str, optional
        What the model is called in tables.
    **writing
        How texts become tokens: `template`, `template_options`, `system`, `bos`, `eos`,
        `max_length`, `truncate`, `convention`; see `rmlab.scorers.EncodeOptions`.

    Returns
    -------
    Classifier
        The weights are loaded when the first text is scored.

    Raises
    ------
    DataError
        For a model that cannot be had, a head that is not in the checkpoint, several
        labels without weights, pickles or code that were not allowed, and a model in
        memory that is spread over processes.
    """
    options = complete_options(writing)
    if pooling not in (None, *_POOLING):
        raise DataError(f"pooling={pooling!r}", nearest(pooling, list(_POOLING)))
    checkpoint = open_model(
        model,
        tokenizer,
        fingerprint,
        base=base,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
    )
    chosen = _choose_head(checkpoint, head, weights)
    check_option("combine", combine or "last", get_args(StepRule))
    if combine is not None and chosen.row.steps is None:
        head_name = chosen.row.name
        problem = f"combine={combine!r}, but its head {head_name!r} reads no steps"
        raise checkpoint.error(problem, "leave combine out")
    return Classifier(
        checkpoint,
        _make_encoder(checkpoint, chosen.row, options, pooling),
        Placement(device, dtype, max_batch_tokens),
        head=chosen,
        combine=combine or "last",
        name=name,
    )


class ChosenHead(NamedTuple):
    """A row of the table of heads, the names of its weights in a model, and the weight
    of each label, None for a model with one output.
    """

    row: Head
    keys: list[str]
    label_weights: Floats | None


class Classifier(LocalScorer["Readout"]):
    """A loaded-on-demand reward model: encoder, backbone and readout; made by
    `classifier`.
    """

    def __init__(
        self,
        checkpoint: Source,
        encoder: TextEncoder,
        placement: Placement,
        *,
        head: ChosenHead,
        combine: StepRule,
        name: str | None,
    ) -> None:
        mix = None
        if head.label_weights is not None:
            mix = head.label_weights.tolist()
        details: Provenance = {
            "head": head.row.name,
            "mix": mix,
            "end": encoder.end,
            "pooling": encoder.pooling,
        }
        if head.row.steps is not None:
            details["combine"] = combine
            self.columns = ("steps",)
            self.has_objects = True
        super().__init__(
            checkpoint,
            encoder,
            placement,
            details=details,
            name=name,
        )
        self.combine = combine
        self.head = head.row
        self.head_keys = head.keys
        self.label_weights = head.label_weights

    @property
    def head_title(self) -> str:
        """The head and its weights, for people."""
        return f"{self.head.name}: {', '.join(self.head_keys)} in the checkpoint"

    def load(self) -> "LoadedModel[Readout]":
        """Return the backbone and the head; loads the weights."""
        from rmlab.scorers.readout import LoadedModel, Readout, StepReadout

        row = self.head
        loader = "AutoModel"
        if row.make is None:
            loader = "AutoModelForSequenceClassification"
        model = loading.load(
            self.checkpoint,
            loader,
            device=self.device,
            dtype=self.dtype,
            head=self.head_keys,
        )

        if row.make is None:
            run: Function
            base, run, read = split(model, self.checkpoint)
            reads: tuple[Read, ...] = (read,)
        else:
            # Code that comes with a model may give the whole reward model where the
            # backbone was asked for.
            base = loading.base_model(model)
            stored = self.checkpoint.tensors(self.head_keys)
            rows: int | list[int] | None = row.rows
            if row.steps is not None and row.steps.verdicts:
                rows = [self.encoder.last_token(word) for word in row.steps.verdicts]
            weights = as_float32(stored, base.device, rows)
            run = row.make(weights, self.checkpoint.settings)
            reads = row.reads
        reads = self._pool(reads)
        backbone = with_arguments(base, self.encoder, loader)
        if row.steps is not None:
            return LoadedModel(backbone, StepReadout(run, reads, combine=self.combine))
        return LoadedModel(backbone, Readout(run, reads, self.label_weights))

    def _pool(self, reads: tuple[Read, ...]) -> tuple[Read, ...]:
        """Where the head reads, at the end of the text as `pooling` says."""
        pooling = self.encoder.pooling
        if pooling is None:
            return reads
        if set(ENDS).isdisjoint(reads):
            problem = f"pooling={pooling!r}, but its head reads {reads[0].value!r}"
            raise self.checkpoint.error(problem, "leave pooling out")
        return tuple(_POOLING[pooling] if read in ENDS else read for read in reads)

    def token_rewards(self, encoded: Encoded, text: int) -> tuple[Ids, Floats] | None:
        """Token ids of an answer, and the score if the text ended at each; None where
        texts with a common prefix do not share it.
        """
        backbone, readout = self.parts
        is_whole = set(readout.reads) & {Read.MEAN, Read.STEPS}
        with self.evaluating():
            packing = backbone.packing
        if is_whole or packing.refused or not packing.shares:
            return None
        # The beginnings of the text, which all read its states.
        ids = encoded.ids[text]
        start = int(encoded.response_start[text])
        beginnings = [ids[:stop] for stop in range(start + 1, len(ids) + 1)]
        n = len(beginnings)
        texts = Encoded(
            ids=beginnings,
            response_start=np.full(n, start),
            groups=np.zeros(n, np.intp),
            truncated=np.zeros(n, bool),
        )
        places = readout.locate(self.encoder, texts, np.arange(n))
        reads = np.concatenate(places.positions)
        with self.evaluating():
            (batch,) = backbone.hidden(
                [ids], [reads], groups=[0], budget=self.max_batch_tokens
            )
        where = np.split(batch.where[0], n)
        outputs = readout.read(Batch(np.arange(n), batch.rows, where), places)
        rewards = readout.score(outputs.cpu().double().numpy(), places, np.arange(n))
        return ids[start:], rewards.astype(np.float64)


def _choose_head(
    checkpoint: Source,
    name: str | None,
    weights: Mapping[str, float] | Sequence[float] | None,
) -> ChosenHead:
    """The head called `name`, or the one whose weights the model has; DataError where
    some of them are missing.
    """
    stored = checkpoint.weights
    row = choose(stored, checkpoint.settings, name)
    _refuse_steps(checkpoint, row)
    keys = head_keys(checkpoint) if row.make is None else row.keys(stored)
    missing = [key for key in keys if key not in stored]
    if missing and isinstance(checkpoint, Adapted):
        checkpoint.refuse_task("SEQ_CLS")
        module = missing[0].partition(".")[0]
        remedy = f"train with modules_to_save=[{module!r}]"
        loading.refuse_new_weights(checkpoint.name, missing, remedy)
    loading.refuse_new_weights(checkpoint.name, missing)
    return ChosenHead(row, keys, label_weights(weights, row, checkpoint))


def _refuse_steps(checkpoint: Source, row: Head) -> None:
    """Raise DataError for a model that scores more than the whole answer, in a way
    that is not known here.
    """
    architectures = str(checkpoint.settings.get("architectures"))
    if row.steps is not None:
        return
    if "PRM" in architectures:
        problem = f"{architectures} is a process reward model"
        raise checkpoint.error(problem, "use an outcome reward model")
    if "ForTokenClassification" not in architectures:
        return
    is_of_row = row.architecture == "ForTokenClassification"
    if not is_of_row or checkpoint.weights[row.parts[0]].shape[0] > 1:
        problem = "it classifies tokens, as process reward models do"
        raise checkpoint.error(problem, "of trl's PRMTrainer: head='step_labels'")


def _make_encoder(
    checkpoint: Source, row: Head, options: EncodeOptions, pooling: str | None
) -> TextEncoder:
    """The encoder of a model with this head, with the tokens that its texts get beside
    those of its template.
    """
    if row.steps is not None:
        options = {**options, "template": options["template"] or row.steps.template}
        return TextEncoder(checkpoint, options, steps=row.steps)
    settings = checkpoint.settings
    end_token = row.end_token(settings)
    if options["convention"] is not None:
        runner = row.runner if end_token is None else end_token.runner
        options = {**options, "convention": runner}
    plain = TextEncoder(checkpoint, options)
    end = None
    if end_token is not None:
        end = end_token.find(settings, plain)
    n_reserved = 0
    if options["convention"] == "reward-bench" and options["truncate"] == "right":
        n_reserved = _count_masked(plain)
    return TextEncoder(
        checkpoint, options, end=end, n_reserved=n_reserved, pooling=pooling
    )


def _count_masked(encoder: TextEncoder) -> int:
    """How many tokens RewardBench's runner masks before a text: the first of two
    BOS tokens, for which a cut at the right makes room.
    """
    options = encoder.options | {
        "max_length": None,
        "truncate": None,
        "convention": "reward-bench-twice",
    }
    (ids,) = encode(encoder.tokenizer, ["a"], ["b"], **options).ids
    bos = encoder.tokenizer.bos_token_id
    return int(ids[0] == ids[1] == bos)
