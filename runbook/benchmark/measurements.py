"""What the benchmark hands on: cells, launches, remarks; read from a run folder, and judged."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook import cells, intervals, params
from runbook.bounded import parse_json
from runbook.cells import Cell, point_label
from runbook.checks import Check, Verdict, counted
from runbook.errors import BadInput, NotHere

_LINE_CHARACTERS = 160
#: A cell this much below the median of its repeats is pointed out.
COLD_SHARE = 0.25
#: Below this many tokens a verify step, nothing is accepted but by chance.
USELESS_LENGTH = 1.05
#: What is counted over the requests of a cell, and alike in all configurations.
CACHED = "cached prompt tokens"
COUNTED = ("prompt tokens", "output tokens", CACHED)
#: A slope that chance gives this rarely is called drift.
DRIFT_P = 0.01

#: Cell key -> what -> tokens of the whole cell; ``None`` is unknown.
Totals = Mapping[str, Mapping[str, int | None]]


@dataclass(frozen=True)
class Measurements:
    """``launches``: configuration -> value of ``launches.json``. ``notes``: for the reader.
    ``checks``: of figures that were given, what the confirming cell showed."""

    cells: tuple[Cell, ...]
    launches: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


def key_of(cell: Cell) -> str:
    """What identifies a cell over all attempts at measuring it, in words."""
    return f"{cell.config}, block {cell.block}, {place_of(cell)}"


def place_of(cell: Cell) -> str:
    """Where a cell was measured: ``C=8``, or ``C=8, context 65536``."""
    return point_label(cell.concurrency, cell.context_tokens)


def by_place(cell: Cell) -> tuple[int, int]:
    """The order of places: by context, then by concurrency."""
    return cell.context_tokens or 0, cell.concurrency


def shorten(note: str) -> str:
    """The beginning of a note, for one line of text."""
    return note if len(note) <= _LINE_CHARACTERS else note[: _LINE_CHARACTERS - 3] + "..."


def load_measurements(path: Path) -> Measurements:
    """The measurements in a run folder. Raises ``NotHere`` without, ``BadInput`` when damaged."""
    try:
        table = (path / "cells.csv").read_text("utf-8", "replace")
    except FileNotFoundError:
        raise NotHere(
            f"no measurements in {path}", "cells.csv", "runbook run PARAMS --to benchmark"
        ) from None
    found = tuple(cells.from_csv(table, str(path / "cells.csv")))
    state = _read(path / "measured.json")
    remarks = state["remarks"] if "remarks" in state else compare_all(found, {})
    notes = [*state.get("notes", []), *remarks, *state.get("equality", [])]
    return Measurements(found, _read(path / "launches.json"), tuple(notes))


def _read(path: Path) -> dict[str, Any]:
    try:
        value = parse_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BadInput(
            f"{path}: {error}", "JSON as the runbook wrote it", "measure again: runbook run PARAMS"
        ) from None
    return value if isinstance(value, dict) else {}


def compare_all(found: Sequence[Cell], totals: Totals) -> list[str]:
    """What the cells say of each other, in sentences."""
    return [
        *find_useless_drafts(found),
        *compare_totals(found, totals),
        *find_cold(found),
        *find_drift(found),
    ]


def find_useless_drafts(found: Iterable[Cell]) -> list[str]:
    """A sentence for each configuration of which next to nothing was accepted anywhere."""
    lengths: dict[str, list[float]] = {}
    for cell in found:
        if cell.usable and cell.accept_length is not None and cell.config != params.BASELINE:
            lengths.setdefault(cell.config, []).append(cell.accept_length)
    return [
        f"{config}: nothing it drafts is accepted (acceptance length {max(own):.2f} at most): "
        "speculation only costs; see that the draft belongs to this target and to these prompts"
        for config, own in lengths.items()
        if max(own) < USELESS_LENGTH
    ]


def compare_totals(
    found: Iterable[Cell], totals: Totals, names: Sequence[str] = COUNTED
) -> list[str]:
    """Where configurations were not asked, or did not answer, the same number of tokens.

    One that took tokens from the prefix cache where another tells of none is told as well.
    """
    usable = [cell for cell in found if cell.usable and not cell.errors]
    totals = with_cache_misses(usable, totals)
    remarks = []
    for place in dict.fromkeys(map(place_of, sorted(usable, key=by_place))):
        here = [cell for cell in usable if place_of(cell) == place]
        for what in names:
            counts: dict[str, set[int]] = {}
            for cell in here:
                count = totals.get(key_of(cell), {}).get(what)
                counts.setdefault(cell.config, set()).update([] if count is None else [count])
            if not _differ(counts, untold_counts=what == CACHED):
                continue
            shown = ", ".join(
                f"{name} {range_of(own) if own else 'untold'}" for name, own in counts.items()
            )
            remarks.append(f"{place}: {what} of a cell differ: {shown}")
    return remarks


def _differ(counts: Mapping[str, Collection[int]], untold_counts: bool) -> bool:
    """Whether the known counts differ; with ``untold_counts`` also from what one does not tell."""
    known = {frozenset(own) for own in counts.values() if own}
    silent = untold_counts and not all(counts.values())
    return len(known) > 1 or (silent and any(max(own) for own in known))


def with_cache_misses(found: Iterable[Cell], totals: Totals) -> Totals:
    """``totals`` in which a configuration that tells of cached tokens in any cell had none in the
    others: servers leave the detail out where it is 0."""
    own = {key_of(cell): cell.config for cell in found}
    telling = {config for key, config in own.items() if totals.get(key, {}).get(CACHED) is not None}
    return {
        key: {**counts, CACHED: 0}
        if own.get(key) in telling and counts.get(CACHED) is None
        else counts
        for key, counts in totals.items()
    }


def compare_settings(launches: Mapping[str, Any], alike: Iterable[str]) -> list[str]:
    """Where servers resolved settings that must be ``alike`` differently, as each said of itself.

    Memory fraction and graph sizes are lowered by themselves under speculation.
    """
    infos = {config: launch.get("info") or {} for config, launch in launches.items()}
    said = []
    for name in alike:
        values = {config: info.get("settings", {}).get(name) for config, info in infos.items()}
        known = {config: value for config, value in values.items() if value is not None}
        if len(set(map(str, known.values()))) > 1:
            shown = ", ".join(f"{config} {value}" for config, value in known.items())
            said.append(f"more than speculation is compared: {name}: {shown}")
    return said


def find_cold(found: Sequence[Cell]) -> list[str]:
    """Cells far below their own repeats: as after too short a warm-up, or beside other work."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in found:
        if cell.usable:
            groups.setdefault((cell.config, place_of(cell)), []).append(cell)
    said = []
    for own in groups.values():
        for cell in own:
            others = [one.output_tok_s or 0.0 for one in own if one is not cell]
            usual, here = statistics.median(others or [0.0]), cell.output_tok_s or 0.0
            if here < (1 - COLD_SHARE) * usual:
                below = f"{here:.1f} tok/s, {1 - here / usual:.0%} below its repeats"
                said.append(f"{key_of(cell)}: {below}: warm up longer, or look for other work")
    return said


