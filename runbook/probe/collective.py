"""A trial all-reduce over all cards, compared and timed, and their links while it runs, as one line
of JSON.

Run as ``serving.py`` is, where the cards are idle, with OPTIONS as JSON: ``gpus`` (how many),
``limit_s``, ``busy_percent``. The line is
``{"probe": "collective", "facts": {"collective": ...}, "reasons": {}}``:
``us`` (microseconds by bytes; empty when there was no answer in time), ``compared`` (how often a
rank compared what arrived, element by element, with what was sent), ``wrong`` (where that differed,
at most one entry a rank, size and sender), ``links`` (generation and width a card under load),
``busy_after`` (cards at work after the end: a hang that outlives its processes), ``said`` (the last
line of an error). The driver allowing cards to reach one another does not mean that they do, and an
answer in time does not mean that it is right. Standard library alone, Python 3.8 or newer, one
file.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

#: What is timed, in bytes.
BYTES = (32 << 10, 256 << 10, 32 << 20)
#: What is compared, in elements of 8 bytes: odd, so that no block is full, and of every protocol
#: that NCCL chooses by size.
ELEMENTS = (1, 1023, 65537, 4194301)
MOST_WRONG = 64
SETTLE_S = 3.0
END_S = 10.0
MOST_BYTES = 1 << 24

#: One rank. It ends with its parent. Values differ by rank and position, and their sums are whole
#: numbers, which are exact in whatever order they are added. In a round every rank sends to the
#: rank that lies ``shift`` above it, so that all rounds are both directions of every pair. The
#: largest size is sent for two seconds more after the times were told, so that the links can be
#: read under load.
RANK = """
import json, os, sys, threading, time
parent = os.getppid()
def follow():
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
threading.Thread(target=follow, daemon=True).start()
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
told = set()
def tell(**found):
    print("\\ncompared " + json.dumps(dict(found, rank=rank)), flush=True)
def wrong(elements, sender, at, found, wanted):
    if (elements, sender) not in told:
        told.add((elements, sender))
        tell(elements=elements, sender=sender, at=at, found=found, wanted=wanted)
def compare(data, factor, elements, sender=None):
    torch.cuda.synchronize()
    wanted = torch.arange(1, elements + 1, device="cuda") * factor
    if not torch.equal(data, wanted):
        at = int((data != wanted).nonzero()[0].item())
        wrong(elements, sender, at, data[at].item(), wanted[at].item())
factors = [2 * one + 3 for one in range(world)]
one = torch.tensor([factors[rank]], device="cuda")
dist.all_reduce(one)
torch.cuda.synchronize()
if one.item() != sum(factors):
    wrong(1, None, 0, one.item(), sum(factors))
counts, sizes = json.loads(sys.argv[1]), json.loads(sys.argv[2])
times = 1
for elements in counts:
    for _ in range(3):
        data = torch.arange(1, elements + 1, device="cuda") * factors[rank]
        dist.all_reduce(data)
        compare(data, sum(factors), elements)
        times += 1
for shift in range(1, world):
    to, sender = (rank + shift) % world, (rank - shift) % world
    for elements in counts[1:]:
        data = torch.arange(1, elements + 1, device="cuda") * factors[rank]
        got = torch.zeros_like(data)
        ends = [dist.P2POp(dist.isend, data, to), dist.P2POp(dist.irecv, got, sender)]
        for work in dist.batch_isend_irecv(ends):
            work.wait()
        compare(got, factors[sender], elements, sender)
        times += 1
tell(times=times)
us = {}
for size in sizes:
    data = torch.ones(size // 2, dtype=torch.float16, device="cuda")
    for _ in range(5):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    rounds, begun = 50, time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    us[size] = (time.perf_counter() - begun) / rounds * 1e6
if rank == 0:
    print("\\nall-reduce " + json.dumps(us), flush=True)
again = max(1, int(2e6 / us[size]))
again = torch.tensor([again], device="cuda")
dist.broadcast(again, 0)
for _ in range(int(again.item())):
    dist.all_reduce(data)
torch.cuda.synchronize()
dist.destroy_process_group()
"""


def read_collective(options: dict[str, Any]) -> dict[str, Any]:
    """Run one rank a card; whatever happens, none of them is left."""
    deadline = time.monotonic() + options["limit_s"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        ranks = _start(options["gpus"], out, err)
        links: list[dict[str, str]] = []
        try:
            while any(rank.poll() is None for rank in ranks) and time.monotonic() < deadline:
                if not links and _times(out):
                    links = _ask_cards("pcie.link.gen.current", "pcie.link.width.current")
                if any(rank.poll() for rank in ranks):
                    break
                time.sleep(0.1)
        finally:
            done = all(rank.poll() == 0 for rank in ranks)
            _end(ranks)
        us, said = _times(out), _text(err).strip().splitlines()[-1:]
        compared = _told(out, "compared")
    time.sleep(0 if done else SETTLE_S)
    return {
        "us": us if done else {},
        "compared": sum(one.get("times", 0) for one in compared),
        "wrong": [one for one in compared if "at" in one][:MOST_WRONG],
        "said": "" if done else "".join(said)[:300],
        "links": links,
        "busy_after": [
            card["index"]
            for card in _ask_cards("utilization.gpu")
            if _is_busy(card, options["busy_percent"])
        ],
    }


def _start(count: int, out: Any, err: Any) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(count):
        shared = {"WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        env = {**os.environ, "RANK": str(rank), **{k: str(v) for k, v in shared.items()}}
        argv = [sys.executable, "-c", RANK, json.dumps(ELEMENTS), json.dumps(BYTES)]
        ranks.append(
            subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        )
    return ranks


def _end(ranks: list[subprocess.Popen[bytes]]) -> None:
    """Kill what still runs; one that the driver holds is not waited for."""
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
    for rank in ranks:
        try:
            rank.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            pass


def _times(out: Any) -> dict[str, float]:
    """The times that rank 0 has told so far."""
    return next(iter(_told(out, "all-reduce")), {})


def _told(out: Any, what: str) -> list[dict[str, Any]]:
    """What the ranks have told under ``what`` so far, among whatever NCCL prints; a line that
    another process wrote into is none."""
    found = []
    for line in _text(out).splitlines():
        if line.startswith(what + " {"):
            try:
                found.append(json.loads(line[len(what) :]))
            except ValueError:
                continue
    return found


def _text(file: Any) -> str:
    """What the ranks have written; their place in the file, which is shared, is left alone."""
    return os.pread(file.fileno(), MOST_BYTES, 0).decode("utf-8", "backslashreplace")


def _ask_cards(*fields: str) -> list[dict[str, str]]:
    """These fields of every card; none where nvidia-smi does not answer."""
    query = "--query-gpu=" + ",".join(("index", *fields))
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.split(",") for line in done.stdout.decode("utf-8", "replace").splitlines()]
    return [
        dict(zip(("index", *fields), [word.strip() for word in row]))
        for row in rows
        if len(row) == 1 + len(fields)
    ]


def _is_busy(card: dict[str, str], percent: float) -> bool:
    used = card["utilization.gpu"]
    return used.isdigit() and int(used) >= percent


def main() -> None:
    """Print the answer; a failure of the probe itself is a reason."""
    answer: dict[str, Any] = {"probe": "collective", "facts": {"collective": None}, "reasons": {}}
    try:
        answer["facts"]["collective"] = read_collective(json.loads(sys.argv[1]))
    except Exception as error:
        answer["reasons"]["collective"] = f"{type(error).__name__}: {error}"
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
