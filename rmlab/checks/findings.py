"""Checks of token ids and of scores, one function each: what is found, how bad it is,
and what to do.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from rmlab import metrics
from rmlab.scorers.base import Floats, Ints
from rmlab.scoring.run import apart
from rmlab.servers import Finding, grade
from rmlab.tables import KEY, PROMPT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STATUS = pd.CategoricalDtype(["pass", "warn", "fail"], ordered=True)

Ids = np.ndarray
_TIMES = {0: "not at all", 1: "once", 2: "twice"}


def findings_table(findings: Iterable[tuple[str, Finding]]) -> pd.DataFrame:
    """One row per finding: check, status (pass < warn < fail), value, found, remedy;
    none for what passes.
    """
    rows = [(name, *finding) for name, finding in findings]
    table = pd.DataFrame(rows, columns=["check", "status", "found", "remedy", "value"])
    table["remedy"] = table["remedy"].where(table["status"] != "pass", "")
    return table.astype({"status": STATUS, "value": "float64"})[
        ["check", "status", "value", "found", "remedy"]
    ]


def check_rate(
    count: int, total: int, description: str, *, warn: float, fail: float
) -> Finding:
    """A finding about a share of faults: above `warn` it warns, from `fail` on it
    fails.
    """
    status = grade(count <= warn * total, count < fail * total)
    return Finding(status, f"{count} of {total} {description}", value=count)


def check_bos(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids]) -> Finding:
    """The beginning token stands once before each text, or before none; an encoder's
    `[CLS]` before each.
    """
    from rmlab.inference.template import special_tokens

    opening = (
        special_tokens(tokenizer).opening if tokenizer.bos_token_id is None else ()
    )
    bos = opening[0] if opening else tokenizer.bos_token_id
    if bos is None:
        return Finding("pass", "the tokenizer has no beginning token")
    leading = Counter(int((np.append(text, -1) != bos).argmax()) for text in ids)
    counts = ", ".join(
        f"{_TIMES.get(n, f'{n} times')} in {texts} texts"
        for n, texts in sorted(leading.items())
    )
    detail = f"{_token_name(tokenizer, bos)} at the beginning: {counts}"
    if max(leading) > 1 or len(leading) > 1 or (opening and not max(leading)):
        return Finding(
            "fail",
            detail,
            "prepare texts with rmlab.inference.template.encode, which writes it once",
        )
    n_inside = sum(int((text == bos).sum()) > 1 for text in ids)
    detail += f"; again inside {n_inside} texts" if n_inside else ""
    remedy = "look for its name in prompts and answers, or for a template that opens every turn with it"
    return Finding(grade(not n_inside, True), detail, remedy)


def check_read(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids], reads: Sequence[Ints]
) -> Finding:
    """The head reads the same token of every text, behind at most one end token."""
    positions = [int(text_reads[-1]) for text_reads in reads]
    tokens = {
        int(text[position]) for text, position in zip(ids, positions, strict=True)
    }
    endings = np.array([_count_trailing(text, tokenizer.eos_token_id) for text in ids])
    if endings.max() > 1:
        name = _token_name(tokenizer, tokenizer.eos_token_id)
        detail = f"{name} stands {endings.max()} times at the end of {(endings > 1).sum()} texts"
        return Finding("fail", detail, "pass eos=True, which writes it once")
    if len(tokens) > 1:
        detail = f"{len(tokens)} different tokens are read in {len(ids)} texts: the template writes no end token"
        return Finding(
            "warn",
            detail,
            "if the model was trained with one, pass eos=True; the model card says",
        )
    is_outer = all(
        position in (0, len(text) - 1)
        for text, position in zip(ids, positions, strict=True)
    )
    place = "chosen" if not is_outer else "last" if any(positions) else "first"
    return Finding(
        "pass",
        f"the {place} token, {_token_name(tokenizer, *tokens)}, in all {len(ids)} texts",
    )


def check_pad(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids]) -> Finding:
    """Is the pad token an end token, which runners that look for the last token by it
    would step over?
    """
    token = tokenizer.pad_token_id
    name = "none" if token is None else _token_name(tokenizer, token)
    if token is None or token != tokenizer.eos_token_id:
        return Finding("pass", f"{name}, not the end token")
    n_early = sum(_count_trailing(text, token) > 0 for text in ids)
    detail = f"pad and end token are both {name}; {n_early} of {len(ids)} texts end with it, and may be read early "
    remedy = "nothing to do here: heads are read by position. In other runners give the pad token an id of its own"
    return Finding("warn", f"{detail}elsewhere", remedy)


def check_markers(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids], reads: Sequence[Ints]
) -> Finding:
    """PairRM's markers, where its head reads, stand once in each text."""
    marks = [text[positions] for text, positions in zip(ids, reads, strict=True)]
    names = " ".join(map(str, tokenizer.convert_ids_to_tokens(marks[0].tolist())))
    n_again = sum(
        int(np.isin(text, mark).sum()) > len(mark)
        for text, mark in zip(ids, marks, strict=True)
    )
    count = f"again inside {n_again} of" if n_again else "once each in all"
    remedy = (
        "look for their names in prompts and answers; the head reads the first of each"
    )
    return Finding(
        grade(not n_again, True), f"{names}, {count} {len(ids)} texts", remedy
    )


