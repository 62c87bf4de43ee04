"""The caller's side of the worker: a plan in, records as they end, the whole result."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import orjson

from runbook.errors import BadInput, RunbookError
from runbook.load.closed_loop import read_key
from runbook.load.plan import LoadPlan, LoadResult
from runbook.load.records import Record

_POLL_S = 0.5
_STOP_S = 5.0
#: The worker answers for each request within its time-out; a silence this much longer is a fault.
_SLACK_S = 60.0


def run_load(
    plan: LoadPlan,
    on_record: Callable[[Record], None] | None = None,
    alive: Callable[[], bool] | None = None,
) -> LoadResult:
    """Run ``plan`` in a worker process; ``on_record`` sees each record when its request ends.

    When ``alive()`` turns false the load ends early: requests in flight are recorded as failed,
    the others are not sent, and ``ended_early`` says so. Raises ``BadInput`` for a plan that
    cannot be run and ``RunbookError`` when the worker itself fails.
    """
    _refuse_bad_plan(plan)
    records: list[Record] = []
    ended_early: str | None = None
    with tempfile.TemporaryFile() as said, _Worker(plan, said) as worker:
        for line in worker.lines(plan.request_timeout_s + _SLACK_S):
            if line is None:
                if ended_early is None and alive is not None and not alive():
                    ended_early = "the server died"
                    worker.end_early()
            elif "record" in line:
                records.append(Record(**line["record"]))
                if on_record is not None:
                    on_record(records[-1])
            else:
                if ended_early is None and len(records) < plan.requests:
                    ended_early = "the worker was told to stop"
                return LoadResult(tuple(records), ended_early=ended_early, **line["result"])
        said.seek(0)
        tail = said.read()[-2000:].decode("utf-8", "replace").strip()
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
    """The worker process; leaving the context ends it."""

    def __init__(self, plan: LoadPlan, said: IO[bytes]) -> None:
        # -P: a folder "runbook" or a file "json.py" in the working directory must not be imported.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "runbook.load.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._plan = orjson.dumps(plan) + b"\n"

    def __enter__(self) -> _Worker:
        # When it died at once, lines() ends at once and the caller tells what it said.
        with contextlib.suppress(BrokenPipeError):
            self._in.write(self._plan)
            self._in.flush()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end_early()
        try:
            self._process.wait(0.0 if kind else _STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()

    def end_early(self) -> None:
        """Close the worker's standard input, which is how it learns that it should stop."""
        with contextlib.suppress(BrokenPipeError):
            self._in.close()

    def lines(self, silence_s: float) -> Iterator[dict[str, Any] | None]:
        """Each line as it comes, ``None`` twice a second; ends with the worker's output."""
        descriptor, rest = self._out.fileno(), b""
        heard_s = polled_s = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while (now_s := time.monotonic()) - heard_s < silence_s:
                if now_s - polled_s >= _POLL_S:
                    polled_s = now_s
                    yield None
                if not selector.select(_POLL_S):
                    continue
                data = os.read(descriptor, 1 << 16)
                if not data:
                    return
                heard_s = time.monotonic()
                *lines, rest = (rest + data).split(b"\n")
                yield from (orjson.loads(line) for line in lines)
