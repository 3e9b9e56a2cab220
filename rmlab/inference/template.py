"""The door of this folder's text side: templates, rendering, tokens and encoding."""

from rmlab.inference.encoding import (
    CONVENTIONS,
    Encoded,
    content_key,
    encode,
    require_unicode,
)
from rmlab.inference.formats import (
    FORMATS,
    choose_template,
    has_segments,
    read_template,
)
from rmlab.inference.rendering import pinned_date, render
from rmlab.inference.tokens import call, decode, special_tokens, token_texts

__all__ = [
    "CONVENTIONS",
    "FORMATS",
    "Encoded",
    "call",
    "choose_template",
    "content_key",
    "decode",
    "encode",
    "has_segments",
    "pinned_date",
    "read_template",
    "render",
    "require_unicode",
    "special_tokens",
    "token_texts",
]
