"""The tokenizer that lies beside a model, as its file `tokenizer.json` says and not only as its class is called.

For some architectures transformers builds a class of its own and takes no more than the vocabulary from the file, so
that a model with another tokenizer reads other tokens. What the file says is compared on a few texts, and followed.
"""

from typing import TYPE_CHECKING

from rmlab.scorers.checkpoints.checkpoint import Checkpoint
from rmlab.scorers.checkpoints.loading import first_line, quiet
from rmlab.tables import DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

PROBES = (
    "two  spaces,   three, a\ttab and a trailing space ",
    "12345678 9.75 3,000,000 2024-07-26 0x7f",
    "def f(x):\n    if x >= 10:\n\n        return x**2  # done\r\n",
    "Don't we'll I'M they'RE; re-use “quotes” — and … dots!!! ?!",
    "Привет, мир. Γειά σου. नमस्ते दुनिया. สวัสดี. مرحبا بالعالم. שלום",
    "你好，世界。こんにちは世界、日本語です。안녕하세요 세계",
    "naïve café Ａｂｃ ﬁ ½ ① e\u0301 🙂👍🏽 \u200bzero",
    "  leading\n\n\n- list\n1. item\n| a | b |\n**bold** `code` $x_1^2$ https://example.org/a?b=c&d=%20",
    "HTTPServer camelCase snake_case SHOUT łódź straße",
)
"""Texts that tell pre-tokenizers and normalizers apart: spaces, digits, code, quotes, scripts, marks."""


def load_tokenizer(checkpoint: Checkpoint) -> "PreTrainedTokenizerBase":
    """The model's tokenizer; the one of its file where transformers' own class would give other tokens.

    Raises DataError where there is none, and where the file cannot be followed.
    """
    class_tokenizer = own_class(checkpoint)
    if not deviations(class_tokenizer, checkpoint):
        return class_tokenizer
    from transformers import PreTrainedTokenizerFast

    try:
        file_tokenizer: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(checkpoint.base)
        n_different = deviations(file_tokenizer, checkpoint)
        reason = f"so does PreTrainedTokenizerFast, on {n_different} texts"
    except Exception as error:  # the files are somebody's; whatever is wrong with them is said in one sentence
        n_different, reason = len(PROBES), first_line(error)
    if n_different:
        raise DataError(
            f"model={checkpoint.name!r}: transformers' {type(class_tokenizer).__name__} writes other tokens than "
            f"tokenizer.json in {checkpoint.base} says ({reason}); save the tokenizer that the model was trained with, "
            "or pass base="
        )
    return file_tokenizer


def own_class(checkpoint: Checkpoint) -> "PreTrainedTokenizerBase":
    """The tokenizer that transformers makes of the folder; DataError where it makes none."""
    from transformers import AutoTokenizer

    config = checkpoint.config
    try:
        with quiet():
            return AutoTokenizer.from_pretrained(
                checkpoint.base, config=config, trust_remote_code=checkpoint.trust_remote_code
            )
    except Exception as error:  # the files are somebody's; whatever is wrong with them is said in one sentence
        raise DataError(
            f"model={checkpoint.name!r}: transformers cannot read a tokenizer in {checkpoint.base} "
            f"({type(error).__name__}); pass base=, a folder or model id with the tokenizer"
        ) from error


def deviations(tokenizer: "PreTrainedTokenizerBase", checkpoint: Checkpoint) -> int:
    """On how many of PROBES the tokenizer writes other tokens than `tokenizer.json` says; 0 without such a file."""
    from tokenizers import Tokenizer

    path = checkpoint.base / "tokenizer.json"
    if not tokenizer.is_fast or not path.is_file():
        return 0
    try:
        core = Tokenizer.from_file(str(path))
    except Exception as error:  # what this library raises has no type of its own
        raise DataError(f"{path} is not a tokenizer ({first_line(error)}); download it again") from error
    return sum(_ids(tokenizer.backend_tokenizer, text) != _ids(core, text) for text in PROBES)


def _ids(core: "Tokenizer", text: str) -> list[int] | None:
    """Token ids without special tokens; None where the tokenizer cannot write the text."""
    try:
        return list(core.encode(text, add_special_tokens=False).ids)
    except Exception:  # what this library raises has no type of its own
        return None
