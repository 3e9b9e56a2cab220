"""Look inside a reward model, in JupyterLab: the answers behind the scores, a
playground, rewards token by token.
"""

from rmlab.widgets.explorer import Selection, View, explore
from rmlab.widgets.playground import Playground, playground
from rmlab.widgets.tokens import token_rewards

__all__ = ["Playground", "Selection", "View", "explore", "playground", "token_rewards"]
