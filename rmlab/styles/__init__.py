"""What an answer looks like: style features, and an audit of a benchmark's styles."""

from rmlab.styles.audits import audit
from rmlab.styles.counts import features

__all__ = ["audit", "features"]
