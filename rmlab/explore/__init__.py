"""Look inside a reward model, in JupyterLab: the answers behind the scores, a playground, rewards token by token."""

from rmlab.explore.page import serve
from rmlab.explore.playground import Playground, playground
from rmlab.explore.selection import Selection
from rmlab.explore.tokens import token_rewards
from rmlab.explore.view import View, explore

__all__ = ["Playground", "Selection", "View", "explore", "playground", "serve", "token_rewards"]
