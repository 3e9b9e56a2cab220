"""Where in an answer the reward moves: token by token, or sentence by sentence."""

import re
from typing import Any

import numpy as np
import pandas as pd

from rmlab.inference.tokenised import token_texts
from rmlab.scorers.base import PlainScorer, Prompt
from rmlab.scorers.local import LocalScorer

# Up to the end of a sentence or a line, with the white space around it.
_SENTENCE = re.compile(
    r"\s*(?=\S).*?(?:[.!?…]+[\"'”’)\]*_]*(?=\s)|\n+|\Z)\s*", re.DOTALL
)


def token_rewards(
    scorer: "PlainScorer", prompt: "Prompt", response: str
) -> pd.DataFrame:
    """Read the reward along an answer.

    Parameters
    ----------
    scorer : callable
        A causal model of `rmlab.classifier` or an `rmlab.implicit_reward` is read after
        every token in one forward pass. Any other scorer is called twice per sentence.
    prompt : str or list of messages
    response : str

    Returns
    -------
    DataFrame
        One row per token, or per sentence:

        - text: the pieces in order spell the answer, and the end that the template
          writes;
        - reward: the score of the answer up to and including this piece; the last one
          is the score;
        - change, method. Method "token": change is the difference to the piece before.
          A classifier's head was trained to read the end of a text, so the values on
          the way are its score if the text ended there; of an implicit reward as a sum,
          change is the token's log-probability under the policy, less that under the
          reference. Method "occlusion": change is the score minus the score without
          this sentence; missing for an answer of one sentence.

    Raises
    ------
    ValueError
        For an empty response.

    Examples
    --------
    >>> def lengths(prompts, texts):
    ...     return [float(len(text)) for text in texts]
    >>> table = token_rewards(lengths, "Why?", "Because. It is so.")
    >>> table[["text", "reward", "change"]].to_dict("list")
    {'text': ['Because. ', 'It is so.'], 'reward': [8.0, 18.0], 'change': [9.0, 10.0]}
    """
    if not isinstance(response, str) or not response:
        raise ValueError(f"response: {response!r}; give a non-empty string")
    if isinstance(scorer, LocalScorer):
        table = _read_tokens(scorer, prompt, response)
        if table is not None:
            return table
    return _leave_out_sentences(scorer, prompt, response)


def _read_tokens(
    model: LocalScorer[Any], prompt: Prompt, response: str
) -> pd.DataFrame | None:
    """The reward after every token; None for a model that is not causal."""
    trace = model.token_rewards(model.prepare([prompt], [response]), 0)
    if trace is None:
        return None
    ids, rewards = trace
    return pd.DataFrame(
        {
            "text": token_texts(model.tokenizer, ids.tolist()),
            "reward": rewards,
            "change": np.diff(rewards, prepend=np.nan),
            "method": "token",
        }
    )


def _leave_out_sentences(
    scorer: PlainScorer, prompt: Prompt, response: str
) -> pd.DataFrame:
    """The score up to every sentence, and what each of several sentences adds to it."""
    sentences = _SENTENCE.findall(response) or [response]
    n = len(sentences)
    # White space that separates nothing any more would be a change of its own.
    texts = ["".join(sentences[:k]).rstrip() for k in range(1, n)]
    texts.append(response)
    if n > 1:
        for k in range(n):
            remaining = sentences[:k] + sentences[k + 1 :]
            texts.append("".join(remaining).rstrip())

    scores = np.asarray(scorer([prompt] * len(texts), texts), float)
    change = np.full(n, np.nan)
    if n > 1:
        change = scores[n - 1] - scores[n:]
    return pd.DataFrame(
        {
            "text": sentences,
            "reward": scores[:n],
            "change": change,
            "method": "occlusion",
        }
    )
