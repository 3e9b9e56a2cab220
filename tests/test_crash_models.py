"""A stopped run of real models: forwarded again is one batch of a policy, of a
reference or of comparisons in one order.

Of a prompt that goes through in several packs, that is the answers that were not done
yet.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes import responses

from rmlab import toy
from rmlab.inference import backbone
from rmlab.scoring import run

BUDGET = 150


@dataclass(frozen=True)
class Kind:
    """A way to use models: their folders' names, and how many texts of each a prompt of
    the table has.

    `words`: in front of every prompt; with many of them a prompt alone is larger than
    the budget.
    """

    models: tuple[str, ...]
    prompts: int
    texts: int
    column: str
    words: int = 0

    def save(self, home):
        """The models, in their folders."""
        for seed, name in enumerate(self.models):
            toy.save_model(home / name, task="causal", seed=seed)

    def run(self, home, prompts=None, budget=BUDGET, **options):
        """The table of scores or pairs."""
        from rmlab.scorers import implicit_reward, pairwise
        from rmlab.scoring import prefer, score

        frame = responses(prompts or self.prompts)
        begin = " ".join((" ".join(toy.models.TEXTS).split() * 9)[: self.words])
        frame["prompt"] = [f"{prompt} {begin}".strip() for prompt in frame["prompt"]]
        folders = [Path(home) / name for name in self.models]
        if self.column == "margin":
            return prefer(
                frame,
                pairwise(*folders, max_batch_tokens=budget, device="cpu"),
                **options,
            )
        return score(
            frame,
            implicit_reward(*folders, max_batch_tokens=budget, device="cpu"),
            **options,
        )


KINDS = {
    "policy and reference": Kind(
        ("policy", "reference"), prompts=24, texts=6, column="score"
    ),
    "both orders": Kind(("judge",), prompts=24, texts=18, column="margin"),
    "long prompts": Kind(("policy",), prompts=16, texts=6, column="score", words=200),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_of_real_models_loses_one_batch(tmp_path, monkeypatch, kind):
    # The texts of a self-check would be counted as batches.
    monkeypatch.setattr(run, "LONG", 1 << 30)
    lay_out, batches, kind = backbone.lay_out, [], KINDS[kind]
    kind.save(tmp_path)
    whole = kind.run(tmp_path, budget=None)[kind.column]

    def stop_at_the_sixth(part, sequences):
        if len(batches) == 5:
            raise KeyboardInterrupt
        whole_texts = part.texts[: len(part.texts) - part.is_cut]
        batches.append({sequences[n].tobytes() for n in whole_texts})
        return lay_out(part, sequences)

    with monkeypatch.context() as patch:
        patch.setattr(backbone, "lay_out", stop_at_the_sixth)
        with pytest.raises(KeyboardInterrupt):
            kind.run(tmp_path, store=tmp_path / "scores")
    found = kind.run(tmp_path, store=tmp_path / "scores")
    provenance = found.attrs["provenance"][kind.models[0]]
    first = provenance.get("terms", [provenance])[0]
    n_begun = len(set().union(*batches))
    n_lost = first["scored"] - (kind.prompts * kind.texts - n_begun)
    assert 0 <= n_lost <= len(batches[-1])
    # A margin is a difference of log-probabilities, which round by as much and lie
    # closer together.
    close = {"score": 1e-5, "margin": 5e-5}[kind.column]
    assert (found[kind.column] - whole).abs().max() <= close * whole.std()
