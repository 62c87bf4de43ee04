"""How true the worker's times are: the server writes its send time into each event.

    python benchmarks/client_truth.py [--streams 100] [--events 200] [--requests 400]

The error of a time is the client's stamp less the server's: of the first token (TTFT) and of the
last. Streams have phases of their own. Once on the machine as it is, once with one core taken by
another process: there the error may be large, and is told beside what the worker said of itself.
Exit 1 when the first is beyond p50 1 ms or p99 5 ms. Some 50 seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from client_cost import paced, plan_of

from runbook.benchmark.figures import quantile
from runbook.load import LoadResult, run_load

P50_MS, P99_MS = 1.0, 5.0


def errors_ms(load: LoadResult) -> dict[str, list[float]]:
    """What the client's stamps add to the server's, by kind."""
    found: dict[str, list[float]] = {"first token": [], "last token": []}
    for record in load.records:
        assert record.ok and record.first_token_s and record.last_token_s, record.error
        words = record.text.split()
        found["first token"].append(1000 * (record.first_token_s - float(words[0])))
        found["last token"].append(1000 * (record.last_token_s - float(words[-1])))
    return found


def measure(streams: int, events: int, requests: int) -> tuple[bool, str]:
    with paced("--staggered") as url:
        load = run_load(plan_of(url, streams, events, requests))
    good, said = True, []
    for kind, values in errors_ms(load).items():
        p50, p99 = quantile(values, 50) or 0.0, quantile(values, 99) or 0.0
        good = good and p50 <= P50_MS and p99 <= P99_MS
        said.append(f"{kind} p50 {p50:.2f} ms, p99 {p99:.2f} ms, most {max(values):.2f} ms")
    lag = "unknown" if load.loop_lag_ms is None else f"{load.loop_lag_ms:.2f} ms"
    own = f"{load.client_share:.1%} of a core, event loop late by {lag} (p99)"
    return good, f"{'; '.join(said)}; the worker of itself: {own}"


@contextlib.contextmanager
def taken_core() -> Iterator[None]:
    """One core held by a process that never sleeps."""
    core = max(os.sched_getaffinity(0))
    script = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", script]) as busy:
        try:
            yield
        finally:
            busy.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--requests", type=int, default=400)
    asked = parser.parse_args()
    load = asked.streams, asked.events, asked.requests
    print(f"{asked.requests} requests over {asked.streams} streams, an event each 25 ms")
    good, said = measure(*load)
    print(f"as it is: {said}")
    with taken_core():
        _, taken = measure(*load)
    print(f"one core taken: {taken}")
    print("true" if good else f"not true: wanted p50 {P50_MS:g} ms, p99 {P99_MS:g} ms at the most")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
