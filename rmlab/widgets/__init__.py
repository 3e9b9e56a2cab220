"""Look inside a reward model, in JupyterLab: the answers behind the scores, and rewards
token by token.
"""

from rmlab.widgets.explorer import explore
from rmlab.widgets.tokens import token_rewards

__all__ = ["explore", "token_rewards"]
