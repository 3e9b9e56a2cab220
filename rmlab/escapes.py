r"""Names and texts from data, made harmless for where they are written: one function for each kind of place.

Nothing that came from a file, a model or a person may act in what rmlab writes. Whoever writes HTML, Markdown, LaTeX,
CSV or to a terminal passes such text through here, headings as well as cells.
"""

import html as stdlib
import re
from collections.abc import Callable, Hashable

import pandas as pd

from rmlab.tables import DataError

__all__ = ["cell", "csv", "html", "latex", "line", "markdown", "uncell", "uncells", "visible"]

# Each of these would hide, reorder or break what stands around it, or command a terminal.
_UNSEEN = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff\ufeff"
_CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f{_UNSEEN}]")
_NAMES = {0x202A: "LRE", 0x202B: "RLE", 0x202C: "PDF", 0x202D: "LRO", 0x202E: "RLO", 0x2066: "LRI", 0x2067: "RLI",
          0x2068: "FSI", 0x2069: "PDI", 0x061C: "ALM", 0x200E: "LRM", 0x200F: "RLM", 0x2028: "LS", 0x2029: "PS",
          0xFEFF: "BOM"}  # fmt: skip


def visible(text: object) -> str:
    """Text for a terminal, or to be escaped further: control characters are shown, line ends and tabs stay.

    >>> visible("a\\x00b\\u202ec")
    'a␀b⟨RLO⟩c'
    """
    return _CONTROL.sub(_shown, str(text).replace("\r\n", "\n"))


def line(text: object) -> str:
    """Text for one line of a terminal or of a table: no line ends, and one space wherever white space was."""
    return visible(" ".join(str(text).split()))


def html(text: object) -> str:
    """Text for an element or a quoted attribute of HTML."""
    return stdlib.escape(visible(text), quote=True)


_MARKDOWN = re.compile(r"([\\`*_\[\]|#~$!{}@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)


def markdown(text: object) -> str:
    r"""Text for a cell of a Markdown table: no markup, no HTML, no link, no formula.

    >>> markdown("a|b $x$ <i> https://x.org")
    'a\\|b \\$x\\$ &lt;i&gt; https\\://x.org'
    """
    return stdlib.escape(_MARKDOWN.sub(r"\\\1", line(text)), quote=False)


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "[": "{[}", "]": "{]}", "`": r"\textasciigrave{}",
}  # fmt: skip


def latex(text: object) -> str:
    """Text for LaTeX: no command, no formula, no comment, no end of a cell or row; hyphens do not join to a dash."""
    ascii_only = _CONTROL.sub(lambda found: f"<U+{ord(found.group()):04X}>", " ".join(str(text).split()))
    made = "".join(_LATEX.get(character, character) for character in ascii_only)
    return re.sub("-(?=-)", "-{}", made)


# What a spreadsheet takes for a formula, at the start of a cell or behind the separator of other locales.
_FORMULA = r"\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]"
_START = re.compile(rf"(^|;)(?='*{_FORMULA})")
_QUOTED = re.compile(rf"(^|;)'(?='*{_FORMULA})")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?inf", re.ASCII)
_CODE = r"u[0-9a-f]{4}"
_TO_CODE = re.compile(rf"(\\*)(?:([\x00-\x1f{_UNSEEN}])|(?={_CODE}))")
_FROM_CODE = re.compile(rf"(\\+)({_CODE})")


def cell(text: str) -> str:
    r"""Text for a cell of CSV that no spreadsheet runs and no terminal obeys; `uncell` gives the text back exactly.

    A quote stands before what would be a formula (numbers are none), and a control character is written as \u001b.
    Where a text has such a quote or code of its own it gets one more quote, or its backslashes twice.

    >>> cell("=1+1"), cell("-0.5"), cell("owner/name"), cell("\x1b[31m")
    ("'=1+1", '-0.5', 'owner/name', '\\u001b[31m')
    """
    coded = _TO_CODE.sub(_coded, text)
    return coded if _NUMBER.fullmatch(coded) else _START.sub(r"\1'", coded)


def uncell(text: str) -> str:
    """The text of which `cell` made this."""
    return _FROM_CODE.sub(_decoded, _QUOTED.sub(r"\1", text))


def csv(frame: pd.DataFrame, *, index: bool = False) -> str:
    """A table as CSV, every float to its last digit; headings, labels and texts go through `cell`."""
    made = frame.set_axis(_labels(frame.columns, cell), axis=1)
    if index:
        made = made.set_axis(_labels(frame.index, cell), axis=0)
    return str(_mapped(made, cell).to_csv(index=index, lineterminator="\n"))


def uncells(frame: pd.DataFrame) -> pd.DataFrame:
    """A table that was read from CSV, with `uncell` on headings and texts; DataError where two headings become one."""
    columns = _labels(frame.columns, uncell)
    if not columns.is_unique:
        double = str(columns[columns.duplicated()][0])
        raise DataError(f"the header names the column {double!r} twice, with and without a quote; rename one of them")
    return _mapped(frame.set_axis(columns, axis=1), uncell)


def _mapped(frame: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The table with all strings changed; columns of numbers, and of strings that stay as they are, are not touched."""
    if frame.shape[1] == 0:
        return frame
    return pd.concat([_column(frame.iloc[:, place], change) for place in range(frame.shape[1])], axis=1)


def _column(values: pd.Series, change: Callable[[str], str]) -> pd.Series:
    if pd.api.types.is_numeric_dtype(values.dtype):
        return values
    there = values if values.dtype == object else values.unique()  # lists in a column cannot be told apart by hash
    found = {x: change(x) for x in there if isinstance(x, str)}
    changed = {old: new for old, new in found.items() if old != new}
    if not changed:
        return values
    plain = values.astype(object) if isinstance(values.dtype, pd.CategoricalDtype) else values
    return plain.map(lambda x: changed.get(x, x) if isinstance(x, str) else x)


def _labels(labels: pd.Index, change: Callable[[str], str]) -> pd.Index:
    names: list[Hashable] = [change(name) if isinstance(name, str) else name for name in labels.names]
    if isinstance(labels, pd.MultiIndex):
        return labels.set_levels([list(_labels(level, change)) for level in labels.levels]).set_names(names)
    made: list[object] = [change(label) if isinstance(label, str) else label for label in labels]
    same = all(new is old or new == old for new, old in zip(made, labels, strict=True))
    return (labels if same else pd.Index(made, tupleize_cols=False)).set_names(names)


def _shown(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨{_NAMES[code]}⟩" if code in _NAMES else "�"


def _coded(found: re.Match[str]) -> str:
    """Backslashes before a code are written twice, so that an odd number of them says: a code of ours."""
    character = found[2]
    return found[1] * 2 + (f"\\u{ord(character):04x}" if character else "")


def _decoded(found: re.Match[str]) -> str:
    backslashes, code = "\\" * (len(found[1]) // 2), found[2]
    return backslashes + (chr(int(code[1:], 16)) if len(found[1]) % 2 else code)
