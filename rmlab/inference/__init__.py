"""Texts through a model once: templates, tries of token ids, packs, hidden states."""
