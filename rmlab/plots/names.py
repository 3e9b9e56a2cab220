"""Model names as they stand in figures."""

__all__ = ["short"]


def short(model: object) -> str:
    r"""At most 40 characters, the end kept, where models of a family differ; dollar signs are no formulas.

    >>> short("a$b$")
    'a\\$b\\$'
    """
    name = str(model)
    return (name if len(name) <= 40 else "…" + name[-39:]).replace("$", r"\$")
