"""The playground: type a prompt and answers, restyle one of them, and watch the reward move."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.scorers.base import PlainScorer
from rmlab.styles.transforms import TRANSFORMS
from rmlab.text import escape_html as escape
from rmlab.widgets import charts
from rmlab.widgets.access import access
from rmlab.widgets.debounce import Debounced
from rmlab.widgets.detail import numbers
from rmlab.widgets.long_texts import LongTexts
from rmlab.widgets.render import markdown
from rmlab.widgets.style_sliders import StyleSliders, restyled
from rmlab.widgets.trial import Trial

if TYPE_CHECKING:
    import ipywidgets as w
    from traitlets import Bunch

__all__ = ["Playground", "playground"]

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
    A model from `rmlab.classifier` or `rmlab.implicit_reward` has a choice of what is cut from texts beyond its window.
    An error of the scorer is shown on the page, which lives on. From code: `set`, `frame`, `steps`, `try_on`.
    """
    if isinstance(answers, str) or len(answers) < 2:
        raise ValueError(f"answers: {answers!r}; give a list of two or more strings")
    if not callable(scorer):
        raise TypeError(f"scorer: {scorer!r} cannot be called; give a scorer such as rmlab.baselines.longest")
    return Playground(scorer, prompt, list(answers), responses)


class Playground:
    """What `playground` returns; shows itself as the last line of a cell."""

    def __init__(self, scorer: PlainScorer, prompt: str, answers: list[str], responses: pd.DataFrame | None) -> None:
        self._quiet = False
        self._later = Debounced(self._update)
        self._boxes: list[w.Textarea] = []
        self.lines: list[w.HTML] = []
        self._build(scorer, prompt, responses)
        for answer in answers:
            self._add(answer)
        self._update()

    @property
    def prompt(self) -> str:
        """What stands in the prompt box."""
        return str(self.prompt_box.value)

    @property
    def answers(self) -> list[str]:
        """What stands in the answer boxes."""
        return [str(box.value) for box in self._boxes]

    @property
    def steps(self) -> dict[str, int]:
        """How far each change of style is moved, for those that are."""
        return self._style.steps

    @property
    def restyled(self) -> str:
        """The answer that is being restyled, after the changes."""
        return self._styled(self.steps)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per answer, and one for the restyled one: name, score, answer. Missing scores: an empty box."""
        texts = [*self.answers, self.restyled]
        names = [*(f"answer {k + 1}" for k in range(len(self._boxes))), f"answer {self._which + 1} restyled"]
        return pd.DataFrame({"name": names, "score": self._score(texts), "answer": texts})

    @property
    def line(self) -> pd.DataFrame:
        """The line of the chart: step and reward of the change that was moved last, the others as they stand."""
        moved = self._style.last
        wanted = range(TRANSFORMS[moved].steps + 1)
        texts = [self._styled(self.steps | {moved: step}) for step in wanted]
        return pd.DataFrame({"change": moved, "step": list(wanted), "score": self._score(texts)})

    def set(
        self,
        *,
        prompt: str | None = None,
        answers: Sequence[str] | None = None,
        restyle: int | None = None,
        **steps: int,
    ) -> "Playground":
        """Set the prompt, the answers, the number (from 0) of the answer to restyle, or steps such as bold=3."""
        self._style.check(steps)
        boxes = max(len(self._boxes), len(answers or []))
        if restyle is not None and restyle not in range(boxes):
            raise ValueError(f"restyle={restyle!r}; allowed: 0 to {boxes - 1}, the number of an answer")
        self._quiet = True
        if prompt is not None:
            self.prompt_box.value = prompt
        for k, answer in enumerate(answers or []):
            if k < len(self._boxes):
                self._boxes[k].value = answer
            else:
                self._add(answer)
        self._style.set(steps, which=restyle)
        self._quiet = False
        self._later.cancel()
        self._update()
        return self

    def try_on(self, n: int = 50) -> pd.DataFrame:
        """Make the same changes to answers of `n` prompts: one row, the columns of `rmlab.probe`; shown on the page."""
        if n < 1:
            raise ValueError(f"n={n!r}; give the number of prompts, 1 or more")
        last = self._style.last
        return self.trial.run(self.long_texts.scorer, self.steps or {last: TRANSFORMS[last].steps}, n)

    def __repr__(self) -> str:
        moved = ", ".join(f"{name} {step}" for name, step in self.steps.items()) or "nothing moved"
        return f"playground: {len(self._boxes)} answers, {moved}"

    def _repr_mimebundle_(self, **options: object) -> dict[str, object]:
        bundle = self.widget._repr_mimebundle_(**options)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**data, "text/plain": repr(self)}

    def _build(self, scorer: PlainScorer, prompt: str, responses: pd.DataFrame | None) -> None:
        import ipywidgets as w

        self.prompt_box = w.Textarea(prompt, description="Prompt", rows=2)
        self.prompt_box.observe(self._typed, "value")
        self._grid = w.Box()
        self._grid.add_class("rmlab-answers")
        more = w.Button(description="Add an answer")
        more.on_click(lambda _: self._add(""))
        self._style = StyleSliders(self._later)
        self.long_texts = LongTexts(scorer, self._later)
        self.trial = Trial(responses, self._try)
        self.preview, self.chart, self.problem = w.HTML(), w.HTML(), w.HTML()
        side = w.VBox([*self._style.widgets, self.long_texts.widget])
        shown = w.VBox([self.preview, self.chart, *self.trial.widgets])
        columns = w.Box([side, shown])
        for part, name in ((side, "rmlab-side"), (shown, "rmlab-main"), (columns, "rmlab-columns")):
            part.add_class(name)
        self.widget = w.VBox([self.prompt_box, self._grid, more, self.problem, columns, access()])
        self.widget.add_class("rmlab")
        self.widget.add_class("rmlab-play")

    def _add(self, answer: str) -> None:
        import ipywidgets as w

        box = w.Textarea(answer, description=f"Answer {len(self._boxes) + 1}", rows=7)
        line = w.HTML()
        box.observe(self._typed, "value")
        self._boxes.append(box)
        self.lines.append(line)
        self._grid.children = (*self._grid.children, w.VBox([box, line]))
        self._style.offer(len(self._boxes))

    def _typed(self, change: "Bunch") -> None:
        if not self._quiet:
            self._later()

    @property
    def _which(self) -> int:
        return int(self._style.which.value)

    def _styled(self, steps: dict[str, int]) -> str:
        return restyled(self.answers[self._which], steps)

    def _score(self, texts: list[str]) -> list[float]:
        """Scores; an empty text has none."""
        there = [k for k, text in enumerate(texts) if text.strip()]
        scores = np.full(len(texts), np.nan)
        if there:
            given = np.asarray(self.long_texts.scorer([self.prompt] * len(there), [texts[k] for k in there]), float)
            if given.shape != (len(there),):
                raise ValueError(f"the scorer gave an array of shape {given.shape} for {len(there)} texts")
            scores[there] = given
        return [float(score) for score in scores]

    def _update(self) -> None:
        try:
            frame, line = self.frame, self.line
        except Exception as error:  # somebody else's scorer: the page lives on and says what happened
            self._clear()
            self.problem.value = self._said(error)
            return
        self.problem.value = ""
        scores = frame["score"].to_numpy()
        best = np.nanmax(scores[:-1]) if np.isfinite(scores[:-1]).any() else np.nan
        for score, said, shown in zip(scores, numbers(scores), self.lines, strict=False):
            mark = " rmlab-best" if score == best else ""
            shown.value = f'<span class="rmlab-scoreline{mark}" role="status">{said}</span>'
        self._show_restyled(frame)
        self._show_line(line)

    def _show_line(self, line: pd.DataFrame) -> None:
        self.chart.value = ""
        if np.isfinite(line["score"]).all():
            moved = self._style.last
            name, now = moved.replace("_", " "), int(self._style.sliders[moved].value)
            chart = charts.line(list(line["score"]), now=now, title=f"reward against {name}", across=f"steps of {name}")
            self.chart.value = f"<h4>Reward against {escape(name)}</h4>{chart}"

    def _show_restyled(self, frame: pd.DataFrame) -> None:
        if not self.steps:
            self.preview.value = ""
            return
        before, after = numbers(frame["score"].iloc[[self._which, -1]])
        head = f"<h4>{escape(frame['name'].iloc[-1]).capitalize()}: {before} → {after}</h4>"
        body = f'<div class="rmlab-text rmlab-prompt" dir="auto" tabindex="0">{markdown(self.restyled)}</div>'
        self.preview.value = head + body

    def _clear(self) -> None:
        """Take away every number of before: none of them is about what now stands in the boxes."""
        for shown in (*self.lines, self.preview, self.chart):
            shown.value = ""
        self.trial.clear()

    def _try(self, n: int) -> None:
        self.trial.wait()
        try:
            self.try_on(n)
        except Exception as error:
            self.trial.result.value = self._said(error)

    def _said(self, error: Exception) -> str:
        text = f"The scorer raised {type(error).__name__}: {self.long_texts.advise(str(error))}"
        return f'<div class="rmlab-problem" role="alert">{escape(text[:2000])}</div>'
