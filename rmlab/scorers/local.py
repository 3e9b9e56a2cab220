"""Models whose weights are on this machine: their checkpoints, options and texts as tokens."""

import copy
import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from importlib import metadata
from typing import TYPE_CHECKING, Generic, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Floats, Ints, PairScorer, Prompt, Provenance, Scorer, Stream, Text
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rmlab.inference.template import Encoded
    from rmlab.scorers.checkpoints.checkpoint import Checkpoint
    from rmlab.scorers.forms import Texts

Options = ParamSpec("Options")
S = TypeVar("S")


class EncodeOptions(TypedDict, total=False):
    """How texts become tokens; the keywords of `rmlab.inference.template.encode`."""

    template: str | None
    eos: bool | None
    max_length: int | None
    truncate: str | None
    convention: str | None


class RunOptions(TypedDict, total=False):
    """How tokens are forwarded; none of these changes a score."""

    budget: int | None
    chunk: int | None
    together: bool | None


class LocalOptions(TypedDict):
    """What a model on this machine is made with, beside its checkpoints and its head."""

    name: str
    device: "torch.device"
    dtype: "torch.dtype"
    encode_options: EncodeOptions
    run_options: RunOptions


class Tokens(Protocol):
    """Texts as tokens. `order`: their numbers, neighbours that share a pass side by side. `keys`: hashes of tokens."""

    @property
    def keys(self) -> list[str]:
        """One for each text."""

    @property
    def order(self) -> Ints:
        """The numbers of all texts."""


P = TypeVar("P", bound=Tokens)


@dataclass(frozen=True)
class Prepared:
    """Texts as token ids. `by_length`: neighbours are texts of about the same length, else of the same prompt."""

    encoded: "Encoded"
    responses: Sequence[str]
    by_length: bool = False

    @property
    def keys(self) -> list[str]:
        """Hash of each text's token ids."""
        return self.encoded.keys

    @property
    def order(self) -> Ints:
        """Text numbers, neighbours beside one another."""
        encoded = self.encoded
        return longest_first(encoded.ids, encoded.keys) if self.by_length else np.argsort(encoded.groups, kind="stable")


