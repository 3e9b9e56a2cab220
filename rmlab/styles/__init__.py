"""What an answer looks like: style features, plain prose, changes of style, and an
audit of a benchmark's styles; changes of a prompt's wording.
"""

from rmlab.styles.audits import audit
from rmlab.styles.counts import FEATURES, features
from rmlab.styles.prose import restyle
from rmlab.styles.rules import restyle_pairs
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.styles.wording import PROMPT_TRANSFORMS

__all__ = [
    "FEATURES",
    "PROMPT_TRANSFORMS",
    "TRANSFORMS",
    "Transform",
    "audit",
    "features",
    "restyle",
    "restyle_pairs",
]
