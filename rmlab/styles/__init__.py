"""What an answer looks like: style features, plain prose, changes of style, and an
audit of a benchmark's styles.
"""

from rmlab.styles.audits import audit
from rmlab.styles.counts import FEATURES, features
from rmlab.styles.prose import restyle
from rmlab.styles.rules import restyle_pairs
from rmlab.styles.transforms import TRANSFORMS, Transform

__all__ = [
    "FEATURES",
    "TRANSFORMS",
    "Transform",
    "audit",
    "features",
    "restyle",
    "restyle_pairs",
]