class LocalModel(Scorer, Generic[P]):
    """A model on this machine, whose weights are loaded when the first text is scored.

    `encode_options`: how texts become tokens. `run_options`: how tokens are forwarded. `sums_answer`: whether the score
    is a sum over the answer's tokens; otherwise it is read at the positions of `places`.
    """

    sums_answer = False
    _loaded = ("parts", "models", "stays", "fingerprint")
    """Members that hold weights or depend on their number type."""

    def __init__(self, checkpoints: "list[Checkpoint]", **options: Unpack[LocalOptions]) -> None:
        self.checkpoints, self.name = checkpoints, options["name"]
        self.device, self.dtype = options["device"], options["dtype"]
        self.encode_options, self.run_options = options["encode_options"], options["run_options"]
        self.encoding: Provenance = {}

    @abstractmethod
    def prepare(self, prompts: Sequence[Prompt], /, *answers: Sequence[str]) -> P:
        """Return the texts as tokens."""

    @abstractmethod
    def forward(self, prepared: P, numbers: Ints, /) -> Stream:
        """Yield numbers and scores of the texts with these `numbers`, as the batches come."""

    @abstractmethod
    def alone(self, prepared: P, numbers: Ints, /) -> Floats:
        """Return scores of the texts, each forwarded by itself: the reference for everything faster."""

    @abstractmethod
    def places(self, prepared: P, numbers: Ints, /) -> tuple[list[NDArray[np.int32]], list[Ints]]:
        """Return token ids of the texts and the positions that are read in each."""

    @property
    @abstractmethod
    def backbone(self) -> "PreTrainedModel":
        """The transformers model that is forwarded; loads the weights."""

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Return positions in `texts` and their scores, as the batches come; the texts become tokens at once."""
        prepared = self._prepare_texts(texts)
        return self.forward(prepared, prepared.order)

    def score_alone(self, texts: Sequence[Text], /) -> Floats:
        """Return the scores of the texts, each forwarded by itself."""
        return self.alone(self._prepare_texts(texts), np.arange(len(texts)))

    def _prepare_texts(self, texts: Sequence[Text]) -> P:
        answers = ([*column] for column in zip(*(text.answers for text in texts), strict=True))
        return self.prepare([text.prompt for text in texts], *answers)

    @property
    def checkpoint(self) -> "Checkpoint":
        """The checkpoint of the model, or of the first of several."""
        return self.checkpoints[0]

    @property
    def resident(self) -> "list[Checkpoint]":
        """The checkpoints whose weights are on the device at once."""
        return self.checkpoints

    @property
    def head_title(self) -> str:
        """Which head is read, for people."""
        return ""

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The transformers tokenizer."""
        from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer

        return load_tokenizer(self.checkpoint)

    @property
    def longest(self) -> int | None:
        """The longest text, in tokens, that the model takes; None where its positions are only relative."""
        from rmlab.scorers.models.backbone import window

        windows = [window(checkpoint.config) for checkpoint in self.checkpoints]
        return self.encode_options["max_length"] or min((size for size in windows if size is not None), default=None)

    @cached_property
    def text_fingerprint(self) -> str:
        """Hash of how texts become tokens: options, template, and the tokens of ten conversations."""
        return hash_parts(
            {"tokens": self._hash_probes(), "template": self.tokenizer.chat_template} | self.encode_options
        )

    @abstractmethod
    def _hash_probes(self) -> str:
        """Hash of the tokens of ten conversations."""

    def _hash_parts(self, **details: object) -> str:
        """The fingerprint: weights, number type, how texts become tokens, and `details`."""
        parts = {"content": self.checkpoint.content, "dtype": str(self.dtype)}
        return hash_parts(parts | {"texts": self.text_fingerprint} | details)

    def in_float32(self) -> Self:
        """Return the same model with float32 weights, which are loaded anew, to see what half precision costs."""
        import torch

        twin = copy.copy(self)
        for member in self._loaded:
            twin.__dict__.pop(member, None)
        twin.dtype = torch.float32
        return twin

    def _describe(self, forwarded: Mapping[str, object], **details: object) -> Provenance:
        """The provenance: checkpoint, `details`, number type, device, versions, and how texts were encoded."""
        checkpoint = self.checkpoint
        plain: Provenance = {"model": checkpoint.name, "revision": checkpoint.revision, "content": checkpoint.content}
        machine = {"dtype": str(self.dtype).removeprefix("torch."), "device": str(self.device), "versions": versions()}
        return plain | details | machine | dict(forwarded) | self.encoding


class LocalScorer(LocalModel[P]):
    """A model on this machine that scores single texts."""

    def _encode(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> "Encoded":
        """The texts as token ids; the provenance then says how they were encoded."""
        from rmlab.inference.template import encode

        encoded = encode(self.tokenizer, prompts, responses, **(self.encode_options | {"max_length": self.longest}))
        self.encoding = self._describe_encoding(encoded)
        return encoded

    def _describe_encoding(self, encoded: "Encoded") -> Provenance:
        return {
            "template": encoded.source,
            "template_hash": encoded.template_hash,
            "truncated": int(np.sum(encoded.truncated)),
            "date_string": encoded.date,
            "convention": self.encode_options["convention"],
        }

    def _hash_probes(self) -> str:
        probes_hash, encoded = encode_probes(self.tokenizer, self.encode_options)
        self.encoding = self.encoding or (self._describe_encoding(encoded) if encoded else {})
        return probes_hash


class LocalPairScorer(LocalModel[P], PairScorer):
    """A model on this machine that compares two answers.

    `markers`: whether its head reads marker tokens inside the text. `asked`: who wrote the words around the answers.
    """

    markers: bool
    asked: str

    @abstractmethod
    def encode(self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str], /) -> "Texts":
        """Return comparisons as tokens, however long."""

    def _hash_probes(self) -> str:
        rows: list[object] = []
        for prompt, response in PROBES:
            with suppress(DataError):  # of a template that refuses such conversations
                texts = self.encode([prompt], [response], [response[::-1]])
                rows.append([prompt, texts.ids[0].tolist(), texts.reads[0].tolist()])
        return hash_parts({"tokens": rows})