def drift_of(found: Sequence[Cell]) -> tuple[float, float | None]:
    """By how much throughput changed over the lives of the run, relative, and how rarely chance
    gives that; the latter is ``None`` where too little is there to tell.

    Cells are held against the mean of their own configuration and place.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in found:
        if cell.output_tok_s and cell.usable:
            groups.setdefault((cell.config, place_of(cell)), []).append(cell)
    places: list[float] = []
    offs: list[float] = []
    for own in groups.values():
        logs = [math.log(cell.output_tok_s or 1.0) for cell in own]
        lives = [float(cell.life) for cell in own]
        places += [life - math.fsum(lives) / len(lives) for life in lives]
        offs += [one - math.fsum(logs) / len(logs) for one in logs]
    slope, p = intervals.trend(places, offs, len(groups))
    numbers = [cell.life for cell in found if cell.usable] or [0]
    return math.expm1(slope * (max(numbers) - min(numbers))), p


def find_drift(found: Sequence[Cell]) -> list[str]:
    """A sentence where throughput rose or fell with the order of the lives, by more than chance."""
    change, p = drift_of(found)
    if p is None or p >= DRIFT_P:
        return []
    return [
        f"drift: throughput changed by {change:+.1%} over the lives of the run (p = {p:.2g}); "
        "random order within the blocks keeps it out of the comparison, not out of its scatter"
    ]


def range_of(counts: Collection[int]) -> str:
    """The least and the greatest of some counts in words, one alone where they are the same."""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def verdict(measurements: Measurements) -> Verdict:
    """Negative when a server died or did not come up, or a configuration has no usable cell.

    A void cell beside usable ones of the same configuration and concurrency does not decide.
    """
    found = measurements.cells
    lost = [cell for cell in found if cell.status in ("server_died", "not_run")]
    covered = {(cell.config, place_of(cell)) for cell in found if cell.usable}
    bare = [cell for cell in found if (cell.config, place_of(cell)) not in covered]
    if not found:
        return Verdict(False, "benchmark: nothing was measured")
    if lost or bare:
        cell = (lost or bare)[0]
        more = f" (and {len(lost or bare) - 1} more)" if len(lost or bare) > 1 else ""
        return Verdict(
            False, f"benchmark: {key_of(cell)}: {cell.status}{more}: {shorten(cell.note)}"
        )
    for check in measurements.checks:
        if check.status == "fail":
            said = f"{check.name}: {check.found}; wanted: {check.wanted}; {check.fix}"
            return Verdict(False, f"benchmark: {said}")
    void = sum(cell.status == "void" for cell in found)
    configs = counted(len({cell.config for cell in found}), "configuration")
    blocks = counted(len({cell.block for cell in found}), "block")
    said = f"{counted(len(found), 'cell')}, {configs}, {blocks}, "
    said += f"{void} void" if void else "all usable"
    said += "".join(f"; {check.name}: {check.found}" for check in measurements.checks)
    return Verdict(True, f"benchmark: {said}")
