"""The traffic mix of a production log: the share of time spent at each load. Pure.

Time without any request counts nowhere: what is weighed is the time in which the server had work.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runbook import params
from runbook.cells import point_label
from runbook.checks import counted
from runbook.decision import percentage
from runbook.errors import BadInput
from runbook.traffic import units as _units
from runbook.traffic.log import TOKENS, Served


@dataclass(frozen=True)
class Traffic:
    """``mix``: shares of time that sum to 1; ``sentence``: what they were derived from."""

    mix: tuple[params.MixShare, ...]
    sentence: str


def derive_mix(
    served: Sequence[Served],
    points: Sequence[tuple[int, int | None]],
    source: str,
    units: Mapping[str, str] | None = None,
) -> Traffic:
    """The share of time at each measured point (concurrency, context).

    Each moment goes to the nearest measured concurrency (by ratio); with several contexts, in
    equal parts to the nearest context of each request in flight. ``units``: those of the log, to be
    told. Raises ``BadInput`` where nothing
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
    said = _sentence(served, loads, busy_s, mix, source, concurrencies[-1])
    return Traffic(mix, said + (f"; its times were read as {_units.told(units)}" if units else ""))


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
            "one of " + ", ".join(TOKENS) + " in each line",
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
        f"{point_label(one.concurrency, one.context_tokens)} {percentage(one.share)}" for one in mix
    )
    said = (
        f"weights from {source}: {counted(len(served), 'request')}, at work "
        f"{percentage(busy_s / whole_s)} of {whole_s / 3600:.2g} h, a request took "
        f"{statistics.median(one.end_s - one.begin_s for one in served):.3g} s and "
        f"{_median(loads)} were in flight at the median, {max(loads)} at most; taken as {listed}"
    )
    if beyond:
        said += f"; {percentage(beyond)} of the time lay beyond C={most}, the greatest measured"
    return said


def _median(loads: Mapping[int, float]) -> int:
    half, so_far = math.fsum(loads.values()) / 2, 0.0
    for load in sorted(loads):
        so_far += loads[load]
        if so_far >= half:
            return load
    return max(loads)
