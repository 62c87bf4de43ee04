"""Which tool wrote a text, by what is in it; and what it says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runbook import cells
from runbook.cells import Cell
from runbook.errors import BadInput
from runbook.foreign import aiperf, genai_perf, guidellm, sglang, vllm
from runbook.foreign.document import Fields, values_in
from runbook.foreign.result import Result


@dataclass(frozen=True)
class Format:
    """A tool's result file; ``definitions``: how its figures differ from this project's."""

    tool: str
    definitions: tuple[str, ...]
    fits: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Fields], Iterator[Result]]


FORMATS = tuple(
    Format(room.TOOL, room.DEFINITIONS, room.fits, room.read)
    for room in (guidellm, genai_perf, aiperf, vllm, sglang)
)
KNOWN = ", ".join([*(one.tool for one in FORMATS), "a CSV or JSONL of cells"])

_NEEDED = {"config", "concurrency", "output_tok_s"}


class UnknownForm(BadInput):
    """A text that is whole, and no result file of a tool that is known."""


def read_text(text: str, source: str) -> list[tuple[str, Cell]] | list[Result]:
    """Cells of a table with their places, or results of a tool. Raises ``BadInput`` with file and
    place."""
    if not text.strip().startswith(("{", "[")):
        rows = cells.placed_from_csv(text, source)
        if not rows:
            raise BadInput(
                f"{source}: a header and no row", "a line a cell", "measure, then choose"
            )
        return rows
    values = values_in(text, source)
    if values and all(isinstance(one, Mapping) and set(one) >= _NEEDED for _, one in values):
        return cells.placed_from_rows(values, source)
    found = [result for place, value in values for result in _results(value, place)]
    if not found:
        raise BadInput(f"{source}: no result in it", f"a result of {KNOWN}", "measure, then choose")
    return found


def _results(value: Any, place: str) -> Iterator[Result]:
    if not isinstance(value, Mapping):
        raise UnknownForm(f"{place}: {type(value).__name__}, no object", f"a result of {KNOWN}")
    for one in FORMATS:
        if one.fits(value):
            return one.read(Fields(value, place))
    shown = ", ".join(ascii(key) for key in list(value)[:5]) or "nothing"
    raise UnknownForm(
        f"{place}: an object of no known form (it holds {shown})",
        f"a result of {KNOWN}",
        "give the file that holds the figures of a run, not one beside it",
    )
