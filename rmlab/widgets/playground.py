"""The playground: type a prompt and answers, restyle one of them, and watch the reward move."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.bias.probe import probe
from rmlab.scorers.base import PlainScorer, Prompt, name_of
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.tables import PROMPT
from rmlab.text import escape_html
from rmlab.widgets.explorer import stylesheet, with_plain_text
from rmlab.widgets.markup import markdown_html

if TYPE_CHECKING:
    import ipywidgets

_PROMPT = "Why is the sky blue?"
_ANSWERS = (
    "Air scatters blue light more strongly than red light. Blue light therefore reaches us from all over the sky. "
    "At sunset the light has a longer way through the air. Then mostly red is left.",
    "The sky mirrors the sea. The sea is blue because water absorbs red light. Far from the sea the sky is paler.",
)
_CHANGES = {name: transform for name, transform in TRANSFORMS.items() if not transform.null}
_TYPING_PAUSE = 0.3  # seconds


def playground(
    scorer: PlainScorer,
    *,
    prompt: str = _PROMPT,
    answers: Sequence[str] = _ANSWERS,
    responses: pd.DataFrame | None = None,
) -> "Playground":
    """Type and score: a widget for JupyterLab.

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
    if isinstance(answers, str) or len(answers) < 2:
        raise ValueError(f"answers: {answers!r}; give a list of two or more strings")
    if not callable(scorer):
        raise TypeError(f"scorer: {scorer!r} cannot be called. Give a scorer such as rmlab.baselines.longest.")
    return Playground(scorer, prompt, answers, responses)


