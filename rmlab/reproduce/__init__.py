"""Published numbers beside one's own, and what explains the difference."""

from rmlab.reproduce.agreeing import agreement
from rmlab.reproduce.beside import reproduce

__all__ = ["agreement", "reproduce"]
