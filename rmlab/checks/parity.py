"""`rmlab.parity`: two runs that should give the same scores, how far apart they are,
and why.

A misreading of the texts is named only where it was reproduced: texts scored here in
that way get the other run's scores.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import expit

from rmlab import metrics, scorers, scoring, tables
from rmlab.checks.findings import check_rate, findings_table
from rmlab.inference.forward import Batch
from rmlab.scorers import Classifier
from rmlab.scorers.base import Floats, PlainScorer, Scorer, fill
from rmlab.scorers.encoder import EncodeOptions
from rmlab.scorers.reads import Read
from rmlab.servers import Finding, Remote, grade
from rmlab.tables import KEY, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.inference.template import Encoded

Run: TypeAlias = pd.DataFrame | str | Path | PlainScorer | Scorer
"""A scores table of one model, or what `rmlab.score` takes as a model."""

Ids = list[np.ndarray]
Tokenizers = Sequence["PreTrainedTokenizerBase"]

EXACT = 1e-3
"""Standard deviations within which two runs of one model on the same tokens agree in
float32, on any server.
"""

HALF = 0.05
"""The same where one of them wrote its scores in half precision."""

_MIN_TEXTS = 4
_MAX_PADS = 256  # behind a text
# texts that each misreading is tried on: half of them those with the largest errors
_TRIED = 16

_RAW_SCORES = "ask for raw scores: vLLM use_activation=false, TEI raw_scores=true; or serve with another program"
_REMEDIES = {
    "sigmoid": _RAW_SCORES,
    "softmax": _RAW_SCORES,
    "half precision": "compute the head, or the whole model, in float32",
    "scale": "look for a reward mean and deviation, or a temperature, in the server's options",
    "order": "join scores to texts by key, and ask a server one text at a time",
    "double bos": "send token ids, or text with add_special_tokens=false: the template writes it already",
    "missing bos": "let the template or the tokenizer write it",
    "eos": "end texts as the template does",
    "padding": "read the last token of the text; give the pad token an id of its own",
    "truncation": "raise the server's length limit, or cut alike on both sides (max_length= and truncate= here)",
    "template": "render the model's own template; servers take one as chat_template, or token ids",
    "tokenizer": "start the server with the tokenizer that was saved with the model, or send token ids",
}


def parity(
    a: Run,
    b: Run,
    responses: pd.DataFrame | None = None,
    *,
    model: str | Path | Classifier | None = None,
    tokenizers: "Sequence[PreTrainedTokenizerBase]" = (),
) -> pd.DataFrame:
    """Compare two runs of what should be one reward model, and look for the cause of a
    difference.

    Parameters
    ----------
    a, b : DataFrame or scorer
        The run that is thought to be right, and the other one: a scores table of one
        model, or a scorer, which scores `responses` first.
    responses : DataFrame, optional
        The texts. With them and the reward model, misreadings of the texts are tried as
        causes.
    model : str, Path or Classifier, optional
        The reward model on this machine; not needed where `a` or `b` is one.
    tokenizers : sequence of transformers tokenizers
        Further tokenizers that may have been used.

    Returns
    -------
    DataFrame
        One row per check, with columns check, status (pass < warn < fail), value,
        found, remedy: `texts` (how many both have), `error` (the largest, in standard
        deviations of `a`), `line` (slope of b on a), `flips` (comparisons of a chosen
        with a rejected answer that come out otherwise), `near_ties` (comparisons nearer
        to a tie than the errors are large) and `cause` (what it leaves unexplained, in
        standard deviations). `found` of `cause` begins with none, unknown, a cause that
        the numbers show (sigmoid, softmax, half precision, scale, order), or one that
        was reproduced by reading the texts in that way (double bos, missing bos, eos,
        padding, truncation, template, tokenizer).

    Raises
    ------
    DataError
        If a table has several models or missing scores, or if fewer than four texts are
        in both.
    """
    left, right = (_score_run(run, responses) for run in (a, b))
    items = parity_items(left, right)
    if isinstance(model, str | Path):
        model = scorers.classifier(model, dtype="float32")
    local = next((run for run in (model, a, b) if isinstance(run, Classifier)), None)
    n = len(items)
    detail = f"{n} texts in both; {len(left) - n} only in a, {len(right) - n} only in b"
    texts = Finding(
        grade(len(left) == len(right) == n, True),
        detail,
        "score the same responses in both",
        n,
    )
    cause = _find_cause(items, responses, local, tokenizers)
    findings = (
        {"texts": texts}
        | _check_scores(items)
        | _check_comparisons(items)
        | {"cause": cause}
    )
    return findings_table(findings.items())


def parity_items(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """List the texts that two scores tables have in common.

    Parameters
    ----------
    a, b : DataFrame
        Scores of one model.

    Returns
    -------
    DataFrame
        One row per text: its key, score_a, score_b, and error, (b - a) in standard
        deviations of a; missing where a gives every text the same score.

    Raises
    ------
    DataError
        If a table has several models or missing scores, or if fewer than four texts are
        in both.
    """
    for name, table in zip("ab", (a, b), strict=True):
        models = tables.check_scores(table)["model"].unique()
        if len(models) != 1:
            raise DataError(
                f"{name}: has the models {sorted(models)}; give the rows of one model to compare"
            )
    columns = [*KEY, "score"]
    items = tables.check_scores(a)[columns].merge(
        tables.check_scores(b)[columns], on=KEY, suffixes=("_a", "_b")
    )
    if len(items) < _MIN_TEXTS:
        raise DataError(
            f"a and b: {len(items)} texts in common; score the same responses in both, at least 4"
        )
    first, second = _scores(items)
    return items.assign(
        error=(second - first) / (np.nan if is_constant(first) else first.std())
    )


def _score_run(run: Run, responses: pd.DataFrame | None) -> pd.DataFrame:
    if isinstance(run, pd.DataFrame):
        return run
    if responses is None:
        raise DataError(
            "responses: a scorer needs texts to score; pass the responses, or two scores tables"
        )
    # A server that has changed since it was accepted is compared all the same: here its
    # differences are looked for.
    return scoring.score(
        responses, replace(run, known=None) if isinstance(run, Remote) else run
    )


def _scores(items: pd.DataFrame) -> tuple[Floats, Floats]:
    return items["score_a"].to_numpy(np.float64), items["score_b"].to_numpy(np.float64)


def is_constant(scores: Floats) -> bool:
    """Whether every text has the same score, up to rounding."""
    return bool(np.ptp(scores) <= 1e-9 * max(float(np.abs(scores).max()), 1e-12))


def _check_scores(items: pd.DataFrame) -> dict[str, Finding]:
    """The rows error and line."""
    first, second = _scores(items)
    if is_constant(first) or is_constant(second):
        detail = f"{'a' if is_constant(first) else 'b'} gives every text the same score: errors have no scale"
        return dict.fromkeys(
            ("error", "line"), Finding("fail", detail, "see the row cause")
        )
    size = items["error"].abs()
    detail = f"mean {size.mean():.2g}, median {size.median():.2g}, 95 % below {size.quantile(0.95):.2g}, largest "
    detail += f"{size.max():.2g} standard deviations of a"
    status = grade(size.max() <= EXACT, size.max() <= 0.1)
    error = Finding(status, detail, "see the rows flips and cause", size.max())
    slope, offset, residual = fit_line(first, second)
    detail = f"slope {slope:.4g}, offset {offset:.3g}; points lie up to {residual:.2g} standard deviations off the line"
    is_same = abs(slope - 1) <= 0.01 and abs(offset) <= 0.01 * first.std()
    return {
        "error": error,
        "line": Finding(
            grade(is_same, True),
            detail,
            "margins and thresholds do not carry over",
            slope,
        ),
    }


def fit_line(a: Floats, b: Floats) -> tuple[float, float, float]:
    """Slope and offset of b on a by least squares, and the largest residual in standard
    deviations of b.
    """
    slope, offset = np.polyfit(a, b, 1)
    return (
        float(slope),
        float(offset),
        float(np.abs(b - slope * a - offset).max() / b.std()),
    )


def _check_comparisons(items: pd.DataFrame) -> dict[str, Finding]:
    """The rows flips and near_ties."""
    comparable = items[items.groupby(tables.PROMPT)["label"].transform("nunique") == 2]
    if comparable.empty:
        detail = "no prompt has both labels, so there are no comparisons"
        return dict.fromkeys(("flips", "near_ties"), Finding("pass", detail, value=0))
    before, after = (
        metrics.pairs(comparable[KEY].assign(model="x", score=scores))[
            "margin"
        ].to_numpy(np.float64)
        for scores in _scores(comparable)
    )
    n, high_change = len(before), float(np.quantile(np.abs(after - before), 0.95))
    n_ties = int(((after == 0) & (before != 0)).sum())
    n_flips, n_near = (
        int((np.sign(before) != np.sign(after)).sum()),
        int((np.abs(before) < high_change).sum()),
    )
    flips = f"comparisons ({n_flips / n:.1%}) come out otherwise; {n_ties} of them become ties"
    near = f"comparisons ({n_near / n:.1%}) have a margin below {high_change:.2g}, which 95 % of the changes are"
    is_changed = check_rate(n_flips, n, flips, warn=0, fail=0.01)
    return {
        "flips": is_changed._replace(
            remedy="do not compare accuracies of the two runs"
        ),
        "near_ties": check_rate(n_near, n, near, warn=0.05, fail=np.inf),
    }


def _find_cause(
    items: pd.DataFrame,
    responses: pd.DataFrame | None,
    model: Classifier | None,
    tokenizers: Tokenizers,
) -> Finding:
    """The row cause: the numbers alone first, then misreadings of the texts."""
    first, second = _scores(items)
    error = float(items["error"].abs().max())
    if is_constant(first) and is_constant(second):
        return Finding(
            "fail", "unknown: both runs give every text the same score", _RAW_SCORES
        )
    if error <= EXACT:
        return Finding("pass", "none: the runs agree", value=error)
    candidates = [*_numeric_causes(first, second), *_numeric_causes(second, first)]
    if candidates:
        return min(candidates, key=lambda cause: cause.value)
    if model is None or responses is None:
        remedy = "pass responses= and the reward model (model=folder): the texts are then read in other ways"
        return Finding("fail", "unknown: the numbers alone do not show it", remedy)
    # Positions that the number of tokens tells.
    if set(model.readout.reads) <= {Read.LAST, Read.FIRST, Read.MEAN}:
        worst_first = items.reindex(
            items["error"].abs().sort_values(ascending=False).index
        )
        # The largest errors, and some texts with small ones: a cause has to explain
        # both.
        large, small = worst_first.iloc[: _TRIED // 2], worst_first.iloc[_TRIED // 2 :]
        sample = pd.concat([large, small.iloc[:: max(1, len(small) // (_TRIED // 2))]])
        rows = sample.merge(
            tables.check_responses(responses)[[*KEY, "prompt", "response"]], on=KEY
        )
        if (cause := _misreading_cause(model, rows, tokenizers)) is not None:
            return cause
    detail, remedy = (
        "unknown: no known way of reading the texts explains it",
        "compare the weights, and token ids",
    )
    if error <= 0.2:
        return Finding(
            "warn",
            f"{detail}; half precision of a whole model is this large",
            "run both in float32",
        )
    return Finding("fail", detail, remedy)


def _name_cause(name: str, detail: str, residual: float) -> Finding:
    """Why two runs differ; `residual`: the largest difference that it leaves, in
    standard deviations.
    """
    return Finding("fail", f"{name}: {detail}", _REMEDIES[name], residual)


def _numeric_causes(a: Floats, b: Floats) -> Iterator[Finding]:
    """Causes that turn the numbers of `a` into those of `b`; `a` is thought to be
    right.
    """
    if is_constant(a):
        return
    if is_constant(b):
        detail = f"every text has the same score, {b[0]:.6g}: a softmax over one label gives 1 for everything"
        yield _name_cause("softmax", detail, 0.0)
        return
    difference = float(np.abs(a - b).max() / a.std())
    distance = float(np.abs(b - expit(a)).max())
    if distance <= 2e-3 and b.min() >= 0 and b.max() <= 1:
        yield _name_cause(
            "sigmoid",
            f"the sigmoid of the raw scores, to {distance:.1g}",
            distance / b.std(),
        )
    kind = half_precision(b)
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(kind or "", 0.0)
    if (
        kind
        and half_precision(a) is None
        and (np.abs(b - a) <= 1.01 * unit * np.abs(a) + 1e-7).all()
    ):
        yield _half_cause(kind, difference)
    slope, offset, residual = fit_line(a, b)
    if residual <= EXACT and (abs(slope - 1) > 0.01 or abs(offset) > 0.01 * a.std()):
        yield _name_cause(
            "scale",
            f"b = {slope:.4g} a {offset:+.4g}: the scores were rescaled",
            residual,
        )
    residual = float(np.abs(np.sort(a) - np.sort(b)).max() / a.std())
    # Sorting brings noisy runs nearer to each other, too, but never a hundred times
    # nearer.
    if residual <= min(EXACT, difference / 100):
        yield _name_cause(
            "order",
            "both runs have the same scores, in another order of the texts",
            residual,
        )


def half_precision(scores: Floats) -> str | None:
    """The half-precision type that writes all the scores exactly, None where there is
    none.

    >>> half_precision(np.array([0.5, 1.0078125, -3.25, 7.0])), half_precision(np.array([0.5, 0.1, 0.2, 0.3]))
    ('bfloat16', None)
    """
    single = scores.astype(np.float32)
    # Whole numbers and quarters are exact in every type: they tell nothing.
    if len(scores) < 4 or (single * 4 == np.round(single * 4)).all():
        return None
    if (single.view(np.uint32) & 0xFFFF == 0).all():
        return "bfloat16"
    with np.errstate(over="ignore"):
        return (
            "float16"
            if (single.astype(np.float16).astype(np.float32) == single).all()
            else None
        )


def _half_cause(kind: str, residual: float) -> Finding:
    detail = f"all scores are {kind} numbers: the head, or the whole model, was computed in half precision"
    return _name_cause("half precision", detail, residual)


def _misreading_cause(
    model: Classifier, rows: pd.DataFrame, tokenizers: Tokenizers
) -> Finding | None:
    """The first misreading of `rows` that turns one run into the other; None where the
    model gives neither run.

    `rows`: texts with score_a and score_b, those that differ most first. `tokenizers`:
    further ones that may have been used.
    """
    prepared = model.prepare(rows["prompt"].tolist(), rows["response"].tolist())
    ids = model.places(prepared, np.arange(len(rows)))[0]
    scores = _score_ids(model, prepared, ids)
    scale = max(float(scores.std()), 1e-12)
    tolerance = HALF if any(half_precision(run) for run in _scores(rows)) else EXACT
    # The tolerance for half precision may hold for both runs: the nearer one reads the
    # texts as they are.
    right, wrong = sorted(
        _scores(rows), key=lambda run: float(np.abs(scores - run).max())
    )
    if np.abs(scores - right).max() > tolerance * scale:
        return None
    gaps = np.abs(scores - wrong) / scale
    # A misreading that leaves most of the difference explains nothing, however small
    # the difference is.
    tolerance = min(tolerance, float(gaps.max()) / 2)
    for name, detail, misread in _misreadings(
        model, rows, ids, gaps > tolerance, tokenizers
    ):
        if all(map(len, misread)) and not all(map(np.array_equal, misread, ids)):
            residual = float(
                np.abs(_score_ids(model, prepared, misread) - wrong).max() / scale
            )
            if residual <= tolerance:
                return _name_cause(name, detail, residual)
    kind = half_precision(wrong)
    if kind is not None and gaps.max() <= HALF:
        return _half_cause(kind, float(gaps.max()))
    # A server may read the end of a padded batch.
    if model.tokenizer.pad_token_id is not None and model.readout.reads == (Read.LAST,):
        numbers = np.flatnonzero(gaps > tolerance)
        residual = (
            max(
                float(np.abs(_score_pads(model, ids[text]) - wrong[text]).min())
                for text in numbers
            )
            / scale
        )
        if residual <= tolerance:
            detail = (
                f"the head is read behind the end of {len(numbers)} of {len(ids)} texts"
            )
            return _name_cause("padding", detail, residual)
    return None


def _score_pads(model: Classifier, ids: np.ndarray) -> Floats:
    """The scores at a text's end and at some pad tokens behind it, which see each other
    or are masked.
    """
    import torch

    n_pads = min(_MAX_PADS, (model.encoder.longest or np.inf) - len(ids))
    padded = np.append(ids, np.full(int(n_pads), model.tokenizer.pad_token_id))
    backbone = model.backbone
    tokens = torch.tensor(padded[None], dtype=torch.int64, device=backbone.device)
    mask, parts = torch.ones_like(tokens), []
    with backbone.exclusive_pass(tokens.shape[1]):
        for is_seen in (1, 0):
            mask[:, len(ids) :] = is_seen
            states = backbone.forward(input_ids=tokens, attention_mask=mask)
            parts.append(states[0, len(ids) - 1 :])
    rows = torch.cat(parts).float()
    return model.read_head(
        Batch(np.arange(len(rows)), rows, [*np.arange(len(rows))[:, None]])
    )


def _score_ids(model: Classifier, prepared: "Encoded", ids: Ids) -> Floats:
    """Scores of token ids in place of those of the prepared texts."""
    misread = replace(
        prepared,
        ids=model.encoder.append_end([np.asarray(tokens, np.int32) for tokens in ids]),
    )
    return fill(model.forward(misread, np.arange(len(ids))), len(ids))


def _misreadings(
    model: Classifier,
    rows: pd.DataFrame,
    ids: Ids,
    is_different: np.ndarray,
    tokenizers: Tokenizers,
) -> Iterator[tuple[str, str, Ids]]:
    """Cause, detail and token ids of each wrong way to read the texts, the simplest
    first.
    """
    from rmlab.inference.template import FORMATS, encode
    from rmlab.toy.models import CHAT_TEMPLATES

    tokenizer = model.tokenizer
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    if bos is not None:
        yield (
            "double bos",
            f"{tokenizer.bos_token} stands twice before every text",
            [np.r_[bos, text] for text in ids],
        )
        without = [text[int(text[0] == bos) :] for text in ids]
        yield (
            "missing bos",
            f"{tokenizer.bos_token} is not written before the texts",
            without,
        )
    if eos is not None:
        without = [text[: len(text) - int(text[-1] == eos)] for text in ids]
        # An end token that is the pad token is there and not read.
        name = "padding" if eos == tokenizer.pad_token_id else "eos"
        yield (
            name,
            f"{tokenizer.eos_token} is missing at the end, or taken for padding",
            without,
        )
        yield (
            "eos",
            f"{tokenizer.eos_token} is added at the end",
            [np.r_[text, eos] for text in ids],
        )
    lengths = np.array([len(text) for text in ids])
    for window in (2**n for n in range(16, 4, -1)):
        if (
            lengths[~is_different].max(initial=0)
            <= window
            < lengths[is_different].min()
        ):
            behind_first = [np.r_[text[:1], text[1:][1 - window :]] for text in ids]
            cuts = {
                "end": [text[:window] for text in ids],
                "beginning": [text[-window:] for text in ids],
            }
            for place, misread in (
                cuts | {"beginning, behind the first token": behind_first}
            ).items():
                yield (
                    "truncation",
                    f"texts longer than {window} tokens are cut at the {place}",
                    misread,
                )
    trials = [
        (
            "template",
            f"the texts are written as in {name!r}",
            tokenizer,
            EncodeOptions(template=template, eos=eos),
        )
        for name, template in (FORMATS | CHAT_TEMPLATES).items()
        for eos in (None, True)
    ]
    own = EncodeOptions(template=tokenizer.chat_template)
    trials += [
        ("tokenizer", f"that of {further.name_or_path}", further, own)
        for further in tokenizers
    ]
    for name, detail, trial_tokenizer, changed in trials:
        options = model.encoder.options | changed
        try:
            texts = encode(
                trial_tokenizer,
                rows["prompt"].tolist(),
                rows["response"].tolist(),
                **options,
            )
        except DataError:  # these texts cannot be written so
            continue
        yield name, detail, texts.ids
