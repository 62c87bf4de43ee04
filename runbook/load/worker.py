"""The worker process: ``python -m runbook.load.worker``.

The first line on standard input is the plan, the second begins the load: workers that share one
begin together. A line on standard output says that the worker is ready; then one is a record, as
its request ends; the last one is what the client itself cost. The caller keeps standard input
open: its end means that the caller is gone or wants no more, and the load ends early.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import orjson
import uvloop

from runbook.load.loops import Loop
from runbook.load.plan import LoadPlan
from runbook.load.records import Prompt
from runbook.load.sender import Sender

_TICK_S = 0.02


class LagMeter:
    """How late the event loop serves a timer, measured while it runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._late_s: list[float] = []
        self._schedule()

    def _schedule(self) -> None:
        # Not the loop's own clock: uvloop's stands still within a turn and counts whole ms.
        self._due_s = time.monotonic() + _TICK_S
        self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._late_s.append(max(0.0, time.monotonic() - self._due_s))
        self._schedule()

    def stop(self) -> float | None:
        """End measuring; the 99th percentile in milliseconds, ``None`` without a tick."""
        self._timer.cancel()
        late_s = sorted(self._late_s)
        return late_s[int(0.99 * (len(late_s) - 1))] * 1000 if late_s else None


def plan_from_json(line: bytes) -> LoadPlan:
    """The plan as ``orjson.dumps`` of a ``LoadPlan`` gives it."""
    values: dict[str, Any] = orjson.loads(line)
    prompts = (
        Prompt(**one | {"messages": tuple(one["messages"]), "tools": tuple(one["tools"])})
        for one in values.pop("prompts")
    )
    arrivals_s = tuple(values.pop("arrivals_s"))
    return LoadPlan(prompts=tuple(prompts), arrivals_s=arrivals_s, **values)


def cpu_s() -> float:
    """User and system seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class _StandardInput(asyncio.Protocol):
    """Calls ``on_line`` with each line and ``on_end`` when the caller closes its end."""

    def __init__(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_line = on_line
        self._on_end = on_end
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\n" in data:
            *lines, self._received = self._received.split(b"\n")
            for line in lines:
                self._on_line(bytes(line))

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


class _StandardOutput(asyncio.Protocol):
    """Lines out without ever blocking the event loop; ``flush`` waits until all are written."""

    def __init__(self) -> None:
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.set_write_buffer_limits(0)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()

    def write(self, name: str, value: Any) -> None:
        self._transport.write(orjson.dumps({name: value}) + b"\n")

    async def flush(self) -> None:
        await self._writable.wait()


async def _load(loop: Loop, stop: asyncio.Event, startup_cpu_s: float) -> dict[str, Any]:
    """Run the plan until its end or ``stop``; what the client cost, as ``LoadResult`` names it."""
    lag = LagMeter(asyncio.get_running_loop())
    begun_cpu_s, started_s = cpu_s(), time.monotonic()
    load = asyncio.create_task(loop.run())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({load, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not load.done():
        load.cancel()
    stopped.cancel()
    await asyncio.gather(load, return_exceptions=True)
    if not load.cancelled():
        load.result()
    used_s, ended_s = cpu_s() - begun_cpu_s, time.monotonic()
    return {
        "started_s": started_s,
        "ended_s": ended_s,
        "client_cpu_s": used_s,
        "client_share": used_s / max(ended_s - started_s, 1e-9),
        "loop_lag_ms": lag.stop(),
        "max_in_flight": loop.max_in_flight,
        "startup_cpu_s": startup_cpu_s,
    }


async def _main() -> None:
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    stop = asyncio.Event()

    def end() -> None:
        stop.set()
        lines.put_nowait(b"")

    event_loop = asyncio.get_running_loop()
    await event_loop.connect_read_pipe(lambda: _StandardInput(lines.put_nowait, end), sys.stdin)
    _, out = await event_loop.connect_write_pipe(_StandardOutput, sys.stdout)
    plan = plan_from_json(await lines.get())
    loop = Loop(plan, Sender(plan, lambda record: out.write("record", record)))
    gc.collect()
    gc.freeze()
    gc.disable()
    startup_cpu_s = cpu_s()
    out.write("ready", True)
    await lines.get()
    out.write("result", await _load(loop, stop, startup_cpu_s))
    await out.flush()


if __name__ == "__main__":
    uvloop.run(_main())
    # The caller may hold standard input open for longer; nothing is left to do here.
    os._exit(0)
