"""The playground: type a prompt and answers, restyle one, and watch the reward."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.benchmarks import load
from rmlab.bias.probe import probe
from rmlab.scorers.base import PlainScorer, Prompt, name_of
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.tables import PROMPT
from rmlab.text import escape_html
from rmlab.widgets.explorer import FOLDER, WidgetDisplay
from rmlab.widgets.markup import markdown_html

if TYPE_CHECKING:
    from ipywidgets import HBox, VBox, Widget
    from pandas.io.formats.style import Styler

_RIGHT = (
    "Air scatters blue light more strongly than red light. "
    "Blue light therefore reaches us from all over the sky."
)
_WRONG = (
    "The sky mirrors the sea. The sea is blue because water absorbs red light. "
    "Far from it the sky is paler."
)
_CHANGES = {
    name: transform for name, transform in TRANSFORMS.items() if not transform.null
}
# Translucent, so that numbers can be read on it in light and dark.
_BAR = "#5b9bd580"
_PAUSE = 0.3  # seconds without a key, after which a text is scored


def playground(
    scorer: PlainScorer,
    *,
    prompt: str = "Why is the sky blue?",
    answers: Sequence[str] = (_RIGHT, _WRONG),
    responses: pd.DataFrame | None = None,
) -> "Playground":
    """Type and score: a widget for JupyterLab.

    The scores follow when one stops typing or releases a slider.

    Parameters
    ----------
    scorer : callable
        Takes prompts and responses and returns one number each. Its errors are shown on
        the page, which lives on.
    prompt, answers : str, sequence of str
        The texts in the boxes at first; two answers or more.
    responses : DataFrame, optional
        The sample for "Try on more prompts"; default: the bundled benchmark.

    Returns
    -------
    Playground
        Shows itself as the last line of a cell. From code: `set`, `frame`, `steps`,
        `try_on`.
    """
    return Playground(scorer, prompt, answers, responses)


class Playground(WidgetDisplay):
    """The widget that `playground` returns.

    Attributes
    ----------
    controls : dict of str to widget
        The boxes "prompt", "answer 1" and so on, the menu "restyle", and a slider for
        each change of style.
    widget : Box
        Everything on the page.
    """

    def __init__(
        self,
        scorer: PlainScorer,
        prompt: str,
        answers: Sequence[str],
        sample: pd.DataFrame | None,
    ) -> None:
        import ipywidgets as w

        self._scorer = _Memory(scorer)
        self._sample = sample
        self._last_change = "bold"
        self._planned: asyncio.TimerHandle | None = None
        self._names = [f"answer {number + 1}" for number in range(len(answers))]
        self.result = w.HTML()
        self.trial = w.HTML()
        self.problem = w.HTML()
        self.controls = self._make_controls(prompt, answers)
        for name, control in self.controls.items():
            control.description = name.replace("_", " ").capitalize()
            control.observe(partial(self._update, name), "value")
        self.widget = self._lay_out()
        self._attempt(self._draw)

    def _make_controls(
        self, prompt: str, answers: Sequence[str]
    ) -> "dict[str, Widget]":
        """The boxes, the menu and the sliders by name."""
        import ipywidgets as w

        texts = {"prompt": prompt} | dict(zip(self._names, answers, strict=True))
        controls = {}
        for name, text in texts.items():
            controls[name] = w.Textarea(text, rows=5)
        controls["restyle"] = w.Dropdown(options=self._names)
        for name, change in _CHANGES.items():
            slider = w.IntSlider(0, 0, change.steps, continuous_update=False)
            controls[name] = slider
        return controls

    def _lay_out(self) -> "VBox":
        """Everything on the page in its place."""
        import ipywidgets as w

        prompt_box = self.controls["prompt"]
        answer_boxes = w.Box([self.controls[name] for name in self._names])
        answer_boxes.add_class("rmlab-answers")
        side = w.VBox([self.controls[name] for name in ("restyle", *_CHANGES)])
        side.add_class("rmlab-side")
        main = w.VBox([self.result, self._trial_row(), self.trial])
        main.add_class("rmlab-main")
        columns = w.Box([side, main])
        columns.add_class("rmlab-columns")

        css = (FOLDER / "explorer.css").read_text("utf-8")
        style = w.HTML(f"<style>{css}</style>")
        page = w.VBox([prompt_box, answer_boxes, self.problem, columns, style])
        return page.add_class("rmlab").add_class("rmlab-play")

    def _trial_row(self) -> "HBox":
        """The button that calls `try_on`, and its number of prompts."""
        import ipywidgets as w

        sample_size = w.BoundedIntText(20, 2, 5000, description="Prompts")
        button = w.Button(description="Try on more prompts")

        def try_on(_: object) -> None:
            self._attempt(partial(self.try_on, sample_size.value))

        button.on_click(try_on)
        return w.HBox([sample_size, button])

    @property
    def steps(self) -> dict[str, int]:
        """The number of steps of each change of style that is moved."""
        steps = {}
        for name in _CHANGES:
            step = self.controls[name].value
            if step:
                steps[name] = step
        return steps

    @property
    def frame(self) -> pd.DataFrame:
        """One row per answer, the restyled one last: name, score, answer.

        The score of an empty box is missing.
        """
        names = [*self._names, f"{self.controls['restyle'].value} restyled"]
        texts = [self.controls[name].value for name in self._names]
        texts.append(self._restyle())
        return pd.DataFrame(
            {"name": names, "score": self._score(texts), "answer": texts}
        )

    @property
    def line(self) -> pd.DataFrame:
        """Score by step of the change that was moved last: change, step, score.

        The other changes are as they stand.
        """
        change = self._last_change
        steps = range(_CHANGES[change].steps + 1)
        texts = [self._restyle(**{change: step}) for step in steps]
        return pd.DataFrame(
            {"change": change, "step": steps, "score": self._score(texts)}
        )

    def set(self, *, answers: Sequence[str] = (), **values: Any) -> "Playground":
        """Set the boxes, the menu and the sliders.

        Parameters
        ----------
        answers : sequence of str
            Texts of the first boxes.
        **values
            prompt: its text; restyle: the answer to restyle, such as "answer 2"; the
            steps of a change of style, such as bold=3, at most as many as its slider
            has.

        Returns
        -------
        Playground
            The playground itself.
        """
        for number, text in enumerate(answers):
            values[f"answer {number + 1}"] = text
        choices = {"restyle": self._names}
        for name, change in _CHANGES.items():
            choices[name] = [*range(change.steps + 1)]
        for name, value in values.items():
            if name not in self.controls or value not in choices.get(name, [value]):
                allowed = choices.get(name, [*self.controls])
                raise ValueError(f"{name}={value!r}; allowed are {allowed}")

        for name, value in values.items():
            self.controls[name].value = value
        return self

    def try_on(self, n: int = 50) -> pd.DataFrame:
        """Make the same changes to answers of more prompts, and show the result.

        Parameters
        ----------
        n : int
            Number of prompts, spread evenly over the sample.

        Returns
        -------
        DataFrame
            One row, the columns of `rmlab.probe`.
        """
        responses = load("mini") if self._sample is None else self._sample
        prompt = responses.groupby(PROMPT, sort=False).ngroup()
        last = prompt.max()
        numbers = np.linspace(0, last, min(n, last + 1)).round()
        sample = responses[prompt.isin(numbers)].reset_index(drop=True)

        steps = self.steps
        if not steps:
            steps = {self._last_change: _CHANGES[self._last_change].steps}
        name = " + ".join(f"{change} {step}" for change, step in steps.items())
        transform = Transform(name, lambda text, _: _restyle(text, steps), steps=1)
        table = probe(sample, self._scorer, [transform], by="transform")
        columns = ["transform", "change", "low", "high", "n", "n_prompts", "reason"]
        self.trial.value = _style_table(table[columns]).to_html()
        return table

    def __repr__(self) -> str:
        moved = "nothing moved"
        if self.steps:
            moved = ", ".join(f"{name} {step}" for name, step in self.steps.items())
        return f"playground: {len(self._names)} answers, {moved}"

    def _restyle(self, **steps: int) -> str:
        name = self.controls["restyle"].value
        return _restyle(self.controls[name].value, self.steps | steps)

    def _score(self, texts: list[str]) -> NDArray[np.float64]:
        """Scores of the texts; those of empty ones are missing."""
        rows = [row for row, text in enumerate(texts) if text.strip()]
        scores = np.full(len(texts), np.nan)
        if rows:
            prompts = [self.controls["prompt"].value] * len(rows)
            filled = [texts[row] for row in rows]
            scores[rows] = self._scorer(prompts, filled)
        return scores

    def _update(self, name: str, event: dict[str, object]) -> None:
        if name in _CHANGES:
            self._last_change = name
        # An old number must not stand beside a new text.
        self.result.value = ""
        self.trial.value = ""
        self._draw_soon()

    def _draw_soon(self) -> None:
        """Draw after a pause in typing; at once where no event loop runs."""
        if self._planned is not None:
            self._planned.cancel()
        draw = partial(self._attempt, self._draw)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            draw()
        else:
            self._planned = loop.call_later(_PAUSE, draw)

    def _attempt(self, action: Callable[[], object]) -> None:
        """Run somebody else's scorer: the page lives on and shows its error."""
        try:
            action()
            self.problem.value = ""
        except Exception as error:
            problem = f"The scorer raised {type(error).__name__}: {error}"
            message = escape_html(problem[:2000])
            self.problem.value = (
                f'<div class="rmlab-problem" role="alert">{message}</div>'
            )

    def _draw(self) -> None:
        frame = self.frame
        line = self.line
        scores = _style_table(frame[["name", "score"]])
        html = f'<div role="status">{scores.to_html()}</div>'
        if self.steps:
            answer = markdown_html(frame["answer"].iloc[-1])
            html += f'<div class="rmlab-text" dir="auto">{answer}</div>'
        if line["score"].notna().all():
            change = self._last_change.replace("_", " ")
            # Bars start at zero, also where all rewards are below it.
            bars = _style_table(line[["step", "score"]]).bar(
                ["score"], align="mid", width=80, color=_BAR
            )
            html += f"<h4>Reward against {change}</h4>{bars.to_html()}"
        self.result.value = html