class Playground:
    """The widget that `playground` returns."""

    def __init__(
        self, scorer: PlainScorer, prompt: str, answers: Sequence[str], responses: pd.DataFrame | None
    ) -> None:
        import ipywidgets as w

        self._scorer, self._responses = _Memory(scorer), responses
        self._last_change, self._is_quiet = "bold", True
        self._timer: asyncio.TimerHandle | None = None
        self.boxes: list[ipywidgets.Textarea] = []
        self.score_lines: list[ipywidgets.HTML] = []
        self.prompt_box = w.Textarea(prompt, description="Prompt", rows=2)
        self.which = w.Dropdown(description="Restyle")
        self.sliders = {
            name: w.IntSlider(0, 0, transform.steps, description=name.replace("_", " ").capitalize())
            for name, transform in _CHANGES.items()
        }
        self.sample_size = w.BoundedIntText(20, 2, 5000, description="Prompts")
        more, self.try_button = (w.Button(description=text) for text in ("Add an answer", "Try on more prompts"))
        self.preview, self.chart, self.trial, self.problem = (w.HTML() for _ in range(4))
        self._grid = w.Box().add_class("rmlab-answers")
        side = w.VBox([self.which, *self.sliders.values()]).add_class("rmlab-side")
        main = w.VBox([self.preview, self.chart, w.HBox([self.sample_size, self.try_button]), self.trial])
        columns = w.Box([side, main.add_class("rmlab-main")]).add_class("rmlab-columns")
        self.widget = w.VBox([self.prompt_box, self._grid, more, self.problem, columns, stylesheet()])
        self.widget.add_class("rmlab").add_class("rmlab-play")
        for answer in answers:
            self._add_answer(answer)
        for name, slider in self.sliders.items():
            slider.observe(lambda _, name=name: self._moved(name), "value")
        for box in (self.prompt_box, self.which):
            box.observe(lambda _: self._moved(self._last_change), "value")
        more.on_click(lambda _: self._add_answer(""))
        self.try_button.on_click(lambda _: self._try_from_page())
        self._is_quiet = False
        self._update()

    @property
    def answers(self) -> list[str]:
        """The texts in the answer boxes."""
        return [str(box.value) for box in self.boxes]

    @property
    def steps(self) -> dict[str, int]:
        """The number of steps of each change of style that is moved."""
        return {name: slider.value for name, slider in self.sliders.items() if slider.value}

    @property
    def restyled(self) -> str:
        """The answer that is restyled, after the changes."""
        return _restyle(self.answers[self.which.value], self.steps)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per answer, and one for the restyled answer: name, score (missing for an empty box), answer."""
        names = [f"answer {number + 1}" for number in range(len(self.boxes))]
        names.append(f"{names[self.which.value]} restyled")
        texts = [*self.answers, self.restyled]
        return pd.DataFrame({"name": names, "score": self._score(texts), "answer": texts})

    @property
    def line(self) -> pd.DataFrame:
        """Score by step of the change that was moved last, the others as they stand: change, step, score."""
        answer, name = self.answers[self.which.value], self._last_change
        steps = range(_CHANGES[name].steps + 1)
        texts = [_restyle(answer, self.steps | {name: step}) for step in steps]
        return pd.DataFrame({"change": name, "step": list(steps), "score": self._score(texts)})

    def set(
        self,
        *,
        prompt: str | None = None,
        answers: Sequence[str] = (),
        restyle: int | None = None,
        **steps: int,
    ) -> "Playground":
        """Set the boxes and the sliders.

        Parameters
        ----------
        prompt : str, optional
        answers : sequence of str
            Texts of the first boxes; boxes are added as needed.
        restyle : int, optional
            Number of the answer to restyle, from 0.
        **steps : int
            Steps of a change of style, such as bold=3.

        Returns
        -------
        Playground
            The playground itself.
        """
        n_boxes = max(len(self.boxes), len(answers))
        if restyle is not None and restyle not in range(n_boxes):
            raise ValueError(f"restyle={restyle!r}; allowed: 0 to {n_boxes - 1}, the number of an answer")
        for name, step in steps.items():
            if name not in self.sliders or step not in range(self.sliders[name].max + 1):
                limits = ", ".join(f"{key} 0 to {slider.max}" for key, slider in self.sliders.items())
                raise ValueError(f"{name}={step!r}; allowed: {limits}")
        self._is_quiet = True
        self.prompt_box.value = self.prompt_box.value if prompt is None else prompt
        for number, answer in enumerate(answers):
            if number == len(self.boxes):
                self._add_answer("")
            self.boxes[number].value = answer
        self.which.value = self.which.value if restyle is None else restyle
        for name, step in steps.items():
            self.sliders[name].value, self._last_change = step, name
        self._is_quiet = False
        self._update()
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
        if n < 1:
            raise ValueError(f"n={n!r}; give the number of prompts, 1 or more")
        if self._responses is None:
            from rmlab.benchmarks import load

            self._responses = load("mini")
        steps = self.steps or {self._last_change: _CHANGES[self._last_change].steps}
        prompt = self._responses.groupby(PROMPT, sort=False).ngroup()
        numbers = np.linspace(0, prompt.max(), min(n, prompt.max() + 1)).round()
        sample = self._responses[prompt.isin(numbers)].reset_index(drop=True)
        name = " + ".join(f"{change} {step}" for change, step in steps.items())
        change = Transform(name, lambda text, _: _restyle(text, steps), steps=1)
        table = probe(sample, self._scorer, [change], by="transform")
        self.trial.value = _trial_html(table.iloc[0])
        return table

    def __repr__(self) -> str:
        moved = ", ".join(f"{name} {step}" for name, step in self.steps.items()) or "nothing moved"
        return f"playground: {len(self.boxes)} answers, {moved}"

    def _repr_mimebundle_(self, **options: object) -> dict[str, object]:
        return with_plain_text(self.widget, repr(self), options)

    def _add_answer(self, answer: str) -> None:
        import ipywidgets as w

        box, line = w.Textarea(answer, description=f"Answer {len(self.boxes) + 1}", rows=7), w.HTML()
        box.observe(lambda _: self._moved(self._last_change), "value")
        self.boxes.append(box)
        self.score_lines.append(line)
        self._grid.children = (*self._grid.children, w.VBox([box, line]))
        chosen = self.which.value or 0
        self.which.options = [(f"answer {number + 1}", number) for number in range(len(self.boxes))]
        self.which.value = chosen

    def _moved(self, change: str) -> None:
        """Update once a person has stopped typing; at once where no event loop runs."""
        if self._is_quiet:
            return
        self._last_change = change
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._timer = asyncio.get_running_loop().call_later(_TYPING_PAUSE, self._update)
        except RuntimeError:
            self._update()

    def _score(self, texts: list[str]) -> list[float]:
        scores = np.full(len(texts), np.nan)
        rows = [row for row, text in enumerate(texts) if text.strip()]
        if rows:
            scores[rows] = self._scorer([self.prompt_box.value] * len(rows), [texts[row] for row in rows])
        return [float(score) for score in scores]

    def _update(self) -> None:
        for part in (*self.score_lines, self.preview, self.chart, self.trial, self.problem):
            part.value = ""  # no number of before belongs to the texts of now
        try:
            frame, line = self.frame, self.line
        except Exception as error:  # somebody else's scorer: the page lives on and says what happened
            self.problem.value = self._problem_html(error)
            return
        scores = frame["score"].to_numpy()
        for number, part in enumerate(self.score_lines):
            best = " rmlab-best" if scores[number] == np.nanmax(scores[:-1], initial=-np.inf) else ""
            part.value = f'<span class="rmlab-score{best}" role="status">{format_number(scores[number])}</span>'
        if self.steps:
            before, after = format_number(scores[self.which.value]), format_number(scores[-1])
            head = f"<h4>{frame['name'].iloc[-1].capitalize()}: {before} → {after}</h4>"
            self.preview.value = f'{head}<div class="rmlab-text" dir="auto">{markdown_html(self.restyled)}</div>'
        if np.isfinite(line["score"]).all():
            name = escape_html(self._last_change.replace("_", " "))
            self.chart.value = f"<h4>Reward against {name}</h4>{_chart(line['score'].to_numpy())}"

    def _try_from_page(self) -> None:
        self.trial.value = '<p role="status">Scoring …</p>'
        try:
            self.try_on(self.sample_size.value)
        except Exception as error:
            self.trial.value = self._problem_html(error)

    def _problem_html(self, error: Exception) -> str:
        text = f"The scorer raised {type(error).__name__}: {error}"
        return f'<div class="rmlab-problem" role="alert">{escape_html(text[:2000])}</div>'


class _Memory:
    """A scorer that scores each text once."""

    def __init__(self, scorer: PlainScorer) -> None:
        self.scorer, self.name = scorer, name_of(scorer)
        self._scores: dict[tuple[str, str], float] = {}

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[float]:
        keys = [(repr(prompt), response) for prompt, response in zip(prompts, responses, strict=True)]
        rows = {key: row for row, key in enumerate(keys) if key not in self._scores}
        if rows:
            scores = np.asarray(
                self.scorer([prompts[r] for r in rows.values()], [responses[r] for r in rows.values()]), float
            )
            if scores.shape != (len(rows),):
                raise ValueError(f"the scorer gave an array of shape {scores.shape} for {len(rows)} texts")
            self._scores |= dict(zip(rows, scores.tolist(), strict=True))
        return [self._scores[key] for key in keys]


def format_number(value: float) -> str:
    """A score with about three figures and a true minus sign, an en dash where missing.

    >>> format_number(-1.23456), format_number(float("nan"))
    ('−1.23', '–')
    """
    return "–" if np.isnan(value) else f"{value:#.3g}".rstrip(".").replace("-", "−")


def _restyle(text: str, steps: dict[str, int]) -> str:
    """All changes in their fixed order: first Markdown off, then the marks, then the words."""
    for name, transform in _CHANGES.items():
        text = transform(text, steps[name]) if steps.get(name) else text
    return text


def _trial_html(row: pd.Series) -> str:
    if not row["n"]:
        return '<p role="status">No answer of the sample has a place for this change.</p>'
    change, low, high = (format_number(row[name]) for name in ("change", "low", "high"))
    interval = f", 95 % interval {low} to {high}" if np.isfinite(row["low"]) else f" ({row['reason']})"
    text = f"mean change {change}{interval}; {row['n']} answers of {row['n_prompts']} prompts"
    return f'<h4>{escape_html(row["transform"])}</h4><p role="status">{escape_html(text)}</p>'


def _chart(scores: np.ndarray) -> str:
    """Scores by step as a line of SVG in the page's colours."""
    low, high = float(scores.min()), float(scores.max())
    x, y = np.linspace(60, 440, len(scores)), 120 - 100 * (scores - low) / ((high - low) or 1.0)
    points = " ".join(f"{a:.0f},{b:.0f}" for a, b in zip(x, y, strict=True))
    limits = "".join(
        f'<text x="4" y="{place}">{format_number(value)}</text>' for place, value in ((124, low), (24, high))
    )
    steps = "".join(f'<text x="{a:.0f}" y="142">{step}</text>' for step, a in enumerate(x))
    line = f'<polyline points="{points}" fill="none" stroke="var(--rmlab-blue)" stroke-width="2"/>'
    return (
        f'<svg viewBox="0 0 460 150" width="460" font-size="11" fill="var(--rmlab-quiet)">{line}{limits}{steps}</svg>'
    )
