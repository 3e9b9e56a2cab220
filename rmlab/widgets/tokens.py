"""Where in an answer the reward moves: after every token, or by leaving out one sentence at a time."""

import re

import numpy as np
import pandas as pd

from rmlab.scorers.base import PlainScorer, Prompt
from rmlab.scorers.trace import trace
from rmlab.text import escape_html as escape

__all__ = ["sentences", "token_rewards", "tokens_html"]

_SENTENCE = re.compile(r".*?(?:[.!?…]+[\"'”’)\]*_]*(?=\s)|\n+|$)\s*", re.DOTALL)


def token_rewards(scorer: PlainScorer, prompt: Prompt, response: str) -> pd.DataFrame:
    """Reward along an answer: one row per token, or per sentence where the model reads only the whole text.

    Columns: text (the pieces in order spell the answer and what the template writes behind it), reward (score of the
    answer up to and including this piece; the last one is the score), change, method.
    method "token": a causal reward model from `rmlab.classifier`, its head read after every token in one forward pass;
    change is the difference to the piece before. The head was trained to read the end of a text, so the values on the
    way are what it would say if the text ended there. Or an implicit reward from `rmlab.implicit_reward`: as a sum,
    change is what this token adds, its log-probability under the policy, less that under the reference.
    method "occlusion": any other scorer. change is the score minus the score without this sentence, two calls per
    sentence in all; missing (NaN) for an answer of one sentence, as nothing is left of it.

    >>> table = token_rewards(lambda prompts, texts: [float(len(t)) for t in texts], "Why?", "Because. It is so.")
    >>> table[["text", "reward", "change"]].to_dict("list")
    {'text': ['Because. ', 'It is so.'], 'reward': [8.0, 18.0], 'change': [9.0, 10.0]}
    """
    if not isinstance(response, str) or not response:
        raise ValueError(f"response: {response!r}; give a non-empty string")
    found = trace(scorer, prompt, response)
    if found is None:
        return _occlusion(scorer, prompt, response)
    change = np.diff(found.rewards, prepend=np.nan)
    return pd.DataFrame({"text": found.pieces, "reward": found.rewards, "change": change, "method": "token"})


def sentences(text: str) -> list[str]:
    """Cut a text after its sentences and lines; the pieces put together are the text.

    >>> sentences("One. Two!\\n- three")
    ['One. ', 'Two!\\n', '- three']
    """
    pieces: list[str] = []
    for piece in _SENTENCE.findall(text):
        if pieces and not (piece.strip() and pieces[-1].strip()):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    return [piece for piece in pieces if piece]


def tokens_html(table: pd.DataFrame) -> str:
    """The answer with every piece tinted by its change, blue up and red down; the numbers are in the tooltips."""
    change = table["change"].to_numpy(float)
    largest = np.nanmax(np.abs(change)) if np.isfinite(change).any() else 0.0
    parts = []
    for text, reward, moved in zip(table["text"], table["reward"], change, strict=True):
        tint = 0.0 if np.isnan(moved) or largest == 0 else moved / largest
        kind = "rmlab-high" if tint >= 0 else "rmlab-low"
        title = f"reward {reward:.3f}" + ("" if np.isnan(moved) else f", change {moved:+.3f}")
        parts.append(f'<span class="{kind}" style="--tint: {abs(tint):.2f}" title="{title}">{escape(text)}</span>')
    how = "change after each token" if (table["method"] == "token").all() else "change when a sentence is left out"
    largest_text = f"; the strongest colour is {largest:.3f}" if largest else ""
    return (
        f'<p class="rmlab-quiet">Score {table["reward"].iloc[-1]:.3f}. Colour: {how}{largest_text}.</p>'
        f'<div class="rmlab-text rmlab-tokens" tabindex="0">{"".join(parts)}</div>'
    )


def _occlusion(scorer: PlainScorer, prompt: Prompt, response: str) -> pd.DataFrame:
    pieces = sentences(response)
    upto = ["".join(pieces[: k + 1]) for k in range(len(pieces) - 1)]
    without = ["".join(pieces[:k] + pieces[k + 1 :]) for k in range(len(pieces))] if len(pieces) > 1 else []
    # White space that no longer separates anything would be a change of its own.
    texts = [*(text.rstrip() for text in upto), response, *(text.rstrip() for text in without)]
    scores = np.asarray(scorer([prompt] * len(texts), texts), float)
    reward, left = scores[: len(pieces)], scores[len(pieces) :]
    change = reward[-1] - left if len(left) else np.full(1, np.nan)
    return pd.DataFrame({"text": pieces, "reward": reward, "change": change, "method": "occlusion"})
