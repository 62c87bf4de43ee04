"""Figures that were measured elsewhere, in the place of a benchmark.

The run folder keeps them as they were given. What the run adds is one start of the configuration
that is to be installed: its launch, load time and settings are recorded, and one short cell is
compared with the figures.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runbook import cells
from runbook.benchmark.measure import OnCell, measure
from runbook.benchmark.measurements import Measurements, place_of, shorten
from runbook.cells import Cell
from runbook.checks import Check
from runbook.engines.base import Engine
from runbook.errors import BadInput, NotHere
from runbook.launch.server import Launcher
from runbook.run import Run

#: The check that compares the confirming cell with the figures.
CONFIRMED = "confirming cell"

_FOLDER = "given"
_CELLS = f"{_FOLDER}/cells.csv"
_SOURCES = f"{_FOLDER}/sources.json"
_CONFIRMING = "confirming"
_REQUESTS = 4


def keep(run: Run, found: Sequence[Cell], notes: Sequence[str], files: Sequence[Path]) -> None:
    """Keep figures in a run: ``found`` are the cells that ``files`` hold, ``notes`` what a reader
    of the decision must know of them. Raises ``BadInput`` where the run measures for itself."""
    if not is_given(run) and (run.path / "cells.csv").exists():
        raise BadInput(
            f"{run.path} holds cells that this run measured itself",
            "figures for a new run",
            "leave --out away",
        )
    sources = []
    for number, path in enumerate(files, 1):
        data = path.read_bytes()
        run.write(f"{_FOLDER}/{number}-{path.name}", data)
        digest = hashlib.sha256(data).hexdigest()
        sources.append({"path": str(path.resolve()), "sha256": digest})
    run.write(_CELLS, cells.to_csv(found))
    run.write_json(_SOURCES, {"sources": sources, "notes": list(notes)})


def is_given(run: Run) -> bool:
    """Whether the figures of this run were measured elsewhere."""
    return (run.path / _CELLS).is_file()


def is_confirmed(run: Run, configuration: str) -> bool:
    """Whether the confirming cell of this configuration agreed with the figures."""
    measured = run.read_json("measured.json") or {}
    rows = measured.get("guards") or []
    names = {row["name"]: row["status"] for row in rows}
    return names.get(_name(configuration)) == "pass"


def confirm(
    run: Run,
    configuration: str,
    launcher: Launcher,
    engine: Engine,
    on_cell: OnCell,
    stack: Mapping[str, Any],
) -> Measurements:
    """Take the figures as the run's cells, start ``configuration`` once and compare one cell.

    The lowest concurrency that the figures have of it is measured; cells that are void are taken
    only where there are no others. A launch that was recorded before and still stands is not
    started again. Raises what ``measure`` raises, and ``NotHere`` where the figures have nothing
    of ``configuration``.
    """
    figures = cells.read(run.path / _CELLS)
    given = run.read_json(_SOURCES) or {}
    own = [cell for cell in figures if cell.config == configuration and cell.output_tok_s]
    own = [cell for cell in own if cell.usable] or own
    if not own:
        raise NotHere(
            f"the figures have nothing of {configuration}",
            "figures of the configuration that is to be installed",
            "choose one that they have, or measure: runbook run PARAMS",
        )
    place = min(own, key=lambda cell: (cell.concurrency, cell.context_tokens or 0))
    short = _short_run(run, configuration, place)
    found = measure(short, launcher, engine, on_cell, stack=stack)
    check = _compare(own, place, found.cells[-1], run.params.choose.figures_bound)
    before = run.read_json("measured.json") or {}
    others = [row for row in before.get("guards", []) if row["name"] != check.name]
    paths = ", ".join(source["path"] for source in given.get("sources", []))
    notes = [f"the figures are of {paths}: they were not measured by this run", *given["notes"]]
    run.write("cells.csv", cells.to_csv(figures))
    launches = {**(run.read_json("launches.json") or {}), **found.launches}
    run.write_json("launches.json", launches)
    state = {"figures_of": paths, "sources": given.get("sources", []), "notes": notes}
    run.write_json("measured.json", {**state, "remarks": [], "guards": [*others, asdict(check)]})
    return Measurements(tuple(figures), launches, tuple(notes), (check,))


def _short_run(run: Run, configuration: str, place: Cell) -> Run:
    """One start and one short cell, with artefacts of their own below the run."""
    folder = run.path / _CONFIRMING / configuration
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    short = {
        "concurrencies": [place.concurrency],
        "blocks": 1,
        "requests": max(_REQUESTS, 2 * place.concurrency),
        "rounds": 1,
    }
    params = run.params
    share = params.choose.mix[0].model_copy(
        update={
            "concurrency": place.concurrency,
            "context_tokens": place.context_tokens,
            "share": 1.0,
        }
    )
    changed = {
        "benchmark": params.benchmark.model_copy(update=short),
        "configurations": [params.configuration(configuration)],
        "choose": params.choose.model_copy(update={"mix": [share]}),
    }
    return Run(folder, params.model_copy(update=changed))


def _compare(own: Sequence[Cell], place: Cell, found: Cell, bound: float) -> Check:
    """The confirming cell against the mean of the figures at its place."""
    here = [cell.output_tok_s for cell in own if place_of(cell) == place_of(place)]
    given = statistics.fmean(value for value in here if value)
    wanted = f"{given:.1f} tok/s at {place_of(place)}, as given, within {bound:.0%}"
    fix = (
        "find what differs (prompts, output length, load, clocks); or measure here: "
        "runbook run PARAMS without --figures"
    )
    name = _name(found.config)
    if found.output_tok_s is None or found.status != "ok":
        return Check(name, "fail", f"{found.status}: {shorten(found.note)}", wanted, fix)
    change = found.output_tok_s / given - 1
    agrees = abs(change) <= bound
    said = f"{found.output_tok_s:.1f} tok/s ({change:+.1%})"
    return Check(name, "pass" if agrees else "fail", said, wanted, "" if agrees else fix)


def _name(configuration: str) -> str:
    return f"{CONFIRMED} of {configuration}"
