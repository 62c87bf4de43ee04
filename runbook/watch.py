"""A process that must not outlive another: kernels and stage processes end with their runner."""

from __future__ import annotations

import os
import select
import signal
import threading

from runbook.run import RUNNER_PID


def end_with_runner() -> None:
    """When this process was started for a runner, die at once when that runner is gone."""
    pid = os.environ.get(RUNNER_PID, "")
    if not pid.isdigit() or int(pid) == os.getpid():
        return
    try:
        descriptor = os.pidfd_open(int(pid))
    except ProcessLookupError:
        os.kill(os.getpid(), signal.SIGKILL)
        return
    threading.Thread(target=_wait, args=(descriptor,), name="runner-watch", daemon=True).start()


def _wait(descriptor: int) -> None:
    select.select([descriptor], [], [])
    os.kill(os.getpid(), signal.SIGKILL)
