"""Style of unlabelled answers: how the chosen answer of a pair differs from the rejected one in length and Markdown."""

import numpy as np
import pandas as pd

from rmlab.bias import regression
from rmlab.metrics.items import as_pairs
from rmlab.styles import features
from rmlab.tables import LABELS, copy_provenance

WITHIN_A_QUARTER = np.log(1.25)
_LENGTH = pd.CategoricalDtype(["shorter", "equal", "longer"], ordered=True)
_MARKDOWN = pd.CategoricalDtype(["less", "equal", "more"], ordered=True)


def style_differences(table: pd.DataFrame, responses: pd.DataFrame) -> pd.DataFrame:
    """Add to each pair how its chosen answer differs from the rejected one in length and Markdown.

    The texts alone decide, so that pairs without style labels can be compared by style.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs.
    responses : DataFrame
        The responses that were scored.

    Returns
    -------
    DataFrame
        The pairs with `length` (shorter, equal, longer: the chosen answer's characters against the rejected one's;
        equal means within a quarter), `markdown` (less, equal, more marks), `log2_length` (1: the chosen answer is
        twice as long) and the counts chosen_characters, rejected_characters, chosen_markdown, rejected_markdown.

    Raises
    ------
    DataError
        For responses other than the scored ones.

    Notes
    -----
    *Shorter* is the hard case, as the chosen answer wins against length; *longer* is the easy one. These are different
    prompts, so that a difference between them is not the effect of length alone: `length_controlled` reads the accuracy
    at equal length, and `rmlab.probe` changes one text.

    Examples
    --------
    >>> import rmlab
    >>> responses = rmlab.load("mini")
    >>> pairs = rmlab.bias.style_differences(rmlab.score(responses, "longest"), responses)
    >>> rmlab.accuracy(pairs, by=["model", "length"])[["length", "accuracy"]].round(2).to_numpy().tolist()
    [['shorter', 0.0], ['equal', 0.5], ['longer', 1.0]]
    """
    pairs = as_pairs(table)
    measures = ["characters", "markdown"]
    chosen, rejected = regression.look_up_sides(pairs, features(responses), measures)
    log_ratio = np.log(chosen[:, 0] + 1) - np.log(rejected[:, 0] + 1)
    columns = {
        f"{label}_{measure}": side[:, place].astype(np.int64)
        for place, measure in enumerate(measures)
        for label, side in zip(LABELS, (chosen, rejected), strict=True)
    }
    length = np.sign(log_ratio) * (np.abs(log_ratio) > WITHIN_A_QUARTER)
    markdown = np.sign(chosen[:, 1] - rejected[:, 1])
    result = pairs.assign(
        length=pd.Categorical.from_codes(length.astype(int) + 1, dtype=_LENGTH),
        markdown=pd.Categorical.from_codes(markdown.astype(int) + 1, dtype=_MARKDOWN),
        log2_length=log_ratio / np.log(2),
        **columns,
    )
    return copy_provenance(table, result)