def _count_trailing(text: Ids, token: int | None) -> int:
    return 0 if token is None else int((np.append(text[::-1], -1) != token).argmax())


def _token_name(tokenizer: "PreTrainedTokenizerBase", token: int) -> str:
    return f"{tokenizer.convert_ids_to_tokens(int(token))!r} ({int(token)})"


def spread(lengths: np.ndarray, groups: Ints, size: int) -> Ints:
    """Texts of whole prompts, evenly spread from the shortest prompt to the longest,
    about `size` texts.
    """
    prompts, group = np.unique(groups, return_inverse=True)
    mean = np.bincount(group, lengths) / np.bincount(group)
    n = min(len(prompts), max(1, round(size * len(prompts) / len(groups))))
    middle = (np.arange(n) + 0.5) * len(prompts) / n
    chosen = np.argsort(mean, kind="stable")[middle.astype(int)]
    return np.flatnonzero(np.isin(group, chosen))


class Sample(NamedTuple):
    """Rows of responses (or pairs) and the score (margin) of each: forwarded alone, and
    together as in a long run.
    """

    rows: pd.DataFrame
    alone: Floats
    together: Floats

    @property
    def unit(self) -> str:
        """What a row is."""
        return "comparisons" if "chosen_slot" in self.rows else "texts"

    def margins(self, scores: Floats) -> Floats:
        """Margins of the comparisons of a chosen with a rejected answer."""
        if self.unit == "comparisons":
            return scores
        frame = self.rows.assign(model="doctor", score=scores)
        frame = frame[frame.groupby(PROMPT)["label"].transform("nunique") == 2]
        return (
            np.zeros(0)
            if frame.empty
            else metrics.pairs(frame)["margin"].to_numpy(np.float64)
        )

    def flips(self, left: Floats, right: Floats) -> tuple[int, int, str]:
        """How many comparisons change their outcome, how many there are, and both for
        people.
        """
        first, second = self.margins(left), self.margins(right)
        n_flips, n = int((np.sign(first) != np.sign(second)).sum()), len(first)
        flips = (
            f"{n_flips} of {n} comparisons flip"
            if n
            else "no prompt with both labels in the sample"
        )
        return n_flips, n, f"on {len(left)} {self.unit}; {flips}"


def check_finite(sample: Sample) -> Finding:
    """No score is NaN or infinite."""
    bad = ~(np.isfinite(sample.alone) & np.isfinite(sample.together))
    if not bad.any():
        return Finding("pass", f"{len(bad)} of {len(bad)} scores are finite")
    first = sample.rows.iloc[int(bad.argmax())]
    columns = [
        column
        for column in (*KEY[1:], "chosen_slot", "rejected_slot")
        if column in first
    ]
    key = ", ".join(f"{column} {first[column]}" for column in columns)
    remedy = "score with dtype='float32'; if it stays, the weights themselves hold NaN: download them again"
    return Finding(
        "fail", f"{bad.sum()} of {len(bad)} scores are not finite, first: {key}", remedy
    )


def check_company(sample: Sample, tolerance: float) -> Finding:
    """Each text alone gets the score that it gets among others; `tolerance` in standard
    deviations.
    """
    distance = apart(sample.alone, sample.together)
    _, _, flips = sample.flips(sample.alone, sample.together)
    detail = f"at most {distance:.1g} standard deviations apart {flips}"
    remedy = (
        "score with dtype='float32'"
        if tolerance > 1e-3
        else "set budget= to the longest text's tokens"
    )
    return Finding(
        grade(distance <= tolerance, distance <= 10 * tolerance), detail, remedy
    )


def check_precision(sample: Sample, exact: Floats, dtype: str) -> Finding:
    """How far half precision is from float32, and how many comparisons it turns."""
    distance = apart(exact, sample.together)
    n_flips, n, flips = sample.flips(exact, sample.together)
    status = grade(
        n_flips == 0 and distance <= 0.2, n_flips <= max(0.1 * n, 1) and distance <= 1
    )
    return Finding(
        status,
        f"{dtype} is at most {distance:.2g} standard deviations from float32 {flips}",
    )


def check_position(forth: Floats, back: Floats) -> Finding:
    """How many winners change when the answers change places.

    Up to a tenth passes. From one half on the place decides more often than the answers
    do: that fails.
    """
    n, n_changed = len(forth), int((np.sign(forth) != -np.sign(back)).sum())
    first_wins = float(np.mean(np.concatenate([forth, back]) > 0))
    description = f"comparisons ({n_changed / n:.0%}) change their winner with the order of the answers; the one "
    description += f"written first wins {first_wins:.0%}"
    return check_rate(n_changed, n, description, warn=0.1, fail=0.5)


def check_saturation(sample: Sample, keys: Sequence[str]) -> Finding:
    """Different texts get different scores."""
    scores = pd.Series(sample.together).groupby(list(keys), sort=False).first()
    n_distinct, n = scores.nunique(), len(scores)
    n_tied = int((sample.margins(sample.together) == 0).sum())
    detail = f"{n_distinct} distinct scores for {n} distinct {sample.unit}, {n_tied} tied comparisons"
    remedy = "score with dtype='float32'; read raw logits, never a sigmoid; count ties with the results"
    return Finding(grade(n_distinct == n, n_distinct > n // 2), detail, remedy)
