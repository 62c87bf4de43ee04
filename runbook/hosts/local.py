"""This machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from runbook.errors import HostFailed, NotHere
from runbook.hosts.base import COMMAND_ENV, Done, Host

#: What ``systemctl is-system-running`` says of a manager that takes orders.
TAKES_ORDERS = ("running", "degraded", "starting", "initializing")


class LocalHost(Host):
    """Commands run here, as the user who runs the runbook, or through ``sudo -n``."""

    kind = "local"

    def __init__(self, sudo: bool = False) -> None:
        self._prefix = ["sudo", "-n", "env", *_assignments()] if sudo else []

    @property
    def python(self) -> str:
        """The runbook's own interpreter."""
        return sys.executable

    def execute(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Done:
        """Run ``argv`` in a session of its own; on time-out all of it is ended."""
        done = execute_here([*self._prefix, *argv], stdin, timeout_s, COMMAND_ENV)
        return Done(tuple(argv), done.code, done.out, done.err)

    def why_no_systemd(self) -> str | None:
        """``None`` where systemd is PID 1 here, answers, and takes orders of this user."""
        if not Path("/run/systemd/system").is_dir():
            init = Path("/proc/1/comm").read_text().strip()
            return f"systemd is not PID 1 on this machine (PID 1 is {init})"
        if (reason := why_no_orders(self)) is not None:
            return reason
        if os.geteuid() == 0 or (self._prefix and self.run("id", "-u", check=False).out == "0\n"):
            return None
        return "managing units needs root: run as root (sudo), or set host.sudo: true"

    def runner_pid(self) -> int | None:
        """The runner itself."""
        return os.getpid()

    def host_pid(self, pid: int) -> int | None:
        """Processes here are the runner's own."""
        return pid


def why_no_orders(host: Host) -> str | None:
    """Why the manager of a host that has a systemd takes no orders; ``None`` where it does."""
    try:
        done = host.run("systemctl", "is-system-running", check=False)
    except HostFailed as error:
        return f"systemd does not answer: {error.found}"
    state = done.out.strip()
    if state in TAKES_ORDERS:
        return None
    return f"systemd does not answer: {state or done.err.strip() or f'code {done.code}'}"


def _assignments() -> list[str]:
    return ["-i", *(f"{name}={value}" for name, value in COMMAND_ENV.items())]


def execute_here(
    argv: Sequence[str], stdin: bytes, timeout_s: float, env: Mapping[str, str]
) -> Done:
    """Run a command on this machine to its end; one that is not there ends with 127, as in a shell.

    Raises ``HostFailed`` when it has not ended after ``timeout_s``; its session is killed then,
    and also when the caller is interrupted.
    """
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd="/", start_new_session=True
        )
    except (FileNotFoundError, PermissionError) as error:
        return Done(tuple(argv), 127, "", f"{argv[0]}: {error.strerror}")
    try:
        out, err = process.communicate(stdin, timeout_s)
    except subprocess.TimeoutExpired:
        raise HostFailed(
            f"{' '.join(argv)[:300]} had not ended after {timeout_s:g} s",
            "an end in time",
            "run it by hand and see what it waits for",
        ) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Done(tuple(argv), process.returncode, _text(out), _text(err))


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


class WithoutSystemd(LocalHost):
    """This machine in place of a host that is not there: it is looked at, and never changed."""

    is_there = False

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    def why_no_systemd(self) -> str | None:
        """The reason given."""
        return self.reason

    def _file(self, operation: str, path: str | PurePath, *more: str, stdin: bytes = b"") -> str:
        if operation in ("write", "remove", "make_dir"):
            raise NotHere(
                self.reason,
                f"the host on which to {operation} {path}",
                "see README, What you need; or set host.kind: local",
            )
        return super()._file(operation, path, *more, stdin=stdin)
