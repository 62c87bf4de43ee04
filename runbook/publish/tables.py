"""GitHub tables from rows. Whatever a server, a model or a log said is text here, never markup."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runbook.progress import in_jupyterlab

if TYPE_CHECKING:
    import pandas

UNKNOWN = "unknown"

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ESCAPES = re.compile(
    r"""\x1b\[[0-?]*[ -/]*[@-~]      # CSI: colours, cursor
      | \x1b[\]PX^_].*?(?:\x07|\x1b\\|$)  # OSC and other strings
      | \x1b[ -/]*[0-~]              # the short ones""",
    re.VERBOSE | re.DOTALL,
)
_MARKUP = re.compile(
    r"[\\`*\[\]<|~$&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=\w):(?=//)|(?<=www)\."
)
_LINE_START = re.compile(r"^(?:([-+](?=[\s-]|$)|[=#>:])|(\d{1,9})([.)])(?=\s|$))")


@dataclass(frozen=True)
class Markdown:
    """Finished Markdown. JupyterLab shows its tables in a style of ours, any other Jupyter and the
    record take the Markdown, a terminal prints it as it is."""

    text: str

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        bundle = {"text/markdown": self.text, "text/plain": self.text}
        if in_jupyterlab() and "\n| " in f"\n{self.text}":
            from runbook.publish.lab import as_html

            bundle["text/html"] = as_html(self.text)
        return bundle

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


class Code(str):
    """Text that a table shows as a code span."""


def strip_controls(text: str) -> str:
    """``text`` without terminal escapes; other control, bidi and surrogate marks become U+FFFD."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    return "".join(
        "\ufffd"
        if (unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t") or char in _BIDI
        else char
        for char in text
    )


def _one_line(text: str) -> str:
    return " ".join(strip_controls(text).split())


def escape(text: str) -> str:
    """``text`` as one line of Markdown that renders to its very characters (blanks collapsed)."""
    return _LINE_START.sub(
        lambda match: f"\\{match[1]}" if match[1] else f"{match[2]}\\{match[3]}", _inline(text)
    )


def _inline(text: str) -> str:
    """As ``escape``, for text that never begins a line."""
    return _MARKUP.sub(lambda match: "\\" + match.group(), _one_line(text))


def code(text: str) -> str:
    """``text`` as one code span (blanks collapsed); nothing becomes ``(empty)``."""
    line = _one_line(text)
    if not line:
        return "(empty)"
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return "`" * (longest + 1) + pad + line + pad + "`" * (longest + 1)


def fence(text: str, language: str = "") -> str:
    """``text`` as a fenced block that no line of it can end."""
    body = strip_controls(text).rstrip("\n")
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{body}\n{ticks}"


def number(value: float, decimals: int | None = None) -> str:
    """A figure for people: four significant digits, whole above 1000, or ``decimals`` places."""
    if not math.isfinite(value):
        return UNKNOWN
    if isinstance(value, int) and decimals is None:
        return str(value)
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def cell(value: Any, decimals: int | None = None) -> str:
    """One value as the content of a table cell; ``None``, NaN and NA are ``unknown``."""
    if isinstance(value, Markdown):
        return value.text.replace("\n", " ")
    if isinstance(value, Code):
        return code(value).replace("|", "\\|")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_number(value):
        return number(value, decimals)
    if _is_missing(value):
        return UNKNOWN
    return _inline(str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    return type(value).__name__ in ("NAType", "NaTType")


def table(
    rows: Iterable[Mapping[str, Any]] | pandas.DataFrame,
    columns: Sequence[str] = (),
    *,
    right: Collection[str] = (),
    decimals: Mapping[str, int] | None = None,
    empty: str = "Nothing was recorded.",
) -> Markdown:
    """A GitHub table of ``rows``.

    ``columns``: which, in what order (default: as they first appear). ``right``: columns of text
    to set flush right; columns of numbers always are. ``decimals``: places by column. A missing
    value is ``unknown``; without rows the table is the sentence ``empty``.
    """
    records = _records(rows)
    if not records:
        return Markdown(f"*{empty}*")
    names = list(columns) or list(dict.fromkeys(key for record in records for key in record))
    flush = [name in right or _is_numeric(record.get(name) for record in records) for name in names]
    lines = [
        _line(cell(str(name)) for name in names),
        _line("---:" if is_right else ":---" for is_right in flush),
    ]
    places = decimals or {}
    for record in records:
        lines.append(_line(cell(record.get(name), places.get(name)) for name in names))
    return Markdown("\n".join(lines))


def _records(rows: Iterable[Mapping[str, Any]] | pandas.DataFrame) -> list[dict[str, Any]]:
    to_dict = getattr(rows, "to_dict", None)
    plain: Iterable[Mapping[str, Any]] = to_dict("records") if to_dict else rows  # type: ignore[assignment]
    return [{str(key): _scalar(value) for key, value in row.items()} for row in plain]


def _scalar(value: Any) -> Any:
    """A NumPy scalar as plain Python."""
    item = getattr(value, "item", None)
    return item() if item and type(value).__module__ == "numpy" else value


def _is_numeric(values: Iterable[Any]) -> bool:
    known = [value for value in values if not _is_missing(value)]
    return bool(known) and all(_is_number(value) for value in known)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def titled_list(title: str, items: Iterable[object]) -> str:
    """A list of untrusted texts under a line of title; nothing when there is no item."""
    lines = [f"- {escape(str(item))}" for item in items]
    return "\n".join([f"{title}:", "", *lines]) if lines else ""


def joined(*parts: object) -> Markdown:
    """The parts that are not empty, a blank line between them."""
    return Markdown("\n\n".join(str(part) for part in parts if str(part)))
