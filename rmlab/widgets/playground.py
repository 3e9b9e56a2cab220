"""The playground: type a prompt and answers, restyle one of them, and watch the reward
move.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rmlab.benchmarks import load
from rmlab.bias.probe import probe
from rmlab.scorers.base import PlainScorer, Prompt, name_of
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.tables import PROMPT
from rmlab.text import escape_html
from rmlab.widgets.explorer import FOLDER, WidgetDisplay
from rmlab.widgets.markup import markdown_html

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

_RIGHT = "Air scatters blue light more strongly than red light. Blue light therefore reaches us from all over the sky."
_WRONG = "The sky mirrors the sea. The sea is blue because water absorbs red light. Far from it the sky is paler."
_CHANGES = {
    name: transform for name, transform in TRANSFORMS.items() if not transform.null
}
_BAR = "#5b9bd580"  # translucent, so that numbers can be read on it in light and dark


def playground(
    scorer: PlainScorer,
    *,
    prompt: str = "Why is the sky blue?",
    answers: Sequence[str] = (_RIGHT, _WRONG),
    responses: pd.DataFrame | None = None,
) -> "Playground":
    """Type and score: a widget for JupyterLab.

    The scores follow when a box is left or a slider is released.

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

        self._scorer, self._sample, self._last_change = _Memory(scorer), sample, "bold"
        self._names = [f"answer {number + 1}" for number in range(len(answers))]
        self.controls: dict[str, Any] = {
            name: w.Textarea(text, rows=5, continuous_update=False)
            for name, text in zip(
                ("prompt", *self._names), (prompt, *answers), strict=True
            )
        }
        self.controls["restyle"] = w.Dropdown(options=self._names)
        self.controls |= {
            name: w.IntSlider(0, 0, _CHANGES[name].steps, continuous_update=False)
            for name in _CHANGES
        }
        for name, control in self.controls.items():
            control.description = name.replace("_", " ").capitalize()
            control.observe(partial(self._update, name), "value")
        prompt_box, *controls = self.controls.values()
        answer_boxes = w.Box(controls[: len(answers)]).add_class("rmlab-answers")
        sample_size = w.BoundedIntText(20, 2, 5000, description="Prompts")
        try_button = w.Button(description="Try on more prompts")
        self.result, self.trial, self.problem = (w.HTML() for _ in range(3))
        side = w.VBox(controls[len(answers) :]).add_class("rmlab-side")
        main = w.VBox(
            [self.result, w.HBox([sample_size, try_button]), self.trial]
        ).add_class("rmlab-main")
        css = w.HTML(f"<style>{(FOLDER / 'explorer.css').read_text('utf-8')}</style>")
        columns = w.Box([side, main]).add_class("rmlab-columns")
        self.widget = w.VBox([prompt_box, answer_boxes, self.problem, columns, css])
        self.widget.add_class("rmlab").add_class("rmlab-play")
        try_button.on_click(
            lambda _: self._attempt(lambda: self.try_on(sample_size.value))
        )
        self._attempt(self._draw)

    @property
    def steps(self) -> dict[str, int]:
        """The number of steps of each change of style that is moved."""
        return {
            name: self.controls[name].value
            for name in _CHANGES
            if self.controls[name].value
        }

    @property
    def frame(self) -> pd.DataFrame:
        """One row per answer, and one for the restyled answer: name, score (missing for
        an empty box), answer.
        """
        names = [*self._names, f"{self.controls['restyle'].value} restyled"]
        texts = [*(self.controls[name].value for name in self._names), self._restyle()]
        return pd.DataFrame(
            {"name": names, "score": self._score(texts), "answer": texts}
        )

    @property
    def line(self) -> pd.DataFrame:
        """Score by step of the change that was moved last, the others as they stand:
        change, step, score.
        """
        steps = range(_CHANGES[self._last_change].steps + 1)
        texts = [self._restyle(**{self._last_change: step}) for step in steps]
        return pd.DataFrame(
            {"change": self._last_change, "step": steps, "score": self._score(texts)}
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
        values |= {f"answer {number + 1}": text for number, text in enumerate(answers)}
        choices = {
            "restyle": self._names,
            **{name: [*range(_CHANGES[name].steps + 1)] for name in _CHANGES},
        }
        for name, value in values.items():
            if name not in self.controls or value not in choices.get(name, [value]):
                raise ValueError(
                    f"{name}={value!r}; allowed are {choices.get(name, [*self.controls])}"
                )
        for name, value in values.items():
            self.controls[name].value = value
        return self

    def try_on(self, n: int = 50) -> pd.DataFrame:
        """Make the same changes to answers of more prompts, and show the result on the
        page.

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
        steps = self.steps or {self._last_change: _CHANGES[self._last_change].steps}
        prompt = responses.groupby(PROMPT, sort=False).ngroup()
        numbers = np.linspace(0, prompt.max(), min(n, prompt.max() + 1)).round()
        name = " + ".join(f"{change} {step}" for change, step in steps.items())
        change = Transform(name, lambda text, _: _restyle(text, steps), steps=1)
        table = probe(
            responses[prompt.isin(numbers)].reset_index(drop=True),
            self._scorer,
            [change],
            by="transform",
        )
        columns = ["transform", "change", "low", "high", "n", "n_prompts", "reason"]
        self.trial.value = _style_table(table[columns]).to_html()
        return table

    def __repr__(self) -> str:
        moved = (
            ", ".join(f"{name} {step}" for name, step in self.steps.items())
            or "nothing moved"
        )
        return f"playground: {len(self._names)} answers, {moved}"

    def _restyle(self, **steps: int) -> str:
        return _restyle(
            self.controls[self.controls["restyle"].value].value, self.steps | steps
        )

    def _score(self, texts: list[str]) -> pd.Series:
        filled = {row: text for row, text in enumerate(texts) if text.strip()}
        scores = (
            self._scorer(
                [self.controls["prompt"].value] * len(filled), [*filled.values()]
            )
            if filled
            else []
        )
        return pd.Series(
            dict(zip(filled, scores, strict=True)), range(len(texts)), dtype=float
        )

    def _update(self, name: str, event: dict[str, object]) -> None:
        self._last_change = name if name in _CHANGES else self._last_change
        self.result.value = self.trial.value = (
            ""  # an old number must not stand beside a new text
        )
        self._attempt(self._draw)

    def _attempt(self, action: Callable[[], object]) -> None:
        """Run somebody else's scorer: the page lives on and shows its error."""
        try:
            action()
            self.problem.value = ""
        except Exception as error:
            message = escape_html(
                f"The scorer raised {type(error).__name__}: {error}"[:2000]
            )
            self.problem.value = (
                f'<div class="rmlab-problem" role="alert">{message}</div>'
            )

    def _draw(self) -> None:
        frame, line = self.frame, self.line
        html = f'<div role="status">{_style_table(frame[["name", "score"]]).to_html()}</div>'
        if self.steps:
            html += f'<div class="rmlab-text" dir="auto">{markdown_html(frame["answer"].iloc[-1])}</div>'
        if line["score"].notna().all():
            bars = _style_table(line[["step", "score"]]).bar(
                ["score"], align="left", width=80, color=_BAR
            )
            html += f"<h4>Reward against {self._last_change.replace('_', ' ')}</h4>{bars.to_html()}"
        self.result.value = html


class _Memory:
    """A scorer that scores each text once."""

    def __init__(self, scorer: PlainScorer) -> None:
        self.scorer, self.name = scorer, name_of(scorer)
        self._scores: dict[tuple[str, str], float] = {}

    def __call__(
        self, prompts: Sequence[Prompt], responses: Sequence[str]
    ) -> list[float]:
        keys = [
            (repr(prompt), response)
            for prompt, response in zip(prompts, responses, strict=True)
        ]
        if rows := {
            key: row for row, key in enumerate(keys) if key not in self._scores
        }.values():
            scores = np.asarray(
                self.scorer(
                    [prompts[row] for row in rows], [responses[row] for row in rows]
                ),
                float,
            )
            self._scores |= {
                keys[row]: score
                for row, score in zip(rows, scores.tolist(), strict=True)
            }
        return [self._scores[key] for key in keys]


def _style_table(table: pd.DataFrame) -> "Styler":
    """A table without row numbers; numbers with four figures, an en dash where missing."""
    return table.style.hide(axis="index").format(
        "{:.4g}", list(table.select_dtypes(float)), na_rep="–"
    )


def _restyle(text: str, steps: dict[str, int]) -> str:
    """All changes in their fixed order: first Markdown off, then the marks, then the
    words.
    """
    for name, transform in _CHANGES.items():
        text = transform(text, steps.get(name, 0))
    return text
