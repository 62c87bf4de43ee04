"""The traffic mix of a production log: the share of time spent at each load. Pure.

A line is one request: JSON with its begin, and its end or how long it took, as times that a
server, a gateway or this project's ``requests.jsonl`` write down. Time without any request counts
nowhere: what is weighed is the time in which the server had work.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runbook import params
from runbook.cells import point_label
from runbook.checks import counted
from runbook.errors import BadInput
from runbook.load.workload_files import json_lines

#: Names of a field -> seconds of its unit. The first that is there counts.
_BEGIN = {
    **dict.fromkeys(("sent_s", "started", "start", "start_time", "timestamp", "created"), 1.0),
    "start_ms": 1e-3,
    "request_start_ns": 1e-9,
}
_END = {
    **dict.fromkeys(("end_s", "ended", "end", "end_time", "finished"), 1.0),
    "end_ms": 1e-3,
    "request_end_ns": 1e-9,
}
_TOOK = {
    **dict.fromkeys(("duration_s", "latency_s", "e2e_latency", "duration", "latency"), 1.0),
    **dict.fromkeys(("duration_ms", "latency_ms"), 1e-3),
}
_TOKENS = ("tokens_in", "prompt_tokens", "input_tokens")
_WANTED = "a begin (" + ", ".join(_BEGIN) + ") and an end (" + ", ".join([*_END, *_TOOK]) + ")"


@dataclass(frozen=True)
class Served:
    """One request of a log: seconds of one clock; ``tokens_in`` is ``None`` where not told."""

    begin_s: float
    end_s: float
    tokens_in: int | None = None


@dataclass(frozen=True)
class Traffic:
    """``mix``: shares of time that sum to 1; ``sentence``: what they were derived from."""

    mix: tuple[params.MixShare, ...]
    sentence: str


def read_log(text: str, source: str) -> list[Served]:
    """The requests of a log; those that were never sent or never ended are left out.

    Raises ``BadInput`` with file and line.
    """
    found = []
    for place, entry in json_lines(text, source):
        served = _read(entry, place)
        if served is not None:
            found.append(served)
    if not found:
        raise BadInput(
            f"{source}: no request that ended",
            f"a JSON object a line with {_WANTED}",
            "give a log of finished requests",
        )
    return found


def _read(entry: Any, where: str) -> Served | None:
    if not isinstance(entry, Mapping):
        raise BadInput(
            f"{where}: {type(entry).__name__} instead of an object", _WANTED, "correct this line"
        )
    inside = entry.get("metadata")
    fields = {**inside, **entry} if isinstance(inside, Mapping) else entry
    begin, end, took = (_time(fields, names, where) for names in (_BEGIN, _END, _TOOK))
    named = any(name in fields for name in _BEGIN) and any(n in fields for n in (*_END, *_TOOK))
    if not named:
        raise BadInput(f"{where}: no times", _WANTED, "write both, seconds or ISO 8601")
    if begin is not None and end is None and took is not None:
        end = begin + took
    if begin is None or end is None:
        return None
    if end < begin:
        raise BadInput(
            f"{where}: it ends {begin - end:g} s before it begins",
            "times of one clock",
            "correct this line",
        )
    return Served(begin, end, _tokens(fields))


def _time(fields: Mapping[str, Any], names: Mapping[str, float], where: str) -> float | None:
    name = next((name for name in names if fields.get(name) is not None), None)
    if name is None:
        return None
    value = fields[name]
    try:
        if isinstance(value, str):
            seconds = datetime.fromisoformat(value).timestamp()
        elif isinstance(value, bool):
            raise ValueError("a truth value")
        else:
            seconds = float(value) * names[name]
        if not math.isfinite(seconds):
            raise ValueError("not finite")
    except (ValueError, TypeError, OverflowError) as error:
        shown = ascii(value)[:60]
        raise BadInput(
            f"{where}: {name} is {shown} ({error})", "seconds, or ISO 8601", "correct this line"
        ) from None
    return seconds


def _tokens(fields: Mapping[str, Any]) -> int | None:
    usage = fields.get("usage")
    for place in (fields, usage if isinstance(usage, Mapping) else {}):
        for name in _TOKENS:
            if type(place.get(name)) is int and place[name] >= 0:
                return int(place[name])
    return None


def derive_mix(
    served: Sequence[Served], points: Sequence[tuple[int, int | None]], source: str
) -> Traffic:
    """The share of time at each measured point (concurrency, context).

    Each moment goes to the nearest measured concurrency (by ratio); with several contexts, in
    equal parts to the nearest context of each request in flight. Raises ``BadInput`` where nothing
    took any time, or a context is needed and unknown.
    """
    concurrencies = sorted({concurrency for concurrency, _ in points})
    contexts = sorted({context for _, context in points if context is not None})
    shares: dict[tuple[int, int | None], float] = {}
    loads: dict[int, float] = {}
    for span_s, running in _moments(served):
        loads[len(running)] = loads.get(len(running), 0.0) + span_s
        concurrency = _nearest(len(running), concurrencies)
        for one in running if len(contexts) > 1 else running[:1]:
            context = _context(one, contexts, source)
            parts = len(running) if len(contexts) > 1 else 1
            key = concurrency, context
            shares[key] = shares.get(key, 0.0) + span_s / parts
    busy_s = math.fsum(shares.values())
    if busy_s <= 0:
        raise BadInput(
            f"{source}: its requests took no time",
            "begins and ends that differ",
            "give another log",
        )
    mix = tuple(
        params.MixShare(concurrency=concurrency, context_tokens=context, share=part / busy_s)
        for (concurrency, context), part in sorted(shares.items(), key=str)
    )
    return Traffic(mix, _sentence(served, loads, busy_s, mix, source, concurrencies[-1]))


def _moments(served: Sequence[Served]) -> Iterator[tuple[float, list[Served]]]:
    """Spans of time with the requests in flight in them, at least one."""
    running: list[tuple[float, int]] = []
    waiting = sorted(range(len(served)), key=lambda at: served[at].begin_s)
    now_s, at = -math.inf, 0
    while at < len(waiting) or running:
        ends_s = running[0][0] if running else math.inf
        begins_s = served[waiting[at]].begin_s if at < len(waiting) else math.inf
        next_s = min(ends_s, begins_s)
        if running and next_s > now_s:
            yield next_s - now_s, [served[number] for _, number in running]
        now_s = next_s
        if ends_s <= begins_s:
            heapq.heappop(running)
        else:
            heapq.heappush(running, (served[waiting[at]].end_s, waiting[at]))
            at += 1


def _nearest(value: int, among: Sequence[int]) -> int:
    return min(among, key=lambda one: abs(math.log((one or 1) / (value or 1))))


def _context(one: Served, contexts: Sequence[int], source: str) -> int | None:
    if len(contexts) < 2:
        return contexts[0] if contexts else None
    if one.tokens_in is None:
        raise BadInput(
            f"{source}: a request without its input tokens, and several contexts were measured",
            "one of " + ", ".join(_TOKENS) + " in each line",
            "log the input tokens, or measure one context",
        )
    return _nearest(one.tokens_in, contexts)


def _sentence(
    served: Sequence[Served],
    loads: Mapping[int, float],
    busy_s: float,
    mix: Sequence[params.MixShare],
    source: str,
    most: int,
) -> str:
    whole_s = max(one.end_s for one in served) - min(one.begin_s for one in served)
    beyond = math.fsum(part for load, part in loads.items() if load > most) / busy_s
    listed = ", ".join(
        f"{point_label(one.concurrency, one.context_tokens)} {one.share:.1%}" for one in mix
    )
    said = (
        f"weights from {source}: {counted(len(served), 'request')}, at work "
        f"{busy_s / whole_s:.0%} of {whole_s / 3600:.2g} h, {_median(loads)} in flight at the "
        f"median, {max(loads)} at most; "
        f"taken as {listed}"
    )
    if beyond:
        said += f"; {beyond:.0%} of the time lay beyond C={most}, the greatest measured"
    return said


def _median(loads: Mapping[int, float]) -> int:
    half, so_far = math.fsum(loads.values()) / 2, 0.0
    for load in sorted(loads):
        so_far += loads[load]
        if so_far >= half:
            return load
    return max(loads)
