"""Small models for lessons and tests: scorers with a bias dial, and tiny models with
random weights.
"""

from rmlab.toy.dial import scorer
from rmlab.toy.models import save_model, tokenizer

__all__ = ["save_model", "scorer", "tokenizer"]
