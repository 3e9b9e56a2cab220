"""Call a function once a person has stopped typing."""

import asyncio
from collections.abc import Callable

__all__ = ["Debounced"]


class Debounced:
    """Calls `function` when `seconds` have passed without another call; at once where no event loop runs."""

    def __init__(self, function: Callable[[], None], *, seconds: float = 0.3) -> None:
        self._function = function
        self._seconds = seconds
        self._waiting: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        """Ask for a call; takes the place of one that is still waiting."""
        self.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._function()
            return
        self._waiting = loop.call_later(self._seconds, self._function)

    def cancel(self) -> None:
        """Forget a call that is still waiting."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
