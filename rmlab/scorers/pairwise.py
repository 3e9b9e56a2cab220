"""Pairwise models: which of two answers to a prompt is better, asked in both orders."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmlab.inference.encoding import Encoded, Response
from rmlab.inference.templates import choose_template, pinned_date, render
from rmlab.inference.tokenised import call
from rmlab.scorers.base import Floats, PairScorer, Prompt
from rmlab.scorers.checkpoints.adapters import Adapted
from rmlab.scorers.checkpoints.checkpoint import Checkpoint, find
from rmlab.scorers.checkpoints.stored_weights import as_float32
from rmlab.scorers.encoder import EncodeOptions, TextEncoder, complete_options
from rmlab.scorers.local import LocalScorer, Placement, remakeable
from rmlab.scorers.models import loading
from rmlab.scorers.models.arguments import with_arguments
from rmlab.scorers.models.heads import Function, layers
from rmlab.scorers.models.vocabulary import Vocabulary
from rmlab.scorers.reads import MARKERS, Read
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from rmlab.scorers.readout import LoadedModel, Readout


@remakeable
def pairwise(
    model: str | Path,
    *,
    base: str | Path | None = None,
    form: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    revision: str | None = None,
    max_batch_tokens: int | None = None,
    name: str | None = None,
) -> "Pairwise":
    """A model that sees two answers at once and says which is better; for
    `rmlab.prefer`.

    Parameters
    ----------
    model : str or Path
        An id on the hub or a folder.
    base : str or Path, optional
        Folder or id with the tokenizer and the configuration, where the model has none;
        of an adapter, the model that it changes.
    form : str, optional
        How it is asked: "pairrm", or "letters" (a language model that answers A or B,
        such as RLHFlow's pair-preference models). By default what its weights show.
    max_length : int, optional
        The longest text in tokens. By default the model's window.
    truncate : str, optional
        "right" cuts long texts as PairRM's authors do. Otherwise they are refused.
    dtype, device, trust_remote_code, allow_pickle, revision, max_batch_tokens, name
        As in `rmlab.classifier`.

    Returns
    -------
    Pairwise
        The weights are loaded when the first pair is compared.

    Raises
    ------
    DataError
        For a model that is not pairwise, and as `rmlab.classifier` does.
    """
    if truncate not in (None, "right"):
        allowed = "allowed: None (refuse long texts), 'right' (cut them, PairRM only)"
        raise DataError(f"truncate={truncate!r}", allowed)
    checkpoint = find(
        model,
        base=base,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
    )
    if isinstance(checkpoint, Adapted):
        checkpoint.refuse_task("CAUSAL_LM")
    options = complete_options(EncodeOptions(max_length=max_length, truncate=truncate))
    return Pairwise(
        checkpoint,
        PairEncoder(checkpoint, options, _choose_form(checkpoint, form)),
        Placement(device, dtype, max_batch_tokens),
        name=name,
    )


class Comparison(NamedTuple):
    """A prompt and two answers as token ids, and the positions that the head reads."""

    ids: list[int]
    reads: list[int]
    is_cut: bool = False


class Form(NamedTuple):
    """One way to ask.

    `loader`: the transformers class that loads the model. `write`: from a prompt and
    two answers to tokens. `make_head`: from the loaded model to the function that gives
    the logit of the answer written first, over states at `reads`. `keys`: the head's
    weights in the checkpoint.
    """

    name: str
    loader: str
    write: "Callable[[PairEncoder, list[dict[str, str]], str, str], Comparison]"
    make_head: "Callable[[Pairwise, PreTrainedModel], Function]"
    reads: tuple[Read, ...]
    keys: tuple[str, ...] = ()


class PairEncoder(TextEncoder):
    """Writes a prompt with two answers as a form asks for it; one text is one
    comparison in one order.
    """

    n_answers = 2
    checkpoint: Checkpoint

    def __init__(
        self, checkpoint: Checkpoint, options: EncodeOptions, form: Form
    ) -> None:
        super().__init__(checkpoint, options)
        self.form = form

    def write_texts(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Sequence[Response]],
        options: EncodeOptions,
    ) -> Encoded:
        """Return the comparisons in the order given; refuse those that are too long."""
        comparisons: list[Comparison] = []
        for prompt, first, second in zip(prompts, *answers, strict=True):
            texts = []
            for answer in (first, second):
                if not isinstance(answer, str) or not answer.strip():
                    number = len(comparisons)
                    problem = f"comparison {number}: the answer {answer!r} is no text"
                    raise DataError(problem, "fill it in, or leave the pair out")
                texts.append(answer)
            comparisons.append(self.form.write(self, _list_turns(prompt), *texts))

        written_prompts = [repr(prompt) for prompt in prompts]
        _, groups = np.unique(written_prompts, return_inverse=True)
        date = None
        if self.tokenizer.chat_template:
            date = pinned_date(choose_template(self.tokenizer, None).jinja)
        encoded = Encoded(
            ids=[np.array(text.ids, np.int32) for text in comparisons],
            response_start=np.zeros(len(comparisons), np.intp),
            groups=groups,
            truncated=np.array([text.is_cut for text in comparisons], bool),
            date=date,
            reads=[np.array(text.reads, np.intp) for text in comparisons],
        )
        longest = options["max_length"]
        if longest is not None:
            _refuse_long(encoded, longest, options["truncate"])
        return encoded


def _refuse_long(encoded: Encoded, longest: int, truncate: str | None) -> None:
    is_long = np.array([len(ids) > longest for ids in encoded.ids], bool)
    remedy = "leave them out, or raise max_length where the model can read more"
    if truncate is None:
        is_long |= encoded.truncated
        remedy += "; truncate='right' cuts them as PairRM's authors do"
    if is_long.any():
        problem = (
            f"{is_long.sum()} of {len(is_long)} comparisons (in one order each, "
            f"first number {is_long.argmax()}) are longer than the model reads"
        )
        raise DataError(problem, remedy)


def _list_turns(prompt: Prompt) -> list[dict[str, str]]:
    """The messages of a prompt; DataError for a role that no form has."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    for turn in prompt:
        if turn["role"] not in ("system", "user", "assistant"):
            problem = f"a pairwise model reads no message of role {turn['role']!r}"
            raise DataError(problem, "leave these prompts out")
    return prompt


class Pairwise(LocalScorer["Readout"], PairScorer):
    """A pairwise model; made by `pairwise`. The weights are loaded when the first pair
    is compared.

    `form`: how it is asked.
    """

    checkpoint: Checkpoint

    def __init__(
        self,
        checkpoint: Checkpoint,
        encoder: PairEncoder,
        placement: Placement,
        *,
        name: str | None,
    ) -> None:
        self.form = encoder.form
        super().__init__(
            checkpoint,
            encoder,
            placement,
            details={"form": self.form.name},
            name=name,
        )
        self.read_at = "markers" if self.form.reads == MARKERS else "end"

    def average(self, forward: Floats, exchanged: Floats) -> Floats:
        """Margins in favour of the answer that is first in `forward`, shape (n,).

        PairRM: half the difference of the two orders' logits, as its authors take it.
        Models that answer A or B: the log-odds of the mean probability. A margin is NaN
        where either logit is.
        """
        if self.form.reads == MARKERS:
            return super().average(forward, exchanged)
        return mean_log_odds(forward, exchanged)

    @property
    def head_title(self) -> str:
        """The form and its head, for people."""
        return f"{self.form.name}: {', '.join(self.form.keys) or 'logits of A and B'}"

    def load(self) -> "LoadedModel[Readout]":
        """Return the backbone, and the readout that gives the logit that the answer
        written first is better; loads the weights.
        """
        from rmlab.scorers.readout import LoadedModel, Readout

        form = self.form
        model = loading.load(
            self.checkpoint,
            form.loader,
            device=self.device,
            dtype=self.dtype,
            head=form.keys,
        )
        head = form.make_head(self, model)
        base = loading.base_model(model)
        backbone = with_arguments(base, self.encoder, form.loader)
        return LoadedModel(backbone, Readout(head, form.reads))


def _choose_form(checkpoint: Checkpoint, name: str | None) -> Form:
    """The form called `name`, or the one whose weights the checkpoint has."""
    if name is not None and name not in FORMS:
        raise DataError(f"form={name!r}", nearest(name, list(FORMS)))
    if name is not None:
        return FORMS[name]
    if any(key.startswith("head_layer.") for key in checkpoint.weights):
        return FORMS["pairrm"]
    is_tied = getattr(checkpoint.config, "tie_word_embeddings", False)
    is_decoder = not getattr(checkpoint.config, "is_encoder_decoder", False)
    if is_decoder and (is_tied or "lm_head.weight" in checkpoint.weights):
        return FORMS["letters"]
    remedy = "a model that scores single answers goes to rmlab.classifier"
    raise checkpoint.error("it is not a pairwise model", remedy)


# The tokens of PairRM's texts, and the settings that hold their ids.
_MARKERS = {
    "<|source|>": "source_prefix_id",
    "<|candidate1|>": "cand1_prefix_id",
    "<|candidate2|>": "cand2_prefix_id",
}
# The limits of LLM-Blender's own code, and its misspelt word: the model was trained
# with it.
_SOURCE_LONGEST = 1224
_LONGEST = 2048
_TASK = (
    "Finish the following coversation in each i-th turn by filling in <Response i> "
    "with your response."
)


def _write_pairrm(
    encoder: PairEncoder, turns: list[dict[str, str]], *answers: str
) -> Comparison:
    """The conversation with the assistant's turns left open, then two candidates that
    fill them in; each with a marker and special tokens.
    """
    questions: list[str] = []
    replies = []
    for turn in turns:
        if turn["role"] == "assistant":
            replies.append(turn["content"])
        else:
            slot = f"<Response {len(questions) + 1}>"
            questions.append(f"USER: {turn['content']}\nAssistant: {slot}")
    texts = [_TASK + "\n".join(questions)]
    for answer in answers:
        filled = enumerate([*replies, answer], 1)
        texts.append("\n".join(f"<Response {i}>: {text}" for i, text in filled))

    ids: list[int] = []
    reads = []
    is_cut = False
    longest = _SOURCE_LONGEST
    for (marker, setting), text in zip(_MARKERS.items(), texts, strict=True):
        segment = encoder.tokenizer.encode(marker + text)
        if len(segment) > longest:
            # The closing token stays.
            segment = [*segment[: longest - 1], segment[-1]]
            is_cut = True
        reads.append(len(ids) + segment.index(encoder.checkpoint.settings[setting]))
        ids += segment
        if len(reads) == 1:
            longest = (_LONGEST - len(ids)) // 2
    return Comparison(ids, reads, is_cut)


_PAIRRM_KEYS = (
    "head_layer.1.weight",
    "head_layer.1.bias",
    "head_layer.4.weight",
    "head_layer.4.bias",
)


def _pairrm_head(scorer: Pairwise, model: "PreTrainedModel") -> Function:
    """Each candidate's marker beside the source's, through two layers; the mean over
    its tasks.
    """
    import torch

    weights = as_float32(scorer.checkpoint.tensors(_PAIRRM_KEYS), model.device)
    run = layers(weights, "head_layer", "tanh")

    def prefer_first(states: "torch.Tensor") -> "torch.Tensor":
        source, first, second = states.unbind(1)
        first_logits = run(torch.cat([source, first], -1))
        second_logits = run(torch.cat([source, second], -1))
        return (first_logits - second_logits).mean(-1, keepdim=True)

    return prefer_first


def _write_letters(
    encoder: PairEncoder, turns: list[dict[str, str]], first: str, second: str
) -> Comparison:
    """RLHFlow's question: one user turn that holds the conversation and both answers;
    no BOS token.
    """
    tokenizer = encoder.tokenizer
    context = ""
    for turn in turns:
        role = "assistant" if turn["role"] == "assistant" else "user"
        context += f"\n<turn> {role}\n {turn['content']}"
    answers = f"[RESPONSE A] {first} [RESPONSE B] {second}"
    question = f"[CONTEXT] \n{context}\n {answers} \n"
    chat = [{"role": "user", "content": question}]
    jinja = choose_template(tokenizer, None).jinja
    (text,) = render(tokenizer, jinja, [chat], header=False)
    plain = text.replace(tokenizer.bos_token or "", "", 1)
    ids = call(tokenizer, plain, add_special_tokens=False)["input_ids"]
    return Comparison(ids, [len(ids) - 1])


def _letters_head(scorer: Pairwise, model: "PreTrainedModel") -> Function:
    """The logit of "A" minus that of "B"."""
    letters = []
    for letter in "AB":
        ids = scorer.tokenizer.encode(letter, add_special_tokens=False)
        if len(ids) != 1:
            problem = f"its tokenizer splits {letter!r} into {len(ids)} tokens"
            raise scorer.checkpoint.error(problem, "one token each is needed")
        letters += ids
    vocabulary = Vocabulary(model, scorer.checkpoint.name)

    def prefer_first(states: "torch.Tensor") -> "torch.Tensor":
        logits = vocabulary.logits(states[:, 0], letters)
        return logits[:, :1] - logits[:, 1:]

    return prefer_first


_ALL_FORMS = (
    Form("pairrm", "AutoModel", _write_pairrm, _pairrm_head, MARKERS, _PAIRRM_KEYS),
    Form(
        "letters",
        "AutoModelForCausalLM",
        _write_letters,
        _letters_head,
        (Read.LAST,),
    ),
)
FORMS = {form.name: form for form in _ALL_FORMS}


def mean_log_odds(forward: Floats, exchanged: Floats) -> Floats:
    """Log-odds of the mean of two probabilities that one answer is better, without
    leaving log space.

    `forward`, `exchanged`: as of `Pairwise.average`. NaN where either is.
    """
    from scipy.special import log_expit

    with np.errstate(invalid="ignore"):  # NumPy would warn of NaN
        better = np.logaddexp(log_expit(forward), log_expit(-exchanged))
        worse = np.logaddexp(log_expit(-forward), log_expit(exchanged))
    return np.asarray(better - worse, np.float64)
