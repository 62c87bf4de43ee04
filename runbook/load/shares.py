"""One plan for several workers, and one result of theirs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runbook.load.plan import LoadPlan, LoadResult
from runbook.load.records import Record

#: A worker serves 4,000 events a second with a fifteenth of a core; see benchmarks/client_cost.py.
STREAMS_PER_WORKER = 256


def split(plan: LoadPlan, streams_per_worker: int = STREAMS_PER_WORKER) -> tuple[LoadPlan, ...]:
    """Shares of ``plan`` that together send the same requests over the same streams.

    What must not be in flight twice (a prompt, a conversation) stays within one share.
    """
    turns = [plan.prompts[number % len(plan.prompts)] for number in range(plan.requests)]
    keys = {key: at for at, key in enumerate(dict.fromkeys(prompt.key for prompt in turns))}
    count = min(-(-plan.concurrency // streams_per_worker), len(keys))
    if count < 2:
        return (plan,)
    own: list[list[int]] = [[] for _ in range(count)]
    for number, prompt in enumerate(turns):
        own[keys[prompt.key] % count].append(number)
    return tuple(
        replace(
            plan,
            prompts=tuple(turns[number] for number in numbers),
            requests=len(numbers),
            concurrency=plan.concurrency // count + (at < plan.concurrency % count),
            arrivals_s=tuple(plan.arrivals_s[n] for n in numbers) if plan.arrivals_s else (),
        )
        for at, numbers in enumerate(own)
    )


def merge(
    records: Sequence[Record], results: Sequence[Mapping[str, Any]], ended_early: str | None
) -> LoadResult:
    """The result of all shares; ``results``: what each worker said of its own load."""
    lags = [result["loop_lag_ms"] for result in results if result["loop_lag_ms"] is not None]
    alone = results[0]["max_in_flight"] if len(results) == 1 else None
    return LoadResult(
        tuple(records),
        started_s=min(result["started_s"] for result in results),
        ended_s=max(result["ended_s"] for result in results),
        client_cpu_s=sum(result["client_cpu_s"] for result in results),
        loop_lag_ms=max(lags, default=None),
        max_in_flight=most_at_once(records) if alone is None else alone,
        startup_cpu_s=sum(result["startup_cpu_s"] for result in results),
        ended_early=ended_early,
        client_share=max(result["client_share"] for result in results),
        workers=len(results),
    )


def most_at_once(records: Sequence[Record]) -> int:
    """The greatest number of requests in flight together, from send to end."""
    ends = [(one.sent_s, one.end_s) for one in records]
    spans = [(begin, end) for begin, end in ends if begin is not None and end is not None]
    # At equal times an end comes first: the request after it is no second one.
    steps = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most
