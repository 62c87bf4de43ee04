"""What a measured stream costs: this project's worker beside other clients, in one run.

    python benchmarks/client_cost.py [--rounds 5] [--streams 100] [--events 200] [--records 2000]

Each round runs every client once, in turn, each in a process of its own, against a server that
sends one event a stream every 25 ms. Counted are user and system seconds of the client's process;
what it took before its load began stands apart. All of them parse each event's JSON. Clients:
ours (the whole worker: parsing and handing on of the records included), an ``asyncio.Protocol``
with nothing but the standard library, aiohttp, httpx. One that is not installed is left out, said.
Beside them, what no client that takes each event as it comes can be below: a protocol on uvloop
that looks at nothing (``floor``), so all its cost is the kernel's and the event loop's.
At the end, memory by 1,000 records. Defaults: 100,000 events a client, some three minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop

from runbook.load import LoadPlan, Prompt, run_load

OURS, OTHERS = "ours", ("floor", "stdlib", "aiohttp", "httpx")


@contextlib.contextmanager
def paced(*options: str) -> Iterator[str]:
    """The paced server in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("paced.py")), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def plan_of(url: str, streams: int, events: int, requests: int | None = None) -> LoadPlan:
    count = requests or streams
    prompts = tuple(
        Prompt(f"p{n}", "edit", ({"role": "user", "content": f"prompt {n}"},)) for n in range(count)
    )
    return LoadPlan(url, "m", prompts, count, streams, events)


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def body_of(events: int) -> bytes:
    messages = [{"role": "user", "content": "prompt"}]
    asked = {"model": "m", "messages": messages, "stream": True, "max_tokens": events}
    return json.dumps(asked).encode()


def take(line: bytes) -> int:
    """One line of the stream, parsed; 1 for an event with a choice."""
    if not line.startswith(b"data: {"):
        return 0
    return len(json.loads(line[6:])["choices"])


# --- the others


class Plain(asyncio.Protocol):
    """Chunked HTTP by hand."""

    def __init__(self, request: bytes, ended: asyncio.Future[None]) -> None:
        self.request, self.ended = request, ended
        self.rest, self.in_body, self.events = b"", False, 0
        self.stamps: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.stamps.append(time.monotonic())
        self.rest += data
        if not self.in_body:
            _, found, rest = self.rest.partition(b"\r\n\r\n")
            if not found:
                return
            self.rest, self.in_body = rest, True
        while b"\r\n" in self.rest:
            size, _, rest = self.rest.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                return
            piece, self.rest = rest[:length], rest[length + 2 :]
            if not length:
                self.ended.set_result(None)
                return
            for line in piece.split(b"\n"):
                self.events += take(line)


class Floor(asyncio.Protocol):
    """Takes what comes and looks at nothing but the end."""

    def __init__(self, request: bytes, ended: asyncio.Future[None]) -> None:
        self.request, self.ended, self.events = request, ended, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self.request)

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b'"choices":[{')
        if data.endswith(b"\r\n0\r\n\r\n"):
            self.ended.set_result(None)


async def stdlib(
    url: str, streams: int, events: int, kind: type[Plain] | type[Floor] = Plain
) -> int:
    loop, address, body = asyncio.get_running_loop(), urlsplit(url), body_of(events)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"

    async def one() -> int:
        ended = loop.create_future()
        _, protocol = await loop.create_connection(
            lambda: kind(head.encode() + body, ended), address.hostname, address.port
        )
        await ended
        return protocol.events

    return sum(await asyncio.gather(*(one() for _ in range(streams))))


async def with_aiohttp(url: str, streams: int, events: int) -> int:
    import aiohttp

    async def one(session: aiohttp.ClientSession) -> int:
        count, stamps = 0, []
        async with session.post(url + "/v1/chat/completions", data=body_of(events)) as answer:
            async for line in answer.content:
                stamps.append(time.monotonic())
                count += take(line)
        return count

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        return sum(await asyncio.gather(*(one(session) for _ in range(streams))))


async def with_httpx(url: str, streams: int, events: int) -> int:
    import httpx

    async def one(client: httpx.AsyncClient) -> int:
        count, stamps = 0, []
        target = url + "/v1/chat/completions"
        async with client.stream("POST", target, content=body_of(events)) as answer:
            async for line in answer.aiter_lines():
                stamps.append(time.monotonic())
                count += take(line.encode())
        return count

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:
        return sum(await asyncio.gather(*(one(client) for _ in range(streams))))


