"""What SGLang's log says: why a start failed, which worker runs, how full its batches are. Pure."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass

from runbook.engines.sglang.explain import Cause, explain
from runbook.engines.sglang.releases import NO_OVERLAP, WORKER_LINES
from runbook.launch.spec import LaunchSpec

_HANG_BEGIN = re.compile(r"Init torch distributed begin")
_HANG_END = re.compile(r"Init torch distributed ends|Load weight begin")
_HANG = (
    "NCCL hang suspected",
    "look at the cards: full utilisation at low power and a silent log mean a deadlock; see "
    "NCCL_P2P_LEVEL, ACS and IOMMU, and try NCCL_P2P_DISABLE=1",
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def find_cause(log: str, launch: LaunchSpec | None = None) -> Cause | None:
    """Why a start failed, ``None`` where the log holds nothing that is known.

    ``launch``: advice that it follows already is not given.
    """
    cause, has_failed = explain(log, launch)
    if has_failed:
        return cause
    lines = [line.strip() for line in _ANSI.sub("", log).splitlines() if line.strip()]
    begins = [place for place, line in enumerate(lines) if _HANG_BEGIN.search(line)]
    if begins and not any(_HANG_END.search(line) for line in lines[begins[0] :]):
        return Cause(_HANG[0], lines[-1][:300], _HANG[1])
    return None


def find_worker(log: str) -> str | None:
    """The worker that the log names: ``v1``, ``v2``, ``v2 overlap``, or ``no overlap`` where it
    says no more; ``None`` where it names none, or several."""
    lines = log.splitlines()
    found = {
        worker for pattern, worker in WORKER_LINES if any(re.search(pattern, x) for x in lines)
    }
    exact = found - {NO_OVERLAP} or found
    return exact.pop() if len(exact) == 1 else None


@dataclass(frozen=True)
class DecodeBatch:
    """One line on the decode batch; ``None`` where the line does not tell (no speculation)."""

    running: int
    queued: int | None
    tokens_per_s: float | None
    accept_length: float | None


def find_acceptance(log: str) -> float | None:
    """The mean over the decode batches of a log, each weighed by its requests; ``None`` where none
    tells. A line is of the steps since the last one."""
    batches = [found for line in log.splitlines() if (found := read_decode_batch(line))]
    told = [(one.accept_length, one.running) for one in batches if one.accept_length is not None]
    weight = sum(running for _, running in told)
    return sum(length * running for length, running in told) / weight if weight else None


_RANK = re.compile(r"\bDP\d+\b")
_DECODE = re.compile(r"Decode batch(?: \[\d+\])?[.,]")
_FIELD = {
    "running": re.compile(r"#running-req: (\d+)\b"),
    "queued": re.compile(r"#queue-req: (\d+)\b"),
    "tokens_per_s": re.compile(r"gen throughput \(token/s\): (\d+(?:\.\d+)?)"),
    "accept_length": re.compile(r"accept len: (\d+(?:\.\d+)?)"),
}


def read_decode_batch(line: str) -> DecodeBatch | None:
    """A decode batch as any release writes it, whatever stands before it or between its fields."""
    line = _ANSI.sub("", line)
    start = _DECODE.search(line)
    if not start:
        return None
    said = {
        name: match.group(1) if (match := pattern.search(line, start.end())) else None
        for name, pattern in _FIELD.items()
    }
    if said["running"] is None:
        return None
    return DecodeBatch(
        int(said["running"]),
        None if said["queued"] is None else int(said["queued"]),
        None if said["tokens_per_s"] is None else float(said["tokens_per_s"]),
        None if said["accept_length"] is None else float(said["accept_length"]),
    )


def running_at_once(log: str) -> float | None:
    """The median of ``#running-req`` over decode batches, ranks of data parallelism summed."""
    ranks: dict[str, list[int]] = {}
    for line in log.splitlines():
        if batch := read_decode_batch(line):
            rank = _RANK.search(line)
            ranks.setdefault(rank.group() if rank else "", []).append(batch.running)
    return float(sum(statistics.median(own) for own in ranks.values())) if ranks else None
