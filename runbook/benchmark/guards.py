"""What makes configurations comparable, each guard with what was found: for the record. Pure.

A guard that fails or warns is told of among the remarks and in the notes of cells as well, with
its figures; here all stand together, also those that held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbook.benchmark.figures import WARM_UP_FAILED
from runbook.benchmark.gpu_samples import Sampled, compare_clocks
from runbook.benchmark.measurements import (
    CACHED,
    DRIFT_P,
    Totals,
    by_place,
    compare_settings,
    compare_totals,
    drift_of,
    key_of,
    place_of,
    range_of,
    with_cache_misses,
)
from runbook.benchmark.sense import SOME_WITHOUT_SENSE, VOID_WITHOUT_SENSE
from runbook.benchmark.texts import VOID_BY_REPETITION
from runbook.cells import Cell
from runbook.checks import Check, Status, counted
from runbook.engines.base import SUSPICIOUS_ACCEPTANCE
from runbook.params import Params

_SHOWN = 4


@dataclass(frozen=True)
class Measured:
    """What the guards look at: the book of a benchmark. ``alike``: settings of the engine."""

    params: Params
    cells: Sequence[Cell]
    launches: Mapping[str, Any]
    totals: Totals
    gpus: Mapping[str, Sampled]
    alike: Sequence[str]

    @property
    def usable(self) -> list[Cell]:
        """The cells that are compared, by place."""
        return sorted((cell for cell in self.cells if cell.usable), key=by_place)


def guards(measured: Measured) -> list[Check]:
    """All of them, in the order of a reader; none without a cell."""
    if not measured.cells:
        return []
    return [
        _cap(measured),
        _settings(measured),
        *(_tokens(measured, what) for what in ("prompt tokens", "output tokens")),
        _prefix_cache(measured),
        _warm_up(measured),
        _in_flight(measured),
        _ramp_down(measured),
        _lives(measured),
        _drift(measured),
        _repetition(measured),
        _acceptance(measured),
        _client(measured),
        _clocks(measured),
    ]


def _cap(measured: Measured) -> Check:
    most = max(cell.concurrency for cell in measured.cells)
    caps = {
        config: (launch.get("info") or {}).get("max_concurrency")
        for config, launch in measured.launches.items()
    }
    wanted = f"the same in all, {most} or more"
    known = {config: cap for config, cap in caps.items() if cap is not None}
    found = _each(known, "{} at once")
    if len(known) < len(caps) or not caps:
        missing = ", ".join(config for config in caps if config not in known)
        return Check("request cap", "unknown", f"{found}; not told: {missing}".strip("; "), wanted)
    status: Status = "warn" if len({*known.values()}) > 1 else "pass"
    return Check("request cap", "fail" if min(known.values()) < most else status, found, wanted)


def _settings(measured: Measured) -> Check:
    wanted = "the same in all, but for speculation"
    unlike = compare_settings(measured.launches, measured.alike)
    if unlike:
        return Check("settings of the servers", "warn", "; ".join(unlike), wanted)
    infos = [launch.get("info") or {} for launch in measured.launches.values()]
    told = [info.get("settings") or {} for info in infos]
    known = [name for name in measured.alike if all(one.get(name) is not None for one in told)]
    if not told or not known:
        return Check("settings of the servers", "unknown", "the servers tell none", wanted)
    found = ", ".join(f"{name} {told[0][name]}" for name in known)
    return Check("settings of the servers", "pass", found, wanted)


def _tokens(measured: Measured, what: str) -> Check:
    wanted = "of a cell, the same in all configurations"
    unlike = _unlike(measured, what)
    if unlike:
        return Check(what, "warn", "; ".join(unlike), wanted)
    counts: dict[str, list[int]] = {}
    for cell in measured.usable:
        own = measured.totals.get(key_of(cell), {}).get(what)
        if own is None:
            return Check(what, "unknown", "usage does not tell them in every cell", wanted)
        counts.setdefault(place_of(cell), []).append(own)
    if not counts:
        return Check(what, "unknown", "usage does not tell them in every cell", wanted)
    return Check(what, "pass", _at_each({at: range_of(own) for at, own in counts.items()}), wanted)


def _unlike(measured: Measured, what: str) -> list[str]:
    return compare_totals(measured.cells, measured.totals, [what])


def _prefix_cache(measured: Measured) -> Check:
    wanted = "flushed in none, as much from the cache in all"
    totals = with_cache_misses(measured.usable, measured.totals)
    shares: dict[str, float | None] = {}
    for config, own in _by_config(measured.usable).items():
        told = [totals.get(key_of(cell), {}) for cell in own]
        pairs = [(one.get(CACHED), one.get("prompt tokens")) for one in told]
        known = [(cached, asked) for cached, asked in pairs if cached is not None and asked]
        whole = len(known) == len(pairs) and known
        cached, asked = (sum(column) for column in zip(*known, strict=True)) if whole else (0, 0)
        shares[config] = cached / asked if asked else None
    if all(share is None for share in shares.values()):
        return Check("prefix cache", "unknown", "usage does not tell cached tokens", wanted)
    said = {name: "untold" if one is None else f"{one:.1%}" for name, one in shares.items()}
    found = "every life a new server, none flushed; of prompt tokens from the cache: "
    found += _each(said, "{}")
    status: Status = "unknown" if None in shares.values() else "pass"
    return Check("prefix cache", "warn" if _unlike(measured, CACHED) else status, found, wanted)


def _warm_up(measured: Measured) -> Check:
    benchmark = measured.params.benchmark
    if not benchmark.warmup:
        return Check("warm-up", "warn", "none (benchmark.warmup: 0)", "before every cell")
    asked = f"{counted(benchmark.warmup, 'request')} a stream before every cell, in its shape"
    failed = [cell for cell in measured.cells if WARM_UP_FAILED in cell.note]
    lost = [f"requests of it failed in {counted(len(failed), 'cell')}"] if failed else []
    if benchmark.warmup_agree is None:
        wanted = "until two in turn agree (benchmark.warmup_agree)"
        found = "; ".join([f"{asked}, once", *lost])
        return Check("warm-up", "warn" if lost else "pass", found, wanted)
    wanted = f"until two in turn agree within {benchmark.warmup_agree:.0%}"
    cold = [cell for cell in measured.usable if "warm-ups agreed" in cell.note]
    risen = [cell for cell in measured.usable if "throughput rose by" in cell.note]
    said = [
        *lost,
        *([f"no two agreed in {counted(len(cold), 'cell')}"] if cold else []),
        *([f"throughput rose within {counted(len(risen), 'cell')}"] if risen else []),
    ]
    return Check("warm-up", "warn" if said else "pass", "; ".join([asked, *said]), wanted)


def _in_flight(measured: Measured) -> Check:
    wanted = "what the cell is called, never more"
    most: dict[str, int] = {}
    for cell in measured.usable:
        if cell.max_in_flight is not None:
            most[place_of(cell)] = max(most.get(place_of(cell), 0), cell.max_in_flight)
    above = [cell for cell in measured.cells if (cell.max_in_flight or 0) > cell.concurrency]
    if not most:
        return Check("in flight", "unknown", "not recorded", wanted)
    short = [cell for cell in measured.usable if cell.ran_fewer]
    found = _at_each(most)
    if short:
        found += "; the server ran fewer: " + _listed(
            f"{key_of(cell)} ({cell.running:.0f}/{cell.concurrency})" for cell in short
        )
    return Check("in flight", "fail" if above else "warn" if short else "pass", found, wanted)


def _ramp_down(measured: Measured) -> Check:
    wanted = "cut off (benchmark.window: steady)"
    if measured.params.benchmark.window == "steady":
        found = "only the time with all streams at work counts, latencies without the first wave"
        return Check("ramp-down", "pass", found, wanted)
    return Check(
        "ramp-down", "skipped", "counted in, of all configurations (benchmark.window: whole)"
    )


def _lives(measured: Measured) -> Check:
    lives = {
        config: len({cell.life for cell in own})
        for config, own in _by_config(measured.usable).items()
    }
    ages = [cell.age_s for cell in measured.usable if cell.age_s is not None]
    found = _each(lives, "{}")
    if ages:
        found += f"; cells began {min(ages):.0f} to {max(ages):.0f} s after a server was ready"
    status: Status = "pass" if lives and min(lives.values()) >= 2 else "warn"
    wanted = "two or more of each, in random order within a block"
    return Check("server lives", status, found, wanted)


def _drift(measured: Measured) -> Check:
    wanted = "no slope over the lives that chance would not give"
    change, p = drift_of(measured.cells)
    if p is None:
        return Check("drift", "unknown", "too few lives to tell", wanted)
    found = f"{change:+.1%} over the lives of the run, p = {p:.2g}"
    return Check("drift", "warn" if p < DRIFT_P else "pass", found, wanted)


def _repetition(measured: Measured) -> Check:
    wanted = "no cell with answers without sense, or that repeat where the baseline's do not"
    looping = [cell for cell in measured.cells if _lacks_sense(cell)]
    if looping:
        found = "void: " + _listed(map(key_of, looping))
        return Check("repetition", "fail", found, wanted)
    if not measured.usable:
        return Check("repetition", "unknown", "no cell can be used", wanted)
    found = f"none in {counted(len(measured.usable), 'cell')}"
    if some := [cell for cell in measured.usable if SOME_WITHOUT_SENSE in cell.note]:
        return Check("repetition", "warn", "a few answers of " + _listed(map(key_of, some)), wanted)
    return Check("repetition", "pass", found, wanted)


def _lacks_sense(cell: Cell) -> bool:
    found = VOID_WITHOUT_SENSE in cell.note
    return cell.status == "void" and (found or cell.note.startswith(VOID_BY_REPETITION))


def _acceptance(measured: Measured) -> Check:
    wanted = f"below {SUSPICIOUS_ACCEPTANCE} of steps + 1"
    found: dict[str, str] = {}
    close = False
    for config, own in _by_config(measured.usable).items():
        settings = ((measured.launches.get(config) or {}).get("info") or {}).get("settings") or {}
        steps = settings.get("speculative_num_steps")
        lengths = [cell.accept_length for cell in own if cell.accept_length is not None]
        if steps and lengths:
            found[config] = f"{max(lengths):.2f} of {steps + 1}"
            close = close or max(lengths) >= SUSPICIOUS_ACCEPTANCE * (steps + 1)
    if not found:
        return Check("acceptance", "skipped", "no server tells a fixed number of draft steps")
    return Check("acceptance", "warn" if close else "pass", _each(found, "at most {}"), wanted)


def _client(measured: Measured) -> Check:
    wanted = "less than half a core, and never late by a fifth of the time between chunks"
    shares = [cell.client_share for cell in measured.cells if cell.client_share is not None]
    lags = [cell.loop_lag_ms for cell in measured.cells if cell.loop_lag_ms is not None]
    if not shares:
        return Check("load generator", "unknown", "not recorded", wanted)
    found = f"at most {max(shares):.1%} of a core"
    found += f", {max(lags):.1f} ms late at the 99th percentile" if lags else ""
    limits = [cell for cell in measured.cells if "the client" in cell.note]
    if limits:
        found += f"; told of in {counted(len(limits), 'cell')}"
    return Check("load generator", "warn" if limits else "pass", found, wanted)


def _clocks(measured: Measured) -> Check:
    told = [sampled for sampled in measured.gpus.values() if sampled.get("sm_mhz")]
    if not told:
        return Check("clocks of the GPUs", "skipped", "no GPU told any while cells were measured")
    low, high = (pick(one["sm_mhz"] for one in told) for pick in (min, max))
    found = f"{low:.0f} to {high:.0f} MHz"
    if heats := [one["temperature_c"] for one in told if "temperature_c" in one]:
        found += f", at most {max(heats):.0f} °C"
    if powers := [one["power_w"] for one in told if "power_w" in one]:
        found += f", {min(powers):.0f} to {max(powers):.0f} W"
    unlike = compare_clocks(measured.cells, measured.gpus)
    wanted = "medians of configurations no more than 3 % apart"
    return Check(
        "clocks of the GPUs",
        "warn" if unlike else "pass",
        "; ".join([found, *unlike]),
        wanted,
    )


def _by_config(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.config, []).append(cell)
    return found


def _each(values: Mapping[str, Any], form: str) -> str:
    """``baseline 8 at once, lean 8 at once``; one value where all are the same."""
    shown = {name: form.format(value) for name, value in values.items()}
    if len(shown) > 1 and len({*shown.values()}) == 1:
        return f"{next(iter(shown.values()))} in all"
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _at_each(values: Mapping[str, Any]) -> str:
    """``C=1: 849, C=8: 1108``."""
    return ", ".join(f"{place}: {value}" for place, value in values.items())


def _listed(names: Iterator[str]) -> str:
    known = list(names)
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return ", ".join(known[:_SHOWN]) + more
