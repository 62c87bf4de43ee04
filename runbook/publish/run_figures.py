"""The figures of a run folder, a cell each: read, drawn, and kept there.

``keep``: whether ``figures/<name>.png`` is written into the run folder. Nothing to draw is no
error: the figure is empty and its text says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from runbook.cells import Cell
from runbook.errors import NotHere
from runbook.load.records import Record
from runbook.publish import figures
from runbook.publish.artefacts import Artefacts
from runbook.publish.figure import Figure


def throughput(run_path: Path, keep: bool = True) -> Figure:
    """Output throughput by concurrency."""
    return _of_cells(figures.throughput, run_path, keep)


def user_speed(run_path: Path, keep: bool = True) -> Figure:
    """Speed of one user against the throughput of all."""
    return _of_cells(figures.user_speed, run_path, keep)


def acceptance(run_path: Path, keep: bool = True) -> Figure:
    """Acceptance length by concurrency."""
    return _of_cells(figures.acceptance, run_path, keep)


def run_order(run_path: Path, keep: bool = True) -> Figure:
    """Throughput against the own mean in the order run, with what the test of a slope found."""
    found = Artefacts.of(run_path)
    drift = next((str(one["found"]) for one in found.guards if one["name"] == "drift"), "")
    drawn = figures.run_order(found.cells, found.names, drift)
    return drawn.save(run_path) if keep else drawn


def ratio(run_path: Path, keep: bool = True) -> Figure:
    """Gain over the baseline as decided. Raises ``NotHere`` before the decision."""
    found = Artefacts.of(run_path)
    if found.decision is None:
        raise NotHere(
            f"{run_path} holds no decision.json", "a run with its choice made", "run 03_choose"
        )
    drawn = figures.ratio(found.cells, found.decision, found.names)
    return drawn.save(run_path) if keep else drawn


def latency(run_path: Path, keep: bool = True) -> Figure:
    """Distributions of TTFT and TPOT over the whole answers of usable cells."""
    found = Artefacts.of(run_path)
    usable = {one.mark: one for one in found.cells if one.usable}
    rows = [
        _with_times(row) | {"context_tokens": usable[row["cell"]].context_tokens}
        for row in found.requests()
        if row.get("cell") in usable and not row["error_kind"]
    ]
    drawn = figures.latency(rows, found.names)
    return drawn.save(run_path) if keep else drawn


def _of_cells(
    draw: Callable[[Sequence[Cell], Sequence[str]], Figure], run_path: Path, keep: bool
) -> Figure:
    found = Artefacts.of(run_path)
    drawn = draw(found.cells, found.names)
    return drawn.save(run_path) if keep else drawn


def _with_times(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of requests.jsonl with ``ttft_ms`` and ``tpot_ms``."""
    record = Record(**{one.name: row[one.name] for one in fields(Record) if one.name in row})
    return {**row, "ttft_ms": record.ttft_ms, "tpot_ms": record.tpot_ms}
