"""Networks behind a score: the backbone, the head or the output layer on top of it, and
what they compute.
"""
