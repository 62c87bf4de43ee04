"""Several values for one configuration, life and concurrency: never averaged unsaid. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from runbook.cells import Cell, point_label
from runbook.checks import counted
from runbook.errors import BadInput

_SHOWN = 4


@dataclass(frozen=True)
class Placed:
    """A cell with its file and line. ``run``: the mark of a repetition within a life, if any."""

    place: str
    cell: Cell
    run: str = ""


def each_once(rows: Sequence[Placed]) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """The cells, equal rows once, and what is to be told of them.

    Raises ``BadInput`` with the lines where rows differ that nothing declares to be different.
    """
    groups: dict[tuple[object, ...], list[Placed]] = {}
    for row in rows:
        groups.setdefault((*_key(row.cell), row.run), []).append(row)
    kept, notes = [], []
    for own in groups.values():
        _refuse_different(own)
        kept.append(own[0])
        if len(own) > 1:
            notes.append(
                f"{_named(own[0].cell)} stands {len(own)} times with equal figures and counts "
                f"once: {_listed([row.place for row in own])}"
            )
    return tuple(row.cell for row in kept), (*notes, *_repetitions(kept))


def _key(cell: Cell) -> tuple[object, ...]:
    return (
        *(cell.config, cell.life, cell.block),
        *(cell.concurrency, cell.context_tokens, cell.rate_s),
    )


def _refuse_different(own: Sequence[Placed]) -> None:
    first = own[0]
    other = next((row for row in own if row.cell != first.cell), None)
    if other is None:
        return
    before, after = asdict(first.cell), asdict(other.cell)
    differing = [name for name in before if before[name] != after[name]]
    shown = "output_tok_s" if "output_tok_s" in differing else differing[0]
    each = [f"{row.place}: {getattr(row.cell, shown)}" for row in own]
    raise BadInput(
        f"{_named(first.cell)} has several values of {shown} ({_listed(each)})",
        "one value for a configuration, life and concurrency",
        "take out the wrong one, or say what sets them apart: in a column (life, block), or in "
        "the names of files and folders (life2, run2)",
    )


def _repetitions(rows: Sequence[Placed]) -> Iterator[str]:
    """Runs of one life that were declared as repetitions: their mean counts."""
    runs: dict[tuple[object, ...], list[Placed]] = {}
    for row in rows:
        runs.setdefault(_key(row.cell), []).append(row)
    for own in runs.values():
        if len(own) > 1:
            yield (
                f"{_named(own[0].cell)} was measured in {counted(len(own), 'run')} of one life "
                f"({_listed([row.run or 'unmarked' for row in own])}): their mean counts"
            )


def _named(cell: Cell) -> str:
    at = point_label(cell.concurrency, cell.context_tokens)
    return f"{cell.config} at {at}, life {cell.life}, block {cell.block},"


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
