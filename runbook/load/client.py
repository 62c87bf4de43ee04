"""The caller's side of the workers: a plan in, records as they end, the whole result."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import orjson

from runbook.errors import BadInput, RunbookError
from runbook.load.plan import LoadPlan, LoadResult
from runbook.load.records import Record
from runbook.load.sender import read_key
from runbook.load.shares import STREAMS_PER_WORKER, merge, split

_POLL_S = 0.5
_STOP_S = 5.0
#: The worker answers for each request within its time-out; a silence this much longer is a fault.
_SLACK_S = 60.0


def run_load(
    plan: LoadPlan,
    on_record: Callable[[Record], None] | None = None,
    alive: Callable[[], bool] | None = None,
    streams_per_worker: int = STREAMS_PER_WORKER,
) -> LoadResult:
    """Run ``plan`` in worker processes; ``on_record`` sees each record when its request ends.

    When ``alive()`` turns false the load ends early: requests in flight are recorded as failed,
    the others are not sent, and ``ended_early`` says so. Raises ``BadInput`` for a plan that
    cannot be run and ``RunbookError`` when a worker itself fails.
    """
    _refuse_bad_plan(plan)
    records: list[Record] = []
    results: list[dict[str, Any]] = []
    ended_early: str | None = None
    shares = split(plan, streams_per_worker)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_Worker(share)) for share in shares]
        for line in _lines(workers, plan.request_timeout_s + _SLACK_S):
            if line is None:
                if ended_early is None and alive is not None and not alive():
                    ended_early = "the server died"
                    for worker in workers:
                        worker.end_early()
            elif "record" in line:
                records.append(Record(**line["record"]))
                if on_record is not None:
                    on_record(records[-1])
            elif "result" in line:
                results.append(line["result"])
        if len(results) == len(workers):
            if ended_early is None and len(records) < plan.requests:
                ended_early = "the worker was told to stop"
            return merge(records, results, ended_early)
        tail = " ".join(worker.last_words() for worker in workers).strip()
    raise RunbookError(
        f"the load worker ended without a result, after {len(records)} records: {tail or 'silent'}",
        "a result line",
        "run the cell again; report this if it happens twice",
    )


def _refuse_bad_plan(plan: LoadPlan) -> None:
    if not plan.prompts:
        raise BadInput("a load without prompts", "one prompt or more", "look at workload.mix")
    if plan.concurrency < 1 or plan.requests < 1:
        raise BadInput(
            f"{plan.requests} requests over {plan.concurrency} streams",
            "at least one of each",
            "correct requests and concurrency",
        )
    if plan.arrivals_s and len(plan.arrivals_s) != plan.requests:
        raise BadInput(
            f"{len(plan.arrivals_s)} arrivals of {plan.requests} requests",
            "as many",
            "correct requests",
        )
    if plan.api_key_file:
        try:
            read_key(plan.api_key_file)
        except (OSError, ValueError) as error:
            raise BadInput(
                f"the API key cannot be read: {error}",
                "a file that holds the key alone",
                "correct server.api_key.file",
            ) from None


class _Worker:
    """A worker process; leaving the context ends it."""

    def __init__(self, plan: LoadPlan) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        # -P: a folder "runbook" or a file "json.py" in the working directory must not be imported.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "runbook.load.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._plan = orjson.dumps(plan) + b"\n"
        self._rest = b""
        self.heard_s = time.monotonic()

    def __enter__(self) -> _Worker:
        self._tell(self._plan)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end_early()
        try:
            self._process.wait(0.0 if kind else _STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()
        self._said.close()

    def begin(self) -> None:
        """Let it start the load."""
        self._tell(b"begin\n")

    def _tell(self, line: bytes) -> None:
        # When it died at once, its output ends at once and the caller tells what it said.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._in.write(line)
            self._in.flush()

    def end_early(self) -> None:
        """Close the worker's standard input, which is how it learns that it should stop."""
        with contextlib.suppress(BrokenPipeError):
            self._in.close()

    def fileno(self) -> int:
        """Of its output."""
        return self._out.fileno()

    def read(self) -> list[dict[str, Any]] | None:
        """The lines that have come; ``None`` at the end of its output."""
        data = os.read(self.fileno(), 1 << 16)
        self.heard_s = time.monotonic()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [orjson.loads(line) for line in lines] if data else None

    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        self._said.seek(0)
        return self._said.read()[-2000:].decode("utf-8", "replace").strip()


def _lines(workers: Sequence[_Worker], silence_s: float) -> Iterator[dict[str, Any] | None]:
    """Each line as it comes, ``None`` twice a second; lets all begin when the last one is ready.

    Ends when every worker gave its result, or one ended or fell silent without one.
    """
    polled_s = time.monotonic()
    unready = len(workers)
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker, selectors.EVENT_READ)
        while at_work := [cast(_Worker, key.fileobj) for key in selector.get_map().values()]:
            now_s = time.monotonic()
            if any(now_s - worker.heard_s >= silence_s for worker in at_work):
                return
            if now_s - polled_s >= _POLL_S:
                polled_s = now_s
                yield None
            for key, _ in selector.select(max(0.0, polled_s + _POLL_S - now_s)):
                worker = cast(_Worker, key.fileobj)
                lines = worker.read()
                if lines is None:
                    return
                for line in lines:
                    unready -= "ready" in line
                    if "result" in line:
                        selector.unregister(worker)
                    yield line
                if not unready:
                    unready = -1
                    for one in workers:
                        one.begin()