async def floor(url: str, streams: int, events: int) -> int:
    return await stdlib(url, streams, events, Floor)


CLIENTS = {"floor": floor, "stdlib": stdlib, "aiohttp": with_aiohttp, "httpx": with_httpx}


def run_one(name: str, url: str, streams: int, events: int) -> None:
    """What a child process does: one client's load, its cost as a line of JSON."""
    if name in ("aiohttp", "httpx"):
        importlib.import_module(name)
    startup_s = cpu_s()
    run = uvloop.run if name == "floor" else asyncio.run
    count = run(CLIENTS[name](url, streams, events))
    print(json.dumps({"events": count, "cpu_s": cpu_s() - startup_s, "startup_s": startup_s}))


# --- the comparison


def cost_of(name: str, url: str, streams: int, events: int) -> dict[str, float]:
    if name == OURS:
        load = run_load(plan_of(url, streams, events), streams_per_worker=streams)
        assert all(record.ok for record in load.records), load.records[0].error
        count = sum(record.chunks for record in load.records)
        return {"events": count, "cpu_s": load.client_cpu_s, "startup_s": load.startup_cpu_s}
    words = ["--one", name, "--url", url, "--streams", str(streams), "--events", str(events)]
    said = subprocess.run([sys.executable, __file__, *words], capture_output=True, check=True)
    found: dict[str, float] = json.loads(said.stdout)
    return found


def compare(rounds: int, streams: int, events: int) -> None:
    names = [
        OURS,
        "floor",
        "stdlib",
        *(one for one in ("aiohttp", "httpx") if importlib.util.find_spec(one)),
    ]
    for name in OTHERS:
        if name not in names:
            print(f"{name}: not installed, left out (next: .venv/bin/uv pip install {name})")
    costs: dict[str, list[float]] = {name: [] for name in names}
    startups: dict[str, list[float]] = {name: [] for name in names}
    with paced() as url:
        for number in range(rounds):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                found = cost_of(name, url, streams, events)
                assert found["events"] == streams * events, (name, found)
                costs[name].append(1e6 * found["cpu_s"] / found["events"])
                startups[name].append(1000 * found["startup_s"])
    print(f"{streams} streams, an event each 25 ms, {rounds * streams * events} events a client")
    own = statistics.median(costs[OURS])
    for name in names:
        middle = statistics.median(costs[name])
        print(
            f"{name:<8} {middle:6.1f} ms CPU / 1000 events (median of {rounds}: "
            f"{min(costs[name]):.1f} to {max(costs[name]):.1f}), start-up "
            f"{statistics.median(startups[name]):.0f} ms, ours / this {own / middle:.2f}"
        )


def memory(records: int) -> None:
    """Resident memory of the caller, who keeps all records, and of the worker, who keeps none."""
    peaks_kib: list[int] = []

    def watch() -> bool:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if b"runbook.load.worker" in (entry / "cmdline").read_bytes():
                    status = (entry / "status").read_text()
                    peaks_kib.append(int(status.partition("VmRSS:")[2].split()[0]))
        return True

    def resident_kib() -> int:
        return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])

    with paced("--step-ms", "2") as url:
        run_load(plan_of(url, 100, 50, 100))
        before = resident_kib()
        load = run_load(plan_of(url, 100, 50, records), alive=watch)
        grown = resident_kib() - before
    assert len(load.records) == records
    print(
        f"memory: {grown / 1024 / records * 1000:.2f} MiB by 1000 records of 50 tokens in the "
        f"caller; {_over_time(peaks_kib)}"
    )


def _over_time(resident_kib: Sequence[int]) -> str:
    """The worker's memory at the begin of a load and at its end."""
    if len(resident_kib) < 4:
        return "of the worker too few records tell nothing"
    quarter = len(resident_kib) // 4
    first, last = max(resident_kib[:quarter]), max(resident_kib[-quarter:])
    return f"the worker {first / 1024:.1f} MiB in the first quarter, {last / 1024:.1f} in the last"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--one", choices=OTHERS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(options.one, options.url, options.streams, options.events)
        return
    compare(options.rounds, options.streams, options.events)
    memory(options.records)


if __name__ == "__main__":
    main()