class _Memory:
    """A scorer that scores each text once."""

    def __init__(self, scorer: PlainScorer) -> None:
        self.scorer = scorer
        self.name = name_of(scorer)
        self._scores: dict[tuple[str, str], float] = {}

    def __call__(
        self, prompts: Sequence[Prompt], responses: Sequence[str]
    ) -> list[float]:
        keys = []
        unknown = {}
        for prompt, response in zip(prompts, responses, strict=True):
            key = (repr(prompt), response)
            keys.append(key)
            if key not in self._scores:
                unknown[key] = (prompt, response)

        if unknown:
            new_prompts = [prompt for prompt, _ in unknown.values()]
            new_responses = [response for _, response in unknown.values()]
            scores = np.asarray(self.scorer(new_prompts, new_responses), float)
            self._scores |= dict(zip(unknown, scores.tolist(), strict=True))
        return [self._scores[key] for key in keys]


def _style_table(table: pd.DataFrame) -> "Styler":
    """A table without row numbers; its numbers have four figures."""
    numbers = list(table.select_dtypes(float))
    style = table.style.hide(axis="index").set_table_attributes('class="rmlab-table"')
    return style.format("{:.4g}", numbers, na_rep="–")


def _restyle(text: str, steps: dict[str, int]) -> str:
    """Apply all changes in their order: Markdown off, then marks, then words."""
    for name, transform in _CHANGES.items():
        text = transform(text, steps.get(name, 0))
    return text
