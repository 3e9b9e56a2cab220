"""Text made harmless for HTML, Markdown, LaTeX, CSV, a terminal or an error message."""

import html
import re

import pandas as pd

# Characters that command a terminal, break a line, reverse the text around them, or
# cannot be written as UTF-8.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f"
    "\ufff9-\ufffb\ud800-\udfff\ufeff]"
)
# The last two stop GitHub from turning addresses into links.
_MARKDOWN = re.compile(r"[\\`*_\[\]|#~$!{}@]|:(?=//)|(?<=www)\.", re.IGNORECASE)
_LATEX = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "`": r"\textasciigrave{}",
        "[": "{[}",
        "]": "{]}",
        "\ufffd": "?",
    }
)
# https://owasp.org/www-community/attacks/CSV_Injection; a negative number is not a
# formula.
_FORMULA = re.compile(
    r"^'*\s*(?![-+](\d+\.?\d*|\.\d+)(e[-+]?\d+)?$|[-+]inf$)"
    r"[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]",
    re.IGNORECASE,
)


def visible(text: object) -> str:
    r"""Text for a terminal: control characters become �; line ends and tabs stay.

    >>> visible("a\x00b\u202ec")
    'a�b�c'
    """
    unix_text = str(text).replace("\r\n", "\n")
    return _CONTROL.sub("\ufffd", unix_text)


def line(text: object) -> str:
    """Text for one line of a terminal or a table: white space becomes single spaces."""
    words = str(text).split()
    return _CONTROL.sub("\ufffd", " ".join(words))


def escape_html(text: object) -> str:
    """Text for an element or a quoted attribute of HTML."""
    return html.escape(visible(text))


def escape_markdown(text: object) -> str:
    r"""Text for a cell of a Markdown table: no markup, HTML, link or formula.

    >>> escape_markdown("a|b $x$ <i> https://x.org")
    'a\\|b \\$x\\$ &lt;i&gt; https\\://x.org'
    """
    escaped = _MARKDOWN.sub(r"\\\g<0>", line(text))
    return html.escape(escaped, quote=False)


def escape_latex(text: object) -> str:
    """Text for LaTeX: no command, formula, comment or end of a cell, and no dash."""
    escaped = line(text).translate(_LATEX)
    return re.sub("-(?=-)", "-{}", escaped)  # two hyphens would join


def format_csv(frame: pd.DataFrame, *, index: bool = False) -> str:
    """A table for people as CSV, with a quote before what would run as a formula."""
    if index:
        frame = frame.rename(index=_guard_formula).rename_axis(index=_guard_formula)
    columns = frame.columns.map(_guard_formula)
    guarded = frame.map(_guard_formula).set_axis(columns, axis=1)
    return guarded.to_csv(index=index, lineterminator="\n")


def guard_formula(text: str) -> str:
    """Text for a cell of CSV that no spreadsheet runs as a formula.

    `remove_guard` returns the text.

    >>> guard_formula("=1+1"), guard_formula("'=1"), guard_formula("-0.5")
    ("'=1+1", "''=1", '-0.5')
    """
    return _FORMULA.sub(r"'\g<0>", text)


def remove_guard(text: str) -> str:
    """The text of which `guard_formula` made this."""
    is_guarded = text.startswith("'") and _FORMULA.match(text)
    return text[1:] if is_guarded else text


def short(value: object, limit: int = 80) -> str:
    """`repr(value)` for an error message, cut to `limit` characters."""
    if isinstance(value, str | list | tuple):
        value = value[:limit]
    text = repr(value)
    if len(text) > limit:
        text = f"{text[: limit - 3]}..."
    return text


def _guard_formula(value: object) -> object:
    if isinstance(value, str):
        return guard_formula(visible(value))
    return value
