"""Look inside a reward model, in JupyterLab: the answers behind the scores, a playground, rewards token by token."""

from rmlab.explore.selection import Selection
from rmlab.explore.view import View, explore

__all__ = ["Selection", "View", "explore"]
