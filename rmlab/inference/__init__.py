"""Texts through a model once: templates, tries of token ids, packs, hidden states."""

from rmlab.inference.planning import Plan, plan

__all__ = ["Plan", "plan"]
