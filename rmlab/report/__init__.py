"""Tables and figures to files."""

from rmlab.report.figures import save_figure

__all__ = ["save_figure"]
