"""What a load is asked to do: a value that can be sent to a worker anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runbook.load.records import Prompt, Record


@dataclass(frozen=True)
class LoadPlan:
    """``requests`` requests, prompts taken in turn.

    Without ``arrivals_s`` a closed loop over ``concurrency`` streams. With them an open loop: when
    each request is due, seconds after the start, ascending; ``concurrency`` bounds those at once.
    ``url``: base URL without ``/v1``. ``extra``: further fields of each request body.
    ``api_key_file``: absolute path of a file that holds the key alone.
    """

    url: str
    model: str
    prompts: tuple[Prompt, ...]
    requests: int
    concurrency: int
    output_tokens: int
    temperature: float = 0.0
    seed: int = 1
    request_timeout_s: float = 600.0
    api_key_file: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    arrivals_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class LoadResult:
    """The records in order of their end, and what the client itself cost.

    ``client_cpu_s``: user and system seconds of the workers during the load; ``startup_cpu_s``:
    those before it. ``client_share``: of a core, that of the busiest worker. ``loop_lag_ms``: 99th
    percentile of the event loop's lateness, of the worst worker, ``None`` for a load too short to
    tell. ``max_in_flight``: greatest number at once. ``ended_early``: why not
    all requests were sent, ``None`` when they were.
    """

    records: tuple[Record, ...]
    started_s: float
    ended_s: float
    client_cpu_s: float
    loop_lag_ms: float | None
    max_in_flight: int
    startup_cpu_s: float = 0.0
    ended_early: str | None = None
    client_share: float = 0.0
    workers: int = 1
