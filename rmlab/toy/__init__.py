"""Small models for lessons and tests: scorers with a bias dial, and tiny models with
random weights.
"""

from rmlab.toy.dial import scorer
from rmlab.toy.models import save_model, tokenizer
from rmlab.toy.serving import serve

__all__ = ["save_model", "scorer", "serve", "tokenizer"]
