"""One cell: one configuration, one life, one concurrency. The row of ``cells.csv``."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from runbook.errors import BadInput

CellStatus = Literal["ok", "void", "server_died", "not_run"]


#: A server that ran fewer at once than this share of what was asked is not called by that number.
BUSY_SHARE = 0.9

#: The word in the note of a void cell whose requests waited for the server, and were not run.
QUEUE_LIMITED = "queue-limited"

#: The words in the note of a void cell that did other work than the baseline's.
UNLIKE_WORK = "not the same work"


@dataclass(frozen=True)
class Cell:
    """Figures of one cell; ``None`` is unknown. ``life`` is numbered over the whole run.

    ``requests``: sent, 0 where not told. ``tokens_in``, ``tokens_out``: mean of an answered
    request. ``output_tok_s``: output tokens of usage per second of wall clock. ``ttfat``: time to
    the first token that is no reasoning. ``tpot``: time per output token after the first;
    ``chunk_gap``: from event to event, which may bear several tokens, and the greatest of all.
    ``e2e``: end to end, from the scheduled start to the last event.
    ``age_s``: of the server, from its readiness to the begin of the cell. ``running``: requests
    that it ran at once on average, by its own word, ``None`` where it tells none.
    ``client_share``: of a core, that of the busiest load worker; ``loop_lag_ms``: how late its
    event loop was, 99th percentile. ``round_trip_ms``, ``way_lag_ms``: of the way to a server on
    another host (``load.way``), ``None`` where it is on this one. ``rate_s``: requests a second
    that an open loop sent, ``None`` for a closed loop. ``void``: measured, but not to be compared
    (``note`` says why).
    """

    config: str
    life: int
    block: int
    concurrency: int
    context_tokens: int | None = None
    requests: int = 0
    tokens_in: float | None = None
    tokens_out: float | None = None
    output_tok_s: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    ttfat_p50_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p99_ms: float | None = None
    chunk_gap_p50_ms: float | None = None
    chunk_gap_max_ms: float | None = None
    e2e_p50_ms: float | None = None
    e2e_p99_ms: float | None = None
    accept_length: float | None = None
    client_share: float | None = None
    loop_lag_ms: float | None = None
    round_trip_ms: float | None = None
    way_lag_ms: float | None = None
    max_in_flight: int | None = None
    running: float | None = None
    age_s: float | None = None
    rate_s: float | None = None
    errors: int = 0
    status: CellStatus = "ok"
    note: str = ""

    @property
    def usable(self) -> bool:
        """Whether the cell may be compared."""
        return self.status == "ok" and self.output_tok_s is not None

    @property
    def ran_fewer(self) -> bool:
        """Whether its server ran fewer requests at once, by its own word, than it is called by."""
        if self.running is None:
            return False
        short = self.concurrency - self.running
        return self.running < BUSY_SHARE * self.concurrency and short > 1

    @property
    def completed(self) -> int | None:
        """Requests that were answered; ``None`` where the requests sent are not told."""
        return max(self.requests - self.errors, 0) if self.requests else None

    @property
    def unmeasured(self) -> bool:
        """Whether there is no figure because nothing was measured, by its status or for lack of
        requests and reasons."""
        if self.status == "not_run":
            return True
        return (
            self.output_tok_s is None
            and not (self.requests or self.note)
            and (self.status != "server_died")
        )

    @property
    def queue_limited(self) -> bool:
        """Whether it is void because its server ran fewer requests at once than were asked."""
        return self.status == "void" and QUEUE_LIMITED in self.note

    @property
    def mark(self) -> str:
        """The name of the cell in the run: ``life1-c8``, or ``life1-c8-65536``."""
        context = "" if self.context_tokens is None else f"-{self.context_tokens}"
        return f"life{self.life}-c{self.concurrency}{context}"


def point_label(concurrency: int, context_tokens: int | None) -> str:
    """The one name of a measured point: ``C=8``, or ``C=8 context 65536``."""
    at = "" if context_tokens is None else f" context {context_tokens}"
    return f"C={concurrency}{at}"


def to_csv(cells: Iterable[Cell]) -> str:
    """``cells.csv`` as text; ``None`` is an empty field."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Cell)], lineterminator="\n")
    writer.writeheader()
    for cell in cells:
        row = {key: "" if value is None else value for key, value in asdict(cell).items()}
        for key, value in row.items():
            if isinstance(value, float):
                row[key] = f"{value:.6g}"
        writer.writerow(row)
    return out.getvalue()


