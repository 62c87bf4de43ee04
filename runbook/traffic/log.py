"""The requests of a production log, as a server or a gateway wrote it. Pure.

A line is one request: JSON, or CSV with a header, with its begin, and its end or how long it took.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from runbook.errors import BadInput
from runbook.load.workload_files import json_lines
from runbook.traffic import units as _units

#: Names of a field, in small letters. The first that is there counts.
_BEGIN = (
    *("sent_s", "started", "start", "start_time", "starttime", "timestamp", "created"),
    *("start_ms", "request_start_ns"),
)
_END = (
    *("end_s", "ended", "end", "end_time", "endtime", "finished"),
    *("end_ms", "request_end_ns"),
)
_TOOK = (
    *("duration_s", "latency_s", "e2e_latency", "duration", "latency"),
    *("duration_ms", "latency_ms"),
)
TOKENS = ("tokens_in", "prompt_tokens", "input_tokens", "input_length", "contexttokens")
_WANTED = "a begin (" + ", ".join(_BEGIN) + ") and an end (" + ", ".join([*_END, *_TOOK]) + ")"


@dataclass(frozen=True)
class Served:
    """One request of a log: seconds of one clock; ``tokens_in`` is ``None`` where not told."""

    begin_s: float
    end_s: float
    tokens_in: int | None = None


@dataclass(frozen=True)
class _Time:
    """A time as it stands in the log: ``field`` is empty where it is in seconds already."""

    field: str
    value: float


@dataclass(frozen=True)
class _Line:
    """A request as it stands in the log; ``None`` is a time that is not told."""

    place: str
    begin: _Time | None
    end: _Time | None
    took: _Time | None
    tokens_in: int | None


def read_log(text: str, source: str, declared: Mapping[str, str] | None = None) -> list[Served]:
    """The requests of a log; arguments and errors as of ``Log`` and ``Log.served``."""
    return Log(text, source, declared).served()


class Log:
    """The lines of a log and the unit of each of its fields that are not ISO 8601 (``units``).

    ``declared``: field -> unit (``s``, ``ms``, ``us``, ``ns``), where the log does not tell it.
    ``ends``: whether ends are needed. Raises ``BadInput`` with file and line.
    """

    def __init__(
        self,
        text: str,
        source: str,
        declared: Mapping[str, str] | None = None,
        ends: bool = True,
    ) -> None:
        self._source = source
        self._lines = [_line(entry, place, ends) for place, entry in _entries(text, source)]
        self.units = self._find_units(declared or {}, ends)

    def served(self) -> list[Served]:
        """The requests that ended; those that were never sent or never ended are left out."""
        found = [one for line in self._lines if (one := self._served(line)) is not None]
        if not found:
            raise BadInput(
                f"{self._source}: no request that ended",
                f"a JSON object a line, or a CSV, with {_WANTED}",
                "give a log of finished requests",
            )
        return found

    def begins_s(self) -> list[float]:
        """The moments at which requests began."""
        found = [self._seconds(line.begin) for line in self._lines if line.begin]
        if not found:
            raise BadInput(
                f"{self._source}: no request that began",
                "a JSON object a line, or a CSV, with a begin (" + ", ".join(_BEGIN) + ")",
                "give a log of requests",
            )
        return found

    def _find_units(self, declared: Mapping[str, str], ends: bool) -> dict[str, str]:
        clocks = _by_field(one for line in self._lines for one in (line.begin, line.end))
        spans = _by_field(line.took for line in self._lines)
        fields = {name.lower(): unit for name, unit in declared.items()}
        for name in fields:
            if name not in (*clocks, *spans):
                raise BadInput(
                    f"{self._source}: no time is called {name}",
                    "one of " + ", ".join([*clocks, *spans]),
                    "correct --traffic-unit",
                )
        units = {name: unit for name, unit in fields.items() if name in (*clocks, *spans)}
        for name, values in clocks.items():
            if name not in units:
                unit = _units.unit_of_clock(name, values, self._source)
                if unit is None:
                    raise _units.ask_for_unit(name, max(values), self._source)
                units[name] = unit
        for name, values in spans.items() if ends else ():
            if name not in units:
                units[name] = _units.unit_of_spans(name, values, self._source)
        return units

    def _seconds(self, time: _Time) -> float:
        return time.value * _units.UNITS[self.units[time.field]] if time.field else time.value

    def _served(self, line: _Line) -> Served | None:
        if line.begin is None or (line.end is None and line.took is None):
            return None
        begin_s = self._seconds(line.begin)
        end_s = self._seconds(line.end) if line.end else math.nan
        if line.end is None and line.took is not None:
            end_s = begin_s + self._seconds(line.took)
        if end_s < begin_s:
            raise BadInput(
                f"{line.place}: it ends {begin_s - end_s:g} s before it begins",
                "times of one clock",
                "correct this line",
            )
        return Served(begin_s, end_s, line.tokens_in)


def _by_field(times: Iterable[_Time | None]) -> dict[str, list[float]]:
    """The figures of the times under each name; those in seconds already are left out."""
    found: dict[str, list[float]] = {}
    for one in times:
        if one is not None and one.field:
            found.setdefault(one.field, []).append(one.value)
    return found


def _entries(text: str, source: str) -> Iterator[tuple[str, Any]]:
    """The requests of JSONL or CSV with their places. Raises ``BadInput``."""
    text = text.removeprefix("\ufeff")
    first = text.lstrip().split("\n")[0].lower()
    columns = [word.strip(' "\r') for word in first.split(",")]
    if not any(name in columns for name in _BEGIN):
        yield from json_lines(text, source)
        return
    reader = csv.DictReader(io.StringIO(text.lstrip()), skipinitialspace=True)
    try:
        for row in reader:
            told = {name: value or None for name, value in row.items() if name}
            yield f"{source}: line {reader.line_num}", told
    except csv.Error as error:
        raise BadInput(
            f"{source}: line {reader.line_num}: no CSV ({error})",
            "a table, a line a request",
            "correct the line",
        ) from None


def _line(entry: Any, where: str, ends: bool) -> _Line:
    if not isinstance(entry, Mapping):
        raise BadInput(
            f"{where}: {type(entry).__name__} instead of an object", _WANTED, "correct this line"
        )
    inside = entry.get("metadata")
    fields = {**inside, **entry} if isinstance(inside, Mapping) else entry
    fields = {str(name).strip().lower(): value for name, value in fields.items()}
    begun = any(name in fields for name in _BEGIN)
    if not begun or (ends and not any(name in fields for name in (*_END, *_TOOK))):
        lacking = "a begin and no end" if begun else "no times"
        raise BadInput(
            f"{where}: {lacking}", _WANTED, "write both: numbers with their unit, or ISO 8601"
        )
    begin = _time(fields, _BEGIN, where)
    end, took = (_time(fields, names, where) for names in (_END, _TOOK)) if ends else (None, None)
    return _Line(place=where, begin=begin, end=end, took=took, tokens_in=_tokens(fields))


def _time(fields: Mapping[str, Any], names: Sequence[str], where: str) -> _Time | None:
    name = next((name for name in names if fields.get(name) is not None), None)
    if name is None:
        return None
    value = fields[name]
    try:
        if isinstance(value, bool):
            raise ValueError("a truth value")
        number = _number(value)
        if number is None:
            moment = datetime.fromisoformat(value.strip())
            utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return _Time("", utc.timestamp())
        if not math.isfinite(number) or (number < 0 and names is _TOOK):
            raise ValueError("not finite" if number > 0 else "below nought, or not finite")
    except (ValueError, TypeError, OverflowError) as error:
        shown = ascii(value)[:60]
        raise BadInput(
            f"{where}: {name} is {shown} ({error})",
            "a number, or ISO 8601",
            "correct this line",
        ) from None
    return _Time(name, number)


def _number(value: Any) -> float | None:
    """A number, also one in a text; ``None`` of another text."""
    if not isinstance(value, str):
        return float(value)
    try:
        return float(value)
    except ValueError:
        return None


def _tokens(fields: Mapping[str, Any]) -> int | None:
    usage = fields.get("usage")
    for place in (fields, usage if isinstance(usage, Mapping) else {}):
        for name in TOKENS:
            value = place.get(name)
            if isinstance(value, str) and value.isascii() and value.isdigit():
                return int(value[:9])
            if type(value) is int and value >= 0:
                return value
    return None
