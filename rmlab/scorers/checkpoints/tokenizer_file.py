"""The tokenizer beside a model, as its file says and not only as its class is called.

For some architectures transformers builds a class of its own and takes no more than the
vocabulary from the file, so that a model with another tokenizer reads other tokens.
What the file says is compared on a few texts, and followed.
"""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rmlab.scorers.checkpoints.checkpoint import Checkpoint
from rmlab.scorers.checkpoints.loading_errors import explain

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

# Texts that tell pre-tokenizers and normalizers apart: spaces, digits, code, quotes,
# scripts, marks.
_PROBES = (
    "two  spaces,   three, a\ttab and a trailing space ",
    "12345678 9.75 3,000,000 2024-07-26 0x7f",
    "def f(x):\n    if x >= 10:\n\n        return x**2  # done\r\n",
    "Don't we'll I'M they'RE; re-use “quotes” — and … dots!!! ?!",
    "Привет, мир. Γειά σου. नमस्ते दुनिया. สวัสดี. مرحبا بالعالم. שלום",
    "你好，世界。こんにちは世界、日本語です。안녕하세요 세계",
    "naïve café Ａｂｃ ﬁ ½ ① e\u0301 🙂👍🏽 \u200bzero",
    "  leading\n\n\n- list\n1. item\n| a | b |\n**bold** `code` "
    "$x_1^2$ https://example.org/a?b=c&d=%20",
    "HTTPServer camelCase snake_case SHOUT łódź straße",
)


def load_tokenizer(checkpoint: Checkpoint) -> "PreTrainedTokenizerBase":
    """The model's tokenizer.

    The one of its file, where transformers' own class would give other tokens. Raises
    DataError where there is none, and where the file cannot be followed.
    """
    for loader in ("AutoTokenizer", "PreTrainedTokenizerFast"):
        tokenizer = class_tokenizer(checkpoint, loader)
        if follows_file(tokenizer, checkpoint.base):
            return tokenizer
    raise checkpoint.error(
        "no tokenizer class of transformers follows its tokenizer.json", "pass base="
    )


def class_tokenizer(
    checkpoint: Checkpoint, loader: str = "AutoTokenizer"
) -> "PreTrainedTokenizerBase":
    """The tokenizer that a class of transformers makes; DataError for none."""
    import transformers

    # Its own errors come first, as they are.
    config = checkpoint.config
    task = f"read a tokenizer in {checkpoint.base}"
    remedy = "pass base=, a folder or id with the tokenizer"
    with explain(checkpoint.name, task, remedy):
        tokenizer = getattr(transformers, loader).from_pretrained(
            checkpoint.base,
            config=config,
            trust_remote_code=checkpoint.trust_remote_code,
        )
    return cast("PreTrainedTokenizerBase", tokenizer)


def follows_file(tokenizer: "PreTrainedTokenizerBase", folder: Path) -> bool:
    """Whether the tokenizer writes _PROBES as the folder's `tokenizer.json` does, if
    there is one.
    """
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not tokenizer.is_fast or not path.is_file():
        return True
    file_tokenizer = Tokenizer.from_file(str(path))
    for text in _PROBES:
        file_ids = _plain_ids(file_tokenizer, text)
        if _plain_ids(tokenizer.backend_tokenizer, text) != file_ids:
            return False
    return True


def _plain_ids(tokenizer: "Tokenizer", text: str) -> list[int] | None:
    """Ids without special tokens; None where a character has no token."""
    # The error has no type of its own.
    with suppress(Exception):
        return tokenizer.encode(text, add_special_tokens=False).ids
    return None