def from_csv(text: str, source: str = "cells.csv") -> list[Cell]:
    """Cells from a table with at least config, concurrency and output_tok_s; a line each.

    An empty or missing value takes the field's default. Without ``life`` all is one life; without
    ``block`` the lives of a configuration, in their order, are its blocks. Foreign columns are
    ignored. Raises ``BadInput`` with line and column.
    """
    return [cell for _, cell in placed_from_csv(text, source)]


def placed_from_csv(text: str, source: str) -> list[tuple[str, Cell]]:
    """The same, each cell with its file and line."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")), skipinitialspace=True)
    try:
        columns = [(name or "").strip() for name in reader.fieldnames or ()]
        _require_columns(columns, source)
        reader.fieldnames = columns
        rows = [(f"{source} line {reader.line_num}", row) for row in reader]
    except csv.Error as error:
        raise BadInput(
            f"{source} line {reader.line_num}: no CSV ({error})",
            "a table, a line a cell",
            "correct the line",
        ) from None
    return _with_blocks([(place, _parse_row(row, place)) for place, row in rows], columns)


def read(path: Path) -> list[Cell]:
    """The cells of a file as ``from_csv`` reads them; none where there is no file."""
    return from_csv(path.read_text("utf-8", "replace"), str(path)) if path.is_file() else []


def from_rows(rows: Iterable[tuple[str, Mapping[str, Any]]], source: str) -> list[Cell]:
    """Cells from objects with the names of the columns, each with its place: as ``from_csv``."""
    return [cell for _, cell in placed_from_rows(rows, source)]


def placed_from_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]], source: str
) -> list[tuple[str, Cell]]:
    """The same, each cell with its place."""
    found: list[tuple[str, Cell]] = []
    columns: set[str] = set()
    for where, row in rows:
        for name, value in row.items():
            if not isinstance(value, str | int | float | None) or isinstance(value, bool):
                wanted = "a text or a number"
                raise BadInput(
                    f"{where}, column {name}: {type(value).__name__}", wanted, "correct the line"
                )
        columns.update(row)
        found.append((where, _parse_row(row, where)))
    _require_columns(columns, source)
    return _with_blocks(found, columns)


def _require_columns(columns: Collection[str], source: str) -> None:
    missing = [name for name in ("config", "concurrency", "output_tok_s") if name not in columns]
    if missing:
        raise BadInput(
            f"{source} has no column {', '.join(missing)}",
            "a header line with config, concurrency, output_tok_s",
            f"add the header to {source}",
        )


def _parse_row(row: Mapping[str, Any], where: str) -> Cell:
    values: dict[str, Any] = {"life": 1, "block": 1}
    for field in fields(Cell):
        text = "" if row.get(field.name) is None else str(row[field.name]).strip()
        if text:
            values[field.name] = _parse(text, str(field.type), f"{where}, column {field.name}")
        elif field.name in ("config", "concurrency"):
            raise BadInput(f"{where}: {field.name} is empty", "a value", "complete the line")
    return Cell(**values)


def _parse(text: str, kind: str, where: str) -> Any:
    """A value of a column as the annotation ``kind`` wants it."""
    if kind == "str":
        return text
    if kind == "CellStatus":
        if text in get_args(CellStatus):
            return text
        raise BadInput(
            f"{where}: {text!r}", "one of " + ", ".join(get_args(CellStatus)), "correct the line"
        )
    whole = kind.startswith("int")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf or (whole and not number.is_integer()):
        wanted = "a whole number" if whole else "a number"
        raise BadInput(f"{where}: {text!r}", f"{wanted}, 0 or more", "correct the line")
    return int(number) if whole else number


def _with_blocks(cells: list[tuple[str, Cell]], columns: Collection[str]) -> list[tuple[str, Cell]]:
    """Without a column for them, the lives of a configuration are its blocks, by their numbers."""
    if "block" in columns:
        return cells
    lives: dict[str, set[int]] = {}
    for _, cell in cells:
        lives.setdefault(cell.config, set()).add(cell.life)
    numbers = {
        config: {life: at for at, life in enumerate(sorted(own), 1)}
        for config, own in lives.items()
    }
    return [(at, replace(cell, block=numbers[cell.config][cell.life])) for at, cell in cells]
