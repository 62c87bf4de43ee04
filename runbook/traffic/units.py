"""The unit of times that others wrote: told apart by the figures, or asked for. Pure.

A name may carry its unit (``duration_ms``). Times since 1970 show theirs by their size: ten
digits are seconds, thirteen milliseconds, sixteen microseconds, nineteen nanoseconds. How long a
request takes shows it only where one unit alone makes sense; else the unit must be declared.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from runbook.errors import BadInput

#: Unit -> seconds.
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

#: The years 2014 to 2049, in seconds since 1970; what lies beyond counts from elsewhere.
_EPOCH_S = (1.4e9, 2.5e9)

#: No clock counts so many seconds: 317 years.
_NO_CLOCK_S = 1e10

#: What a request to a language model takes, in seconds, with room to both sides.
_TOOK_S = (0.05, 3600.0)

_OPTION = "--traffic-unit"


def suffix_of(name: str) -> str | None:
    """The unit that a name carries: ``start_ms``, ``request_start_ns``, ``sent_s``."""
    unit = name.rpartition("_")[2]
    return unit if unit in UNITS and unit != name else None


def unit_of_clock(name: str, values: Sequence[float], source: str) -> str | None:
    """The unit of moments under one name; ``None`` where they do not count from 1970.

    Raises ``BadInput`` where they are of several units, or contradict the name.
    """
    least, most = min(values), max(values)
    first, last = _epoch_unit(least), _epoch_unit(most)
    carried = suffix_of(name)
    if first != last:
        raise BadInput(
            f"{source}: {name} is {_shown(least)} and {_shown(most)}: of several units or clocks",
            "one unit and one clock a name",
            f"correct the log, or declare the unit: {_OPTION} {name}=UNIT (s, ms, us, ns)",
        )
    beyond = carried and most * UNITS[carried] > _NO_CLOCK_S
    if carried and (beyond or first not in (None, carried)):
        raise BadInput(
            f"{source}: {name} is {_shown(most)}, a time in {first or 'another unit'}",
            f"a time in {carried}, as the name says",
            f"declare the unit: {_OPTION} {name}={first or 'UNIT (s, ms, us, ns)'}",
        )
    return first or carried


def unit_of_spans(name: str, values: Sequence[float], source: str) -> str:
    """The unit of lengths of time under one name. Raises ``BadInput`` where it cannot be told."""
    if carried := suffix_of(name):
        return carried
    middle = statistics.median(values)
    least, most = _TOOK_S
    likely = [unit for unit, in_s in UNITS.items() if least <= middle * in_s <= most]
    if len(likely) == 1:
        return likely[0]
    raise BadInput(
        f"{source}: {name} is {_shown(middle)} in the median, of an unknown unit",
        "a name with its unit (duration_s, latency_ms), or the unit declared",
        f"declare it: {_OPTION} {name}=UNIT (s, ms, us, ns)",
    )


def ask_for_unit(name: str, value: float, source: str) -> BadInput:
    """The refusal of moments that count from an unknown begin, in an unknown unit."""
    return BadInput(
        f"{source}: {name} is {_shown(value)}, of an unknown unit",
        "a time since 1970, ISO 8601, a name with its unit (start_ms), or the unit declared",
        f"declare it: {_OPTION} {name}=UNIT (s, ms, us, ns)",
    )


def parse_units(words: Sequence[str]) -> dict[str, str]:
    """``FIELD=UNIT`` as given on a command line. Raises ``BadInput``."""
    found: dict[str, str] = {}
    for word in words:
        name, _, unit = word.partition("=")
        if not name or unit not in UNITS:
            raise BadInput(
                f"{_OPTION} {word!a}",
                "FIELD=UNIT, the unit one of " + ", ".join(UNITS),
                f"like {_OPTION} timestamp=ms",
            )
        found[name] = unit
    return found


def told(units: Mapping[str, str]) -> str:
    """The units of a log in words: ``timestamp in ms, duration_s in s``."""
    return ", ".join(f"{name} in {unit}" for name, unit in units.items())


def _epoch_unit(value: float) -> str | None:
    least, most = _EPOCH_S
    return next((unit for unit, in_s in UNITS.items() if least <= value * in_s <= most), None)


def _shown(value: float) -> str:
    return f"{value:.15g}"
