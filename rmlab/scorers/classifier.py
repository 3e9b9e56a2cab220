"""Reward models that give one text one score: a backbone, a head, and where the head is
read.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rmlab.inference.forward import Batch, hidden
from rmlab.inference.passes import alone
from rmlab.inference.template import (
    Encoded,
    call,
    choose_template,
    encode,
    has_segments,
    render,
)
from rmlab.scorers.base import Floats, Ints
from rmlab.scorers.checkpoints.checkpoint import find
from rmlab.scorers.local import (
    EncodeOptions,
    Ids,
    LocalScorer,
    remakable,
    require_convention,
)
from rmlab.scorers.models import backbone as backbones
from rmlab.scorers.models.classification import head_keys, label_weights, split
from rmlab.scorers.models.heads import Head, choose

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@remakable
def classifier(
    model: str | Path,
    *,
    head: str | None = None,
    weights: Mapping[str, float] | Sequence[float] | None = None,
    base: str | Path | None = None,
    dtype: str | None = None,
    device: str | None = None,
    template: str | Path | None = None,
    eos: bool | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    convention: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    revision: str | None = None,
    budget: int | None = None,
    name: str | None = None,
) -> "Classifier":
    """A reward model that gives each (prompt, response) one raw score; never a sigmoid.

    Parameters
    ----------
    model : str or Path
        An id on the hub or a folder.
    head : str, optional
        A name in `rmlab.scorers.models.heads.HEADS`. By default the one whose weights
        the checkpoint has.
    weights : mapping or sequence of float, optional
        For a model with several labels, by label name or one for each label: the reward
        is weights . labels.
    base : str or Path, optional
        Where configuration and tokenizer are, if not beside the weights.
    dtype, device : str, optional
        "float32", "bfloat16" or "float16", and "cpu", "cuda" or "mps". Chosen for the
        machine: bfloat16 on a GPU that has it, float32 on a CPU. The head always runs
        in float32.
    template : str or Path, optional
        A name, Jinja text or a file; see `rmlab.inference.template.encode`.
    eos : bool, optional
        Whether the text ends with the end token; see `rmlab.inference.template.encode`.
    max_length : int, optional
        The longest text in tokens. By default the model's window.
    truncate : str, optional
        What long texts lose. By default they are refused.
    convention : str, optional
        "reward-bench" makes token ids as its runner does, a doubled beginning token
        included, to repeat published rows. By default each special token stands once.
    trust_remote_code, allow_pickle : bool
        Whether code that comes with the model, and pickled weights, may be read.
    revision : str, optional
        A commit, tag or branch on the hub.
    budget : int, optional
        Tokens forwarded at once.
    name : str, optional
        What the model is called in tables.

    Returns
    -------
    Classifier
        The weights are loaded when the first text is scored.

    Raises
    ------
    DataError
        For a model that cannot be had, a head that is not in the checkpoint, several
        labels without weights, and pickles or code that were not allowed.
    """
    require_convention(convention)
    checkpoint = find(
        model,
        base=base,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
    )
    row = choose(checkpoint.files, checkpoint.settings, head)
    keys = head_keys(checkpoint) if row.make is None else row.keys(checkpoint.files)
    backbones.refuse_new_weights(
        checkpoint.name, [key for key in keys if key not in checkpoint.files]
    )
    mix = label_weights(weights, row, checkpoint)
    if "reward_token_id" in checkpoint.settings:
        # InternLM's runner adds no special tokens, as the model's own code does.
        convention = None
    elif convention is not None and row.bos_twice:
        convention = "reward-bench-twice"
    options = EncodeOptions(
        template=template,
        eos=eos,
        max_length=max_length,
        truncate=truncate,
        convention=convention,
    )
    scorer = Classifier(
        [checkpoint], options, name=name, device=device, dtype=dtype, budget=budget
    )
    scorer.head, scorer.keys, scorer.mix = row, keys, mix
    scorer.head_title = f"{row.name}: {', '.join(keys[:3])}{' ...' if len(keys) > 3 else ''} in the checkpoint"
    if row.name == "value":
        scorer.end = checkpoint.settings.get("reward_token_id")
    if "Athene" in str(checkpoint.settings.get("architectures")):
        scorer.end = scorer.tokenizer.cls_token_id
    scorer.details = {
        "head": row.name,
        "mix": None if mix is None else mix.tolist(),
        "end": scorer.end,
    }
    scorer.masks_first = convention == "reward-bench" and _masks_first(scorer)
    scorer.n_added = (scorer.end is not None) + scorer.masks_first
    return scorer


class Classifier(LocalScorer):
    """A loaded-on-demand reward model; made by `classifier`.

    `head`: its row in the table of heads; `keys`: the head's weights. `mix`: the weight
    of each label, None for a model with one output. `end`: the token that the head
    reads, appended where the text does not end with it. `masks_first`: whether
    RewardBench's runner masks the first of two beginning tokens and the model counts it
    all the same.
    """

    head: Head
    keys: list[str]
    mix: Floats | None
    end: int | None = None
    masks_first = False

    def places(self, prepared: Encoded, numbers: Ints) -> tuple[list[Ids], list[Ints]]:
        """Token ids of the wanted texts and the positions that the head reads in each."""
        ids, looks = [prepared.ids[text] for text in numbers], self.parts[2]
        if self.end is not None:
            ids = [
                text if text[-1] == self.end else np.append(text, np.int32(self.end))
                for text in ids
            ]
        reads = []
        for number, text in zip(numbers, ids, strict=True):
            positions: dict[str, Sequence[int]] = {
                "last": [len(text) - 1],
                "first": [0],
                "mean": range(len(text)),
            }
            if "header" in looks:
                positions["header"] = [
                    self._find_gate(text, int(prepared.prompt_end[number]))
                ]
            reads.append(
                np.concatenate([np.asarray(positions[look], np.intp) for look in looks])
            )
        return ids, reads

    def finish(self, outputs: Floats, *_: object) -> Floats:
        """The reward of each row of outputs; several labels are mixed in float64."""
        return outputs[:, 0] if self.mix is None else outputs @ self.mix

    def read_states(self, batch: Batch, *_: object) -> "torch.Tensor":
        """The head's outputs for a batch's rows, (texts, labels) float32, still on the
        device.
        """
        import torch

        run, looks = self.parts[1:]
        with torch.inference_mode():
            return run(
                batch.means()[:, None] if looks == ("mean",) else batch.stacked()
            )

    def read_head(self, batch: Batch) -> Floats:
        """The rewards of a batch's rows."""
        return self.finish(self.read_states(batch).cpu().double().numpy())

    def token_rewards(self, prepared: Encoded, text: int) -> tuple[Ids, Floats] | None:
        """Token ids of an answer, and the score if the text ended at each; None where a
        model sees what follows.
        """
        (ids,), (reads,) = self.places(prepared, np.array([text]))
        backbone, _, looks = self.parts
        if "mean" in looks or not _is_causal(backbone):
            return None
        start, n = int(prepared.response_start[text]), len(ids)
        batch = next(
            hidden(backbone, [ids], [np.arange(n)], groups=[0], budget=self.budget)
        )
        # Where the head looks when the text ends at a token: there, and at what it
        # reads of the prompt.
        positions = np.tile(reads, (n - start, 1))
        positions[:, [look == "last" for look in looks]] = np.arange(start, n)[:, None]
        where = [*batch.where[0][positions]]
        return ids[start:], self.read_head(
            Batch(np.zeros(n - start, np.intp), batch.rows, where)
        )

    @cached_property
    def parts(
        self,
    ) -> "tuple[PreTrainedModel, Callable[[torch.Tensor], torch.Tensor], tuple[str, ...]]":
        """Backbone, head and where the head reads ("last", "first", "mean", "header");
        loads the weights.
        """
        loader = (
            "AutoModelForSequenceClassification"
            if self.head.make is None
            else "AutoModel"
        )
        model = backbones.load(
            self.checkpoint,
            loader,
            device=self.device,
            dtype=self.dtype,
            head=self.keys,
        )
        if self.masks_first:
            backbones.shift_positions(backbones.base_model(model))
        if self.head.make is None:
            backbone, run, read = split(model, self.checkpoint)
            if has_segments(self.tokenizer, self.encode_options["template"]):
                backbones.mark_segments(backbone, self.tokenizer)
            return backbone, run, (read,)
        # Code that comes with a model may give the whole reward model where the
        # backbone was asked for.
        backbone = (
            getattr(model, model.base_model_prefix, model)
            if model.base_model_prefix
            else model
        )
        stored = self.checkpoint.read(self.keys, rows=self.head.rows)
        weights = {key: tensor.to(backbone.device) for key, tensor in stored.items()}
        return (
            backbone,
            self.head.make(weights, self.checkpoint.settings),
            self.head.reads,
        )

    @cached_property
    def _turn_change(self) -> list[int]:
        """The tokens with which the template closes the user's turn and opens an
        answer.
        """
        jinja, sentinel = (
            choose_template(self.tokenizer, None)[1],
            "zebra",
        )  # no template writes it by itself
        (text,) = render(
            self.tokenizer,
            jinja,
            [[{"role": "user", "content": sentinel}]],
            header=True,
        )
        return list(
            call(
                self.tokenizer, [text.rpartition(sentinel)[2]], add_special_tokens=False
            )["input_ids"][0]
        )

    def _find_gate(self, ids: Ids, prompt_end: int) -> int:
        """Position of the first token behind the user's turn, where the published code
        of gated heads reads.
        """
        start = prompt_end + 1 - len(self._turn_change)
        if (
            not self._turn_change
            or ids[start : prompt_end + 1].tolist() != self._turn_change
        ):
            remedy = "leave template out"
            if self.encode_options["template"] is None:
                remedy = "let its generation prompt be what that template writes before an answer"
            raise self.checkpoint.error(
                f"its head reads where its own template ends a turn; {remedy}"
            )
        return start


def _masks_first(scorer: Classifier) -> bool:
    """Whether the runner's texts begin with two beginning tokens, in a model that
    counts masked ones.
    """
    if scorer.checkpoint.config.model_type not in backbones.COUNTED_POSITIONS:
        return False
    options = scorer.encode_options | {
        "max_length": None,
        "truncate": None,
        "convention": "reward-bench-twice",
    }
    first, second = (
        encode(scorer.tokenizer, ["a"], ["b"], **options).ids[0][:2].tolist()
    )
    return bool(first == second == scorer.tokenizer.bos_token_id)


def _is_causal(backbone: "PreTrainedModel") -> bool:
    """Whether a position sees only what stands before it; tried on eight tokens."""
    import torch

    size = int(backbone.config.get_text_config().vocab_size)
    ids = (size // 2 + np.arange(8, dtype=np.int32)) % size
    texts = ids, np.append(ids[:-1], ids[0])
    states, other_states = (alone(backbone, text, np.array([0, 3])) for text in texts)
    return bool(torch.allclose(states, other_states, atol=1e-5))
