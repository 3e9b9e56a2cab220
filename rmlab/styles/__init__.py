"""What an answer looks like: style features, the same answer in plain prose, and an audit of a benchmark's styles."""

from rmlab.styles.audits import audit
from rmlab.styles.counts import FEATURES, MARKS, features, features_of
from rmlab.styles.prose import plain, restyle

__all__ = ["FEATURES", "MARKS", "audit", "features", "features_of", "plain", "restyle"]
