"""Sliders that restyle one of the answers: how far each change of style is moved."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from rmlab.styles.transforms import TRANSFORMS

if TYPE_CHECKING:
    import ipywidgets as w

__all__ = ["StyleSliders", "restyled"]

_STEPS = [name for name, made in TRANSFORMS.items() if not made.null]


class StyleSliders:
    """Which answer is restyled and the steps of every change; `moved` is called after a person moved something."""

    def __init__(self, moved: Callable[[], None]) -> None:
        import ipywidgets as w

        self._changed = moved
        self._quiet = False
        self.last = "bold"
        self.which = w.Dropdown(options=[], description="Restyle")
        self.which.observe(lambda _: self._moved(self.last), "value")
        self.sliders = {
            name: w.IntSlider(0, 0, TRANSFORMS[name].steps, description=name.replace("_", " ").capitalize())
            for name in _STEPS
        }
        for name, slider in self.sliders.items():
            slider.observe(lambda change, name=name: self._moved(name), "value")

    @property
    def widgets(self) -> "list[w.ValueWidget]":
        """What stands on the page, from top to bottom."""
        return [self.which, *self.sliders.values()]

    @property
    def steps(self) -> dict[str, int]:
        """How far each change of style is moved, for those that are."""
        return {name: slider.value for name, slider in self.sliders.items() if slider.value}

    def check(self, steps: dict[str, int]) -> None:
        """Raise ValueError for a change that does not exist, or one moved beyond its end."""
        for name, step in steps.items():
            if name not in self.sliders:
                raise ValueError(f"{name}: not a change of style; allowed: {', '.join(self.sliders)}")
            if step not in range(TRANSFORMS[name].steps + 1):
                raise ValueError(f"{name}={step!r}; allowed: 0 to {TRANSFORMS[name].steps}")

    def set(self, steps: dict[str, int], *, which: int | None = None) -> None:
        """Move sliders, and choose the answer, without calling `moved`."""
        self._quiet = True
        if which is not None:
            self.which.value = which
        for name, step in steps.items():
            self.sliders[name].value = step
            self.last = name
        self._quiet = False

    def offer(self, answers: int) -> None:
        """Let a person choose among so many answers."""
        chosen = self.which.value or 0
        self._quiet = True
        self.which.options = [(f"answer {k + 1}", k) for k in range(answers)]
        self.which.value = chosen
        self._quiet = False

    def _moved(self, name: str) -> None:
        if not self._quiet:
            self.last = name
            self._changed()


def restyled(text: str, steps: dict[str, int]) -> str:
    """All changes, in their fixed order: first Markdown off, then the marks, then the words."""
    for name in _STEPS:
        if steps.get(name):
            text = TRANSFORMS[name](text, steps[name])
    return text
