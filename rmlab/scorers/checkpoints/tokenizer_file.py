"""The tokenizer that lies beside a model, as its file `tokenizer.json` says and not
only as its class is called.

For some architectures transformers builds a class of its own and takes no more than the
vocabulary from the file, so that a model with another tokenizer reads other tokens.
What the file says is compared on a few texts, and followed.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from rmlab.scorers.checkpoints.checkpoint import Checkpoint, explain

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Texts that tell pre-tokenizers and normalizers apart: spaces, digits, code, quotes,
# scripts, marks.
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


def load_tokenizer(checkpoint: Checkpoint) -> "PreTrainedTokenizerBase":
    """The model's tokenizer; the one of its file where transformers' own class would
    give other tokens.

    Raises DataError where there is none, and where the file cannot be followed.
    """
    for loader in ("AutoTokenizer", "PreTrainedTokenizerFast"):
        tokenizer = class_tokenizer(checkpoint, loader)
        if not count_deviations(tokenizer, checkpoint):
            return tokenizer
    raise checkpoint.error(
        "no tokenizer class of transformers follows its tokenizer.json; pass base="
    )


def class_tokenizer(
    checkpoint: Checkpoint, loader: str = "AutoTokenizer"
) -> "PreTrainedTokenizerBase":
    """The tokenizer that a class of transformers makes of the folder; DataError where
    it makes none.
    """
    import transformers

    options = {
        "config": checkpoint.config,
        "trust_remote_code": checkpoint.trust_remote_code,
    }
    task, remedy = (
        f"read a tokenizer in {checkpoint.base}",
        "pass base=, a folder or id with the tokenizer",
    )
    with explain(checkpoint.name, task, remedy):
        words = getattr(transformers, loader).from_pretrained(
            checkpoint.base, **options
        )
    return cast("PreTrainedTokenizerBase", words)


def count_deviations(
    tokenizer: "PreTrainedTokenizerBase", checkpoint: Checkpoint
) -> int:
    """On how many of PROBES the tokenizer writes other tokens than `tokenizer.json`
    says; 0 without such a file.
    """
    from tokenizers import Tokenizer

    path = checkpoint.base / "tokenizer.json"
    if not tokenizer.is_fast or not path.is_file():
        return 0
    file_tokenizer, n_deviations = Tokenizer.from_file(str(path)), 0
    for text in PROBES:
        ids: list[list[int] | None] = [
            None,
            None,
        ]  # None: the tokenizer has no token for an unknown character
        for i, words in enumerate((file_tokenizer, tokenizer.backend_tokenizer)):
            with suppress(Exception):  # the error has no type of its own
                ids[i] = words.encode(text, add_special_tokens=False).ids
        n_deviations += ids[0] != ids[1]
    return n_deviations
