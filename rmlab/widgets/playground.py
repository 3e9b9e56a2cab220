"""The playground: type a prompt and answers, restyle one of them, and watch the reward move."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.benchmarks import load
from rmlab.bias.probe import probe
from rmlab.scorers.base import PlainScorer, Prompt, name_of
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.tables import PROMPT
from rmlab.text import escape_html
from rmlab.widgets.explorer import FOLDER, with_plain_text
from rmlab.widgets.markup import markdown_html

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

_RIGHT = "Air scatters blue light more strongly than red light. Blue light therefore reaches us from all over the sky."
_WRONG = "The sky mirrors the sea. The sea is blue because water absorbs red light. Far from it the sky is paler."
_CHANGES = {name: transform for name, transform in TRANSFORMS.items() if not transform.null}
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
        Takes prompts and responses and returns one number each. Its errors are shown on the page, which lives on.
    prompt, answers : str, sequence of str
        The texts in the boxes at first; two answers or more.
    responses : DataFrame, optional
        The sample for "Try on more prompts"; default: the bundled benchmark.

    Returns
    -------
    Playground
        Shows itself as the last line of a cell. From code: `set`, `frame`, `steps`, `try_on`.
    """
    return Playground(scorer, prompt, answers, responses)


class Playground:
    """The widget that `playground` returns."""

    def __init__(
        self, scorer: PlainScorer, prompt: str, answers: Sequence[str], responses: pd.DataFrame | None
    ) -> None:
        import ipywidgets as w

        self._scorer, self._responses, self._last_change = _Memory(scorer), responses, "bold"
        self._names = [f"answer {number + 1}" for number in range(len(answers))]
        self.prompt_box, *self.boxes = (
            w.Textarea(text, description=name.capitalize(), rows=5, continuous_update=False)
            for name, text in zip(("prompt", *self._names), (prompt, *answers), strict=True)
        )
        self.which = w.Dropdown(description="Restyle", options=[(name, k) for k, name in enumerate(self._names)])
        self.sliders = {
            name: w.IntSlider(
                0, 0, change.steps, description=name.replace("_", " ").capitalize(), continuous_update=False
            )
            for name, change in _CHANGES.items()
        }
        self.sample_size = w.BoundedIntText(20, 2, 5000, description="Prompts")
        self.try_button = w.Button(description="Try on more prompts")
        self.result, self.trial, self.problem = (w.HTML() for _ in range(3))
        side = w.VBox([self.which, *self.sliders.values()]).add_class("rmlab-side")
        main = w.VBox([self.result, w.HBox([self.sample_size, self.try_button]), self.trial]).add_class("rmlab-main")
        columns = w.Box([side, main]).add_class("rmlab-columns")
        answer_boxes = w.Box(self.boxes).add_class("rmlab-answers")
        css = w.HTML(f"<style>{(FOLDER / 'explorer.css').read_text('utf-8')}</style>")
        self.widget = w.VBox([self.prompt_box, answer_boxes, self.problem, columns, css])
        self.widget.add_class("rmlab").add_class("rmlab-play")
        for control in (self.prompt_box, *self.boxes, self.which, *self.sliders.values()):
            control.observe(self._update, "value")
        self.try_button.on_click(lambda _: self._attempt(lambda: self.try_on(self.sample_size.value)))
        self._update({"owner": None})

    @property
    def steps(self) -> dict[str, int]:
        """The number of steps of each change of style that is moved."""
        return {name: slider.value for name, slider in self.sliders.items() if slider.value}

    @property
    def restyled(self) -> str:
        """The answer that is restyled, after the changes."""
        return _restyle(self.boxes[self.which.value].value, self.steps)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per answer, and one for the restyled answer: name, score (missing for an empty box), answer."""
        names = [*self._names, f"{self._names[self.which.value]} restyled"]
        texts = [*(box.value for box in self.boxes), self.restyled]
        return pd.DataFrame({"name": names, "score": self._score(texts), "answer": texts})

    @property
    def line(self) -> pd.DataFrame:
        """Score by step of the change that was moved last, the others as they stand: change, step, score."""
        answer, name = self.boxes[self.which.value].value, self._last_change
        steps = range(_CHANGES[name].steps + 1)
        texts = [_restyle(answer, self.steps | {name: step}) for step in steps]
        return pd.DataFrame({"change": name, "step": steps, "score": self._score(texts)})

    def set(
        self, *, prompt: str | None = None, answers: Sequence[str] = (), restyle: int | None = None, **steps: int
    ) -> "Playground":
        """Set the boxes and the sliders.

        Parameters
        ----------
        prompt : str, optional
        answers : sequence of str
            Texts of the first boxes.
        restyle : int, optional
            Number of the answer to restyle, from 0.
        **steps : int
            Steps of a change of style, such as bold=3.

        Returns
        -------
        Playground
            The playground itself.
        """
        limits = {"answers": len(self.boxes), "restyle": len(self.boxes) - 1}
        limits |= {name: slider.max for name, slider in self.sliders.items()}
        for name, value in {"answers": len(answers), "restyle": restyle or 0, **steps}.items():
            if value not in range(limits.get(name, -1) + 1):
                raise ValueError(f"{name}={value!r}; give each at most its number: {limits}")
        controls = [self.prompt_box, self.which, *self.boxes[: len(answers)], *(self.sliders[name] for name in steps)]
        for control, content in zip(controls, [prompt, restyle, *answers, *steps.values()], strict=True):
            if content is not None:
                control.value = content
        return self

    def try_on(self, n: int = 50) -> pd.DataFrame:
        """Make the same changes to answers of more prompts, and show the result on the page.

        Parameters
        ----------
        n : int
            Number of prompts, spread evenly over the sample.

        Returns
        -------
        DataFrame
            One row, the columns of `rmlab.probe`.
        """
        responses = load("mini") if self._responses is None else self._responses
        steps = self.steps or {self._last_change: _CHANGES[self._last_change].steps}
        prompt = responses.groupby(PROMPT, sort=False).ngroup()
        numbers = np.linspace(0, prompt.max(), min(n, prompt.max() + 1)).round()
        name = " + ".join(f"{change} {step}" for change, step in steps.items())
        change = Transform(name, lambda text, _: _restyle(text, steps), steps=1)
        table = probe(responses[prompt.isin(numbers)].reset_index(drop=True), self._scorer, [change], by="transform")
        shown = ["transform", "change", "low", "high", "n", "n_prompts", "reason"]
        self.trial.value = _style_table(table[shown]).to_html()
        return table

    def __repr__(self) -> str:
        moved = ", ".join(f"{name} {step}" for name, step in self.steps.items()) or "nothing moved"
        return f"playground: {len(self.boxes)} answers, {moved}"

    def _repr_mimebundle_(self, **options: object) -> dict[str, object]:
        return with_plain_text(self.widget, repr(self), options)

    def _score(self, texts: list[str]) -> pd.Series:
        filled = {row: text for row, text in enumerate(texts) if text.strip()}
        scores = self._scorer([self.prompt_box.value] * len(filled), [*filled.values()]) if filled else []
        return pd.Series(dict(zip(filled, scores, strict=True)), range(len(texts)), dtype=float)

    def _update(self, event: dict[str, object]) -> None:
        moved = [name for name, slider in self.sliders.items() if slider is event["owner"]]
        self._last_change = moved[0] if moved else self._last_change
        self.result.value = self.trial.value = ""  # an old number must not stand beside a new text
        self._attempt(self._draw)

    def _attempt(self, action: Callable[[], object]) -> None:
        """Run somebody else's scorer: the page lives on and shows its error."""
        try:
            action()
            self.problem.value = ""
        except Exception as error:
            message = escape_html(f"The scorer raised {type(error).__name__}: {error}"[:2000])
            self.problem.value = f'<div class="rmlab-problem" role="alert">{message}</div>'

    def _draw(self) -> None:
        html, line = f'<div role="status">{_style_table(self.frame[["name", "score"]]).to_html()}</div>', self.line
        if self.steps:
            html += f'<div class="rmlab-text" dir="auto">{markdown_html(self.restyled)}</div>'
        if line["score"].notna().all():
            bars = _style_table(line[["step", "score"]]).bar(["score"], align="left", width=80, color=_BAR)
            html += f"<h4>Reward against {self._last_change.replace('_', ' ')}</h4>{bars.to_html()}"
        self.result.value = html


class _Memory:
    """A scorer that scores each text once."""

    def __init__(self, scorer: PlainScorer) -> None:
        self.scorer, self.name = scorer, name_of(scorer)
        self._scores: dict[tuple[str, str], float] = {}

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[float]:
        keys = [(repr(prompt), response) for prompt, response in zip(prompts, responses, strict=True)]
        if rows := {key: row for row, key in enumerate(keys) if key not in self._scores}.values():
            scores = np.asarray(self.scorer([prompts[row] for row in rows], [responses[row] for row in rows]), float)
            self._scores |= {keys[row]: score for row, score in zip(rows, scores.tolist(), strict=True)}
        return [self._scores[key] for key in keys]


def _style_table(table: pd.DataFrame) -> "Styler":
    """A table without row numbers; numbers with three figures, an en dash where missing."""
    styler = table.style.hide(axis="index")
    return styler.format("{:#.3g}", list(table.select_dtypes(float)), na_rep="–")


def _restyle(text: str, steps: dict[str, int]) -> str:
    """All changes in their fixed order: first Markdown off, then the marks, then the words."""
    for name, transform in _CHANGES.items():
        text = transform(text, steps.get(name, 0))
    return text
