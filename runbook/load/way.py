"""The way from the load to a server that another host runs: how long an answer takes over it."""

from __future__ import annotations

import contextlib
import http.client
import statistics
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from runbook.probe.completion import MOST_BYTES

_TRIES = 15
_PATIENCE_S = 10.0
#: All of them together, in seconds: a server may send one byte now and then.
_WHOLE_S = 60.0


@dataclass(frozen=True)
class Way:
    """``round_trip_ms``: the median of small requests to a server at rest, one after the other on
    one connection; ``lag_ms``: by how much the slowest of them was slower."""

    round_trip_ms: float
    lag_ms: float


def look_at_way(url: str) -> Way | None:
    """The way to the server at ``url``; ``None`` where it does not answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_PATIENCE_S)
    deadline = time.monotonic() + _WHOLE_S
    took_ms = []
    try:
        with contextlib.closing(connection):
            for _ in range(1 + _TRIES):
                began = time.perf_counter()
                connection.request("GET", "/v1/models")
                if not _read_to_its_end(connection.getresponse(), deadline):
                    return None
                took_ms.append((time.perf_counter() - began) * 1000)
    except (OSError, http.client.HTTPException):
        return None
    median_ms = statistics.median(took_ms[1:])  # the first one also connects
    return Way(median_ms, max(took_ms[1:]) - median_ms)


def _read_to_its_end(answer: http.client.HTTPResponse, deadline: float) -> bool:
    """Whether it came to its end in time and within ``MOST_BYTES``."""
    left = MOST_BYTES
    while data := answer.read1(left):
        left -= len(data)
        if left <= 0 or time.monotonic() > deadline:
            return False
    answer.read()  # nothing is left; the connection can take the next request
    return True


def worse(first: Way | None, second: Way | None) -> Way | None:
    """Of two looks at a way the worst of each; what one of them does not know the other does."""
    if first is None or second is None:
        return first or second
    return Way(max(first.round_trip_ms, second.round_trip_ms), max(first.lag_ms, second.lag_ms))
