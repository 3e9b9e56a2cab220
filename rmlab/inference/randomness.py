"""Whether a chat template draws random text, told from its syntax, since its prose may hold the same words."""

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

__all__ = ["draws"]


class _Generation(Extension):
    """`{% generation %}` as transformers knows it: a block around what the assistant says."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def draws(jinja: str) -> bool:
    """Whether the template takes a random item or writes random words; a text that is not a template does not.

    >>> draws("{{ ['a', 'b'] | random }}"), draws("{{ 'a | random order' }}")
    (True, False)
    """
    try:
        tree = Environment(extensions=["jinja2.ext.loopcontrols", _Generation]).parse(jinja)
    except (TemplateError, RecursionError):  # the renderer says what is wrong with it
        return False
    names = list(tree.find_all(nodes.Name))
    words = {name.name for name in names if name.ctx == "load"} - {name.name for name in names if name.ctx != "load"}
    return "lipsum" in words or any(map(_takes_random, tree.find_all(nodes.Filter)))


def _takes_random(filtered: nodes.Filter) -> bool:
    """The filter itself, or `map` of it; a name that is only known while the template runs may be that one."""
    if filtered.name != "map" or not filtered.args:
        return filtered.name == "random"
    name = filtered.args[0]
    return not isinstance(name, nodes.Const) or name.value == "random"
