"""From values to estimates: values come in cells and clusters, and a score is a
weighted sum of means of cells. No benchmark is known here.
"""
