"""The playground: type a prompt and answers, restyle one of them, and watch the reward move."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rmlab.escapes import html as escape
from rmlab.scorers.protocol import PlainScorer, is_plain
from rmlab.styles.transforms import TRANSFORMS
from rmlab.widgets import charts
from rmlab.widgets.choices import choices
from rmlab.widgets.debounce import Debounced
from rmlab.widgets.detail import number
from rmlab.widgets.render import markdown

__all__ = ["Playground", "playground"]

_STEPS = [name for name, made in TRANSFORMS.items() if not made.null]
_PROMPT = "Why is the sky blue?"
_ANSWERS = (
    "Air scatters blue light more strongly than red light. Blue light therefore reaches us from all over the sky. "
    "At sunset the light has a longer way through the air. Then mostly red is left.",
    "The sky mirrors the sea. The sea is blue because water absorbs red light. Far from the sea the sky is paler.",
)


def playground(
    scorer: PlainScorer,
    *,
    prompt: str = _PROMPT,
    answers: Sequence[str] = _ANSWERS,
    responses: pd.DataFrame | None = None,
) -> "Playground":
    """Type and score: a widget for JupyterLab.

    `scorer`: anything that takes (prompts, responses) and gives one number each. `prompt`, `answers`: what stands there
    at first; two answers or more. `responses`: the sample for "Try on more prompts" (default: the bundled benchmark).
    An error of the scorer is shown on the page, which lives on. From code: `set`, `frame`, `steps`, `try_on`.
    """
    if isinstance(answers, str) or len(answers) < 2:
        raise ValueError(f"answers: {answers!r}; give a list of two or more strings")
    if not is_plain(scorer):
        raise TypeError(f"scorer: {scorer!r} cannot be called; give a scorer such as rmlab.baselines.longest")
    return Playground(scorer, prompt, list(answers), responses)


class Playground:
    """What `playground` returns; shows itself as the last line of a cell."""

    def __init__(self, scorer: PlainScorer, prompt: str, answers: list[str], responses: pd.DataFrame | None) -> None:
        self._scorer = scorer
        self._responses = responses
        self._quiet = False
        self._moved = "bold"
        self._later = Debounced(self._update)
        self._boxes: list[Any] = []
        self._lines: list[Any] = []
        self._build(prompt)
        for answer in answers:
            self._add(answer)
        self._update()

    @property
    def prompt(self) -> str:
        """What stands in the prompt box."""
        return str(self._prompt.value)

    @property
    def answers(self) -> list[str]:
        """What stands in the answer boxes."""
        return [str(box.value) for box in self._boxes]

    @property
    def steps(self) -> dict[str, int]:
        """How far each change of style is moved, for those that are."""
        return {name: slider.value for name, slider in self._sliders.items() if slider.value}

    @property
    def restyled(self) -> str:
        """The answer that is being restyled, after the changes."""
        return self._styled(self.steps)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per answer, and one for the restyled one: name, score, answer. Missing scores: an empty box."""
        texts = [*self.answers, self.restyled]
        names = [*(f"answer {k + 1}" for k in range(len(self._boxes))), f"answer {self._which.value + 1} restyled"]
        return pd.DataFrame({"name": names, "score": self._score(texts), "answer": texts})

    @property
    def line(self) -> pd.DataFrame:
        """The line of the chart: step and reward of the change that was moved last, the others as they stand."""
        wanted = range(TRANSFORMS[self._moved].steps + 1)
        texts = [self._styled(self.steps | {self._moved: step}) for step in wanted]
        return pd.DataFrame({"change": self._moved, "step": list(wanted), "score": self._score(texts)})

    def set(
        self,
        *,
        prompt: str | None = None,
        answers: Sequence[str] | None = None,
        restyle: int | None = None,
        **steps: int,
    ) -> "Playground":
        """Set the prompt, the answers, the number (from 0) of the answer to restyle, or steps such as bold=3."""
        strange = [name for name in steps if name not in self._sliders]
        if strange:
            raise ValueError(f"{strange[0]}: not a change of style; allowed: {', '.join(self._sliders)}")
        for name, step in steps.items():
            if step not in range(TRANSFORMS[name].steps + 1):
                raise ValueError(f"{name}={step!r}; allowed: 0 to {TRANSFORMS[name].steps}")
        boxes = max(len(self._boxes), len(answers or []))
        if restyle is not None and restyle not in range(boxes):
            raise ValueError(f"restyle={restyle!r}; allowed: 0 to {boxes - 1}, the number of an answer")
        self._quiet = True
        if prompt is not None:
            self._prompt.value = prompt
        for k, answer in enumerate(answers or []):
            if k < len(self._boxes):
                self._boxes[k].value = answer
            else:
                self._add(answer)
        if restyle is not None:
            self._which.value = restyle
        for name, step in steps.items():
            self._sliders[name].value = step
            self._moved = name
        self._quiet = False
        self._later.cancel()
        self._update()
        return self

    def try_on(self, n: int = 50) -> pd.DataFrame:
        """Make the same changes to answers of `n` prompts: one row, the columns of `rmlab.probe`; shown on the page."""
        from rmlab.bias.probe import probe, probe_changes

        if n < 1:
            raise ValueError(f"n={n!r}; give the number of prompts, 1 or more")
        steps = self.steps or {self._moved: TRANSFORMS[self._moved].steps}

        def restyle(text: str) -> str:
            return _apply(text, steps)

        sample = _sample(self._some_responses(), n)
        restyle.__name__ = " + ".join(f"{name} {step}" for name, step in steps.items())
        changes = probe_changes(sample, self._scorer, [restyle])
        table = probe(sample, self._scorer, [restyle], by="transform")
        self._show_try(table.iloc[0], changes["change"].dropna().to_numpy())
        return table

    def __repr__(self) -> str:
        moved = ", ".join(f"{name} {step}" for name, step in self.steps.items()) or "nothing moved"
        return f"playground: {len(self._boxes)} answers, {moved}"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = self.widget._repr_mimebundle_(**options)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**data, "text/plain": repr(self)}

    def _build(self, prompt: str) -> None:
        import ipywidgets as w

        self._prompt = w.Textarea(prompt, description="Prompt", rows=2)
        self._prompt.observe(self._typed, "value")
        self._grid = w.Box()
        self._grid.add_class("rmlab-answers")
        more = w.Button(description="Add an answer")
        more.on_click(lambda _: self._add(""))
        self._which = w.Dropdown(options=[], description="Restyle")
        self._which.observe(self._typed, "value")
        self._sliders = {
            name: w.IntSlider(0, 0, TRANSFORMS[name].steps, description=name.replace("_", " ").capitalize())
            for name in _STEPS
        }
        for name, slider in self._sliders.items():
            slider.observe(lambda change, name=name: self._slid(name), "value")
        self._preview, self._chart, self._problem, self._tried = w.HTML(), w.HTML(), w.HTML(), w.HTML()
        self._n = w.BoundedIntText(20, 2, 5000, description="Prompts")
        run = w.Button(description="Try on more prompts")
        run.on_click(lambda _: self._try())
        sliders = w.VBox([self._which, *self._sliders.values()])
        trial = w.HBox([self._n, run])
        trial.add_class("rmlab-try")
        shown = w.VBox([self._preview, self._chart, trial, self._tried])
        columns = w.Box([sliders, shown])
        for part, name in ((sliders, "rmlab-side"), (shown, "rmlab-main"), (columns, "rmlab-columns")):
            part.add_class(name)
        # The style sheet travels with the one widget that has one.
        sheet = choices("style sheet")
        sheet.layout.display = "none"
        self.widget = w.VBox([sheet, self._prompt, self._grid, more, self._problem, columns])
        self.widget.add_class("rmlab")
        self.widget.add_class("rmlab-play")

    def _add(self, answer: str) -> None:
        import ipywidgets as w

        box = w.Textarea(answer, description=f"Answer {len(self._boxes) + 1}", rows=7)
        line = w.HTML()
        box.observe(self._typed, "value")
        self._boxes.append(box)
        self._lines.append(line)
        self._grid.children = (*self._grid.children, w.VBox([box, line]))
        chosen = self._which.value or 0
        quiet, self._quiet = self._quiet, True
        self._which.options = [(f"answer {k + 1}", k) for k in range(len(self._boxes))]
        self._which.value = chosen
        self._quiet = quiet

    def _typed(self, change: Any) -> None:
        if not self._quiet:
            self._later()

    def _slid(self, name: str) -> None:
        if not self._quiet:
            self._moved = name
            self._later()

    def _styled(self, steps: dict[str, int]) -> str:
        return _apply(self.answers[self._which.value], steps)

    def _score(self, texts: list[str]) -> list[float]:
        """Scores; an empty text has none."""
        there = [k for k, text in enumerate(texts) if text.strip()]
        scores = np.full(len(texts), np.nan)
        if there:
            given = np.asarray(self._scorer([self.prompt] * len(there), [texts[k] for k in there]), float)
            if given.shape != (len(there),):
                raise ValueError(f"the scorer gave an array of shape {given.shape} for {len(there)} texts")
            scores[there] = given
        return [float(score) for score in scores]

    def _update(self) -> None:
        try:
            frame, line = self.frame, self.line
        except Exception as error:  # somebody else's scorer: the page lives on and says what happened
            self._fail(error)
            return
        self._problem.value = ""
        scores = frame["score"].to_numpy()
        best = np.nanmax(scores[:-1]) if np.isfinite(scores[:-1]).any() else np.nan
        for score, shown in zip(scores, self._lines, strict=False):
            mark = " rmlab-best" if score == best else ""
            shown.value = f'<span class="rmlab-scoreline{mark}" role="status">{number(float(score))}</span>'
        self._show_restyled(frame)
        name = self._moved.replace("_", " ")
        self._chart.value = ""
        if np.isfinite(line["score"]).all():
            now = int(self._sliders[self._moved].value)
            chart = charts.line(list(line["score"]), now=now, title=f"reward against {name}", across=f"steps of {name}")
            self._chart.value = f"<h4>Reward against {escape(name)}</h4>{chart}"

    def _show_restyled(self, frame: pd.DataFrame) -> None:
        if not self.steps:
            self._preview.value = ""
            return
        before, after = frame["score"].iloc[self._which.value], frame["score"].iloc[-1]
        head = f"<h4>{escape(frame['name'].iloc[-1]).capitalize()}: {number(before)} → {number(after)}</h4>"
        self._preview.value = f'{head}<div class="rmlab-text rmlab-prompt" tabindex="0">{markdown(self.restyled)}</div>'

    def _try(self) -> None:
        self._tried.value = '<p class="rmlab-quiet" role="status">Scoring…</p>'
        try:
            self.try_on(self._n.value)
        except Exception as error:
            self._tried.value = ""
            self._fail(error)

    def _show_try(self, row: pd.Series, values: Any) -> None:
        if not len(values):
            self._tried.value = '<p class="rmlab-quiet">No answer of the sample has a place for this change.</p>'
            return
        known = np.isfinite(row["low"])
        interval = f", 95 % interval {number(row['low'])} to {number(row['high'])}" if known else f" ({row['note']})"
        said = f"mean change {number(row['change'])}{interval}; {row['n']} answers of {row['n_prompts']} prompts"
        chart = charts.histogram(
            values, mean=row["change"], low=row["low"], high=row["high"], title=said, across="change of the reward"
        )
        self._tried.value = f'<h4>{escape(row["transform"])}</h4><p role="status">{escape(said)}</p>{chart}'

    def _fail(self, error: Exception) -> None:
        text = f"The scorer raised {type(error).__name__}: {error}"
        self._problem.value = f'<div class="rmlab-problem" role="alert">{escape(text[:2000])}</div>'

    def _some_responses(self) -> pd.DataFrame:
        if self._responses is None:
            from rmlab.benchmarks import load

            self._responses = load("mini")
        return self._responses


def _apply(text: str, steps: dict[str, int]) -> str:
    """All changes, in their fixed order: first Markdown off, then the marks, then the words."""
    for name in _STEPS:
        if steps.get(name):
            text = TRANSFORMS[name](text, steps[name])
    return text


def _sample(responses: pd.DataFrame, n: int) -> pd.DataFrame:
    """All answers of `n` prompts, spread evenly over the benchmark."""
    group = responses.groupby(["benchmark", "domain", "id"], sort=False).ngroup().to_numpy()
    size = int(group.max()) + 1
    wanted = np.unique(np.linspace(0, size - 1, min(n, size)).round().astype(int))
    return responses[np.isin(group, wanted)].reset_index(drop=True)
