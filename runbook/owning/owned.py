"""The creator's side of ``owner.py``: start an owner, give it orders, hear what happens."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from runbook.errors import BadInput, HostFailed, RunBusy
from runbook.owning import owner
from runbook.run import RUNNER_PID

#: How long an owner may take to end all it started, in seconds.
CLOSE_S = 10.0

Event = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What an owner starts. ``env`` is whole; ``log`` gets both outputs; ``limits`` and ``process``
    are as in ``LaunchSpec``; ``cgroup`` is the folder in which a cgroup is made; ``lock`` is a file
    that only one owner at a time can hold; ``at_end`` are commands that run, with ``env``, once
    everything has ended."""

    argv: Sequence[str]
    env: Mapping[str, str]
    log: str
    cwd: str = "/"
    user: str = ""
    limits: Mapping[str, int | None] = field(default_factory=dict)
    process: Mapping[str, Any] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict)
    lock: str | None = None
    cgroup: str | None = None
    watch_pid: int | None = None
    at_end: Sequence[Sequence[str]] = ()


class Owned:
    """A running owner. Thread-safe; ``close`` leaves nothing of what it started."""

    def __init__(self, job: Job, faults: Path | None) -> None:
        """Start it; what goes wrong in the owner itself is printed to the file ``faults``."""
        self._faults = faults or Path(os.devnull)
        self._guard = threading.RLock()
        self._buffer = b""
        fields = {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in {**vars(job), "watch_pid": job.watch_pid or runner_pid()}.items()
        }
        with self._faults.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", owner.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd="/",
                start_new_session=True,
            )
        self._send(fields)

    @property
    def pid(self) -> int:
        """The owner's process."""
        return self._process.pid

    def order(self, do: str, **details: float) -> None:
        """Give an order; one to an owner that has ended is lost, its events say so."""
        self._send({"do": do, **details})

    def event(self, timeout_s: float) -> Event | None:
        """The next event, ``None`` when none comes in time; at the end ``{"event": "ended"}``."""
        deadline = time.monotonic() + timeout_s
        with self._guard:
            while b"\n" not in self._buffer:
                if self._process.stdout is None or self._process.stdout.closed:
                    return {"event": "ended"}
                pipe = self._process.stdout.fileno()
                if not is_readable(pipe, max(0.0, deadline - time.monotonic())):
                    return None
                data = os.read(pipe, 65536)
                if not data:
                    return {"event": "ended"}
                self._buffer += data
            line, _, self._buffer = self._buffer.partition(b"\n")
        event: Event = json.loads(line)
        return event

    def started(self, what: str, timeout_s: float) -> Event:
        """Wait for the start: the event. Raises ``RunBusy`` or ``HostFailed`` and closes."""
        event = self.event(timeout_s)
        if event and event["event"] == "started":
            return event
        self.close()
        if event and event["event"] == "busy":
            raise RunBusy(
                f"{what} is in use by process {event['by']} ({command_of(event['by'])})",
                "one process at a time",
                "wait for it to end, or end it",
            )
        why = (event or {}).get("why") or self._fault() or "its owner did not answer"
        raise HostFailed(
            f"{what} did not start: {why}", "a program that starts", "correct what it names"
        )

    def close(self) -> None:
        """End everything and wait until nothing is left. Safe to call twice."""
        with self._guard:
            if self._process.stdin:
                self._process.stdin.close()
            try:
                self._process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._guard:
            pipe = self._process.stdin
            if pipe is None or pipe.closed:
                return
            try:
                pipe.write(json.dumps(message).encode() + b"\n")
            except BrokenPipeError:
                pipe.close()

    def _fault(self) -> str:
        return self._faults.read_text(errors="backslashreplace").strip()[-2000:]


def is_readable(descriptor: int, timeout_s: float = 0.0) -> bool:
    """Whether there is something to read, or the end; for a pidfd: whether the process ended."""
    poll = select.poll()  # select(2) knows descriptors below 1024 only
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def runner_pid() -> int | None:
    """The process named by ``RUNBOOK_RUNNER_PID``, if any. Raises ``BadInput``."""
    text = os.environ.get(RUNNER_PID)
    if not text:
        return None
    if not text.isdecimal():
        raise BadInput(f"{RUNNER_PID} is {text!r}", "a process id", f"unset {RUNNER_PID}")
    return int(text)


def command_of(pid: int | str) -> str:
    """The command of a process without its options (they may hold secrets), or ``unknown``."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "unknown"
    words = [word for word in words if word]
    shown = [Path(word).name for word in words[:1]]
    for before, word in pairwise(words):
        if (word.startswith("-") and word != "-m") or len(shown) > 3:
            break
        shown.append(word if before == "-m" else Path(word).name)
    return " ".join(shown) or "unknown"
