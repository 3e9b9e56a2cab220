"""Look inside a reward model, in JupyterLab: the answers behind the scores, a playground, rewards token by token."""

from rmlab.widgets.page import serve
from rmlab.widgets.playground import Playground, playground
from rmlab.widgets.selection import Selection
from rmlab.widgets.tokens import token_rewards
from rmlab.widgets.view import View, explore

__all__ = ["Playground", "Selection", "View", "explore", "playground", "serve", "token_rewards"]
