"""Where in an answer the reward moves: after every token, or by leaving out one
sentence at a time.
"""

import re

import numpy as np
import pandas as pd

from rmlab.inference.template import token_texts
from rmlab.scorers.base import PlainScorer, Prompt
from rmlab.scorers.classifier import Classifier
from rmlab.scorers.implicit import ImplicitReward

# Up to the end of a sentence or a line, with the white space around it.
_SENTENCE = re.compile(
    r"\s*(?=\S).*?(?:[.!?…]+[\"'”’)\]*_]*(?=\s)|\n+|\Z)\s*", re.DOTALL
)


def token_rewards(scorer: PlainScorer, prompt: Prompt, response: str) -> pd.DataFrame:
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
        One row per token, or per sentence: text (the pieces in order spell the answer,
        and the end that the template writes), reward (the score of the answer up to and
        including this piece; the last one is the score), change, method. Method
        "token": change is the difference to the piece before. A classifier's head was
        trained to read the end of a text, so the values on the way are its score if the
        text ended there; of an implicit reward as a sum, change is the token's
        log-probability under the policy, less that under the reference. Method
        "occlusion": change is the score minus the score without this sentence; missing
        for an answer of one sentence.

    Raises
    ------
    ValueError
        For an empty response.

    Examples
    --------
    >>> table = token_rewards(lambda prompts, texts: [float(len(t)) for t in texts], "Why?", "Because. It is so.")
    >>> table[["text", "reward", "change"]].to_dict("list")
    {'text': ['Because. ', 'It is so.'], 'reward': [8.0, 18.0], 'change': [9.0, 10.0]}
    """
    if not isinstance(response, str) or not response:
        raise ValueError(f"response: {response!r}; give a non-empty string")
    if isinstance(scorer, Classifier | ImplicitReward):
        trace = scorer.token_rewards(scorer.prepare([prompt], [response]), 0)
        if trace is not None:
            ids, rewards = trace
            pieces, change = (
                token_texts(scorer.tokenizer, ids.tolist()),
                np.diff(rewards, prepend=np.nan),
            )
            return pd.DataFrame(
                {"text": pieces, "reward": rewards, "change": change, "method": "token"}
            )
    pieces = _SENTENCE.findall(response) or [response]
    n = len(pieces)
    starts = ["".join(pieces[: k + 1]).rstrip() for k in range(n - 1)]
    # White space that separates nothing any more would be a change of its own.
    without = (
        ["".join(pieces[:k] + pieces[k + 1 :]).rstrip() for k in range(n)]
        if n > 1
        else []
    )
    texts = [*starts, response, *without]
    scores = np.asarray(scorer([prompt] * len(texts), texts), float)
    change = scores[n - 1] - scores[n:] if n > 1 else np.full(1, np.nan)
    return pd.DataFrame(
        {"text": pieces, "reward": scores[:n], "change": change, "method": "occlusion"}
    )