PROBES: tuple[tuple[Prompt, str], ...] = (
    ("What is the capital of France?", "The capital is Paris."),
    ("Two  spaces,   three\tand a tab", "  indented\n\n    text  \n"),
    ("Compute 1234567 + 0.25 * 10^9.", "It is 251234567, or 2.51e8; 3,14 is not 3.14."),
    ("def f(x):\n    return x**2", "```python\nprint(f(3) != [1, 2])  # {'a': 9}\n```"),
    ("Wie heißt die größte Stadt?", "Ça va: naïve façade, Ærø, ĳ, ﬁ, Å and e\u0301."),
    ("Столица России?", "Москва. Ελλάδα: Αθήνα. עברית، العربية."),
    ("日本の首都は？", "東京です。中国的首都是北京。한국의 수도는 서울."),
    ("हिन्दी में लिखो", "नमस्ते दुनिया। ภาษาไทยไม่มีช่องว่าง"),
    ("Emoji? 🙂👩‍👩‍👧", "**Bold**, *italic*, $x_1 \\le y^2$, <b>&amp;</b> ☃ — “quoted”…"),
    (
        [
            {"role": "user", "content": "Hello THERE, iPhone"},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": "unbelievably re-tokenised"},
        ],
        "Antidisestablishmentarianism, isn't it?",
    ),
)
"""Conversations whose tokens stand for a tokenizer: two that write all of them alike are taken for the same."""


def encode_probes(tokenizer: "PreTrainedTokenizerBase", options: EncodeOptions) -> "tuple[str, Encoded | None]":
    """Return a hash of the tokens of ten conversations, and one of them as tokens, if it can be written."""
    from rmlab.inference.template import encode

    rows, encoded = list[object](), None
    uncut = options | {"max_length": None, "truncate": None}
    for prompt, response in PROBES:
        with suppress(DataError):  # of a template that refuses such conversations
            encoded = encode(tokenizer, [prompt], [response], **uncut)
            rows.append([prompt, encoded.ids[0].tolist(), int(encoded.response_start[0])])
    return hash_parts({"tokens": rows}), encoded


def remakable(make: Callable[Options, S]) -> Callable[Options, S]:
    """Let the scorer that a function makes be made anew elsewhere: the same options, and the device that is there."""

    @wraps(make)
    def make_remakable(*args: Options.args, **options: Options.kwargs) -> S:
        scorer = make(*args, **options)
        scorer.remake = partial(make_remakable, *args, **options)  # type: ignore[attr-defined]
        return scorer

    return make_remakable


def longest_first(ids: Sequence[NDArray[np.int32]], keys: Sequence[str]) -> Ints:
    """Return numbers of the texts from the longest to the shortest, the same however the texts stand."""
    lengths = np.array([len(sequence) for sequence in ids])
    return np.lexsort((np.asarray(keys, str), -lengths)).astype(np.intp)


def require_convention(convention: str | None) -> None:
    """Raise DataError for a convention that does not exist."""
    if convention not in (None, "reward-bench"):
        raise DataError(
            f"convention={convention!r}; allowed: None (each special token once), 'reward-bench' (as its runner)"
        )


def hash_parts(parts: Mapping[str, object]) -> str:
    """Return a hash of everything that decides a score."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def versions() -> dict[str, str]:
    """Return the versions of the libraries that compute the scores."""
    return {name: metadata.version(name) for name in ("torch", "transformers", "tokenizers", "numpy")}
