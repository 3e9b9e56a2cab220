"""The counts that Chatbot Arena's style control uses: length in tokens, headers, list items and bold, code left out."""

import re
from collections.abc import Callable, Sized

import pandas as pd

from rmlab import tables
from rmlab.styles.counts import features_of

__all__ = ["ARENA", "arena_features"]

ARENA = ("tokens", "headings", "list_items", "bold")
"""Columns of `arena_features`, and the `controls` of `rmlab.bias.style_controlled` that Arena uses."""

_FENCED = re.compile(r"```[^`]*```")
_PIECE = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?\d{1,3}| ?[^\w\s]+|\s+(?!\S)|\s+")


def arena_features(responses: pd.DataFrame, *, tokenize: Callable[[str], Sized] | None = None) -> pd.DataFrame:
    """Count Chatbot Arena's style features of every response: one row per response, in the order of `responses`.

    Columns: benchmark, domain, id, label, slot, subset, style, then tokens, headings, list_items and bold, all of the
    text without its fenced code blocks, as Arena counts them (Li and others 2024). Arena's tokens are those of
    tiktoken: pass `tokenize=tiktoken.get_encoding("cl100k_base").encode`. Without it, tokens are the pieces that such
    an encoding cuts a text into before it splits rare words: words, numbers of up to three digits, runs of signs; an
    encoding makes a few more of them. Marks are counted by `features_of`, not by Arena's regular expressions.

    >>> words = pd.DataFrame({"benchmark": "own", "domain": "d", "id": "1", "label": "chosen", "slot": [0],
    ...     "prompt": "Sum?", "response": ["It's **3**:\\n```python\\nprint(1 + 2)\\n```"]})
    >>> arena_features(words)[["tokens", "bold"]].values.tolist()
    [[6, 1]]
    """
    responses = tables.check_responses(responses)
    known = {text: _counts(text, tokenize or _pieces) for text in responses["response"].unique()}
    counted = pd.DataFrame([known[text] for text in responses["response"]], columns=list(ARENA), dtype="int64")
    return pd.concat([responses[[*tables.KEY, "subset", "style"]], counted], axis=1)


def _counts(text: str, tokenize: Callable[[str], Sized]) -> dict[str, int]:
    prose = _FENCED.sub("", text)
    count = features_of(prose)
    return {"tokens": len(tokenize(prose)), **{name: count[name] for name in ARENA[1:]}}


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(text)
