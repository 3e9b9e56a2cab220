"""The version of rmlab."""

__version__ = "0.1.0"
