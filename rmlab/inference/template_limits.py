"""What a chat template may not do: draw at random, or run without end."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

# Lines of the compiled template for one conversation; long conversations take some ten
# thousand.
STEPS = 2_000_000

# A block of transformers' own that Jinja does not know.
_GENERATION = re.compile(r"{%[-+]?\s*(end)?generation\s*[-+]?%}")


@cache
def draws(jinja: str) -> bool:
    """Whether a template takes an item at random or writes random words.

    Its prose may hold the same words, and only its expressions count. False for a
    template that cannot be parsed.

    >>> draws("{{ ['a', 'b'] | random }}"), draws("{{ 'a | random order' }}")
    (True, False)
    """
    from jinja2 import Environment, TemplateError, nodes
    from jinja2.meta import find_undeclared_variables

    environment = Environment(extensions=["jinja2.ext.loopcontrols"])
    # Jinja's own globals, which every template gets, do not count as declared.
    environment.globals.clear()
    try:
        tree = environment.parse(_GENERATION.sub("", jinja))
        names = find_undeclared_variables(tree)
    # The renderer says what is wrong with it.
    except (TemplateError, RecursionError):
        return False

    for node in tree.find_all(nodes.Filter):
        names.add(node.name)
        if node.name == "map" and node.args:
            mapped = node.args[0]
            if isinstance(mapped, nodes.Const):
                names.add(mapped.value)
            else:
                # A name that is only known while the template runs may be this one.
                names.add("random")
    return not names.isdisjoint({"random", "lipsum"})


@contextmanager
def limited() -> Iterator[None]:
    """Raise RuntimeError where a template in the block runs for more than STEPS lines.

    Lines, not seconds: the same conversation is refused on every machine or on none.
    """
    tracer = sys.gettrace()
    n_left = STEPS

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal n_left
        n_left -= 1
        if n_left < 0:
            raise RuntimeError(f"it does not come to an end within {STEPS:,} steps")
        return count

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        # The name under which Jinja compiles templates.
        return count if frame.f_code.co_filename == "<template>" else None

    sys.settrace(enter)
    try:
        yield
    finally:
        # A debugger or coverage may have been tracing.
        sys.settrace(tracer)
