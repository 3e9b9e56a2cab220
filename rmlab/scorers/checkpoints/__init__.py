"""Published models as files: finding them, reading weights, code and tokenizers, and
refusing incomplete ones.
"""
