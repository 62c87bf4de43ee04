"""Servers as child processes of an owner: the way to launch where no systemd can be used."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from runbook import atomic
from runbook.errors import HostFailed, ServerFailed
from runbook.launch.server import Launcher, RunningServer
from runbook.launch.spec import LaunchSpec
from runbook.owning.owned import CLOSE_S, Job, Owned
from runbook.probe.look import LostWorkers
from runbook.redaction import redact

#: Of a log with tracebacks, on average and not less.
_LINE_BYTES = 256


class ProcessLauncher(Launcher):
    """Starts servers as ``spec`` says, as systemd would: own session, whole environment, umask
    022 unless another is asked for, no input, limits as far as they are allowed here. Their output
    goes to ``log_dir``."""

    kind = "process"

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self._logs_are_clean = False

    def start(
        self, spec: LaunchSpec, name: str, start_timeout_s: float, stop_timeout_s: float
    ) -> ProcessServer:
        """Start ``spec``; its log is ``log_dir/name.log``. Raises ``ServerFailed``."""
        if spec.user and os.geteuid() != 0:
            raise ServerFailed(
                f"{name} must run as {spec.user}, and only root can do that",
                "root, or a server without a user",
                "run as root, or leave server.user empty",
            )
        _write_missing(spec.files)
        self.log_dir.mkdir(parents=True, exist_ok=True)
        if not self._logs_are_clean:  # a runner that was killed could not see to its own
            for left in self.log_dir.glob("*.log"):
                redact_log(left)
            self._logs_are_clean = True
        log = self.log_dir / f"{name}.log"
        job = Job(
            argv=spec.argv,
            env=spec.env,
            log=str(log.absolute()),
            cwd=spec.cwd,
            user=spec.user,
            limits={"nofile": spec.nofile, "memlock": spec.memlock, **spec.limits},
            process=spec.process,
            credentials=spec.credentials,
        )
        owned = Owned(job, self.log_dir / f"{name}.owner.log")
        try:
            event = owned.started(name, start_timeout_s)
        except HostFailed as error:
            raise ServerFailed(error.found, "a server that can be executed", f"see {log}") from None
        except BaseException:
            owned.close()
            raise
        return ProcessServer(spec, owned, event["pid"], event["limits"], log, stop_timeout_s)


def _write_missing(files: Mapping[str, str]) -> None:
    """The programs that a launch brings along; they are named by their content, and stay."""
    for path, text in files.items():
        try:
            if not Path(path).exists():
                atomic.write(Path(path), text, 0o644)
        except OSError as error:
            raise ServerFailed(
                f"{path} cannot be written ({error.strerror}), and no systemd runs that could",
                "a program that does not depend on this clone",
                "measure as root, or launch processes from the clone: benchmark.launch: process",
            ) from None


class ProcessServer(RunningServer):
    """One server life as a process. ``limits``: the effective ones, ``None`` for no limit.
    ``exit_code`` is ``None`` while it runs, negative for a signal."""

    def __init__(
        self,
        spec: LaunchSpec,
        owned: Owned,
        pid: int,
        limits: Mapping[str, int | None],
        log: Path,
        stop_timeout_s: float,
    ) -> None:
        self.spec = spec
        self.limits = limits
        self.log = log
        self.exit_code: int | None = None
        self._owned = owned
        self._pid = pid
        self._stop_timeout_s = stop_timeout_s
        self._ended = False
        self._workers = LostWorkers(pid)

    @property
    def pid(self) -> int:
        """The main process."""
        return self._pid

    def alive(self) -> bool:
        """Whether the main process still runs; asks nothing of the machine but a pipe."""
        self._hear(0.0)
        return not self._ended

    def lost_workers(self) -> str:
        """As in ``RunningServer``."""
        return self._workers.look()

    def log_tail(self, lines: int = 20) -> str:
        """The end of what the server printed."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - max(65536, lines * _LINE_BYTES)))
                text = file.read().decode(errors="backslashreplace")
        except FileNotFoundError:
            return ""
        return redact("\n".join(text.splitlines()[-lines:]), cut=True)

    def stop(self) -> None:
        """SIGTERM to the main process, wait, then SIGKILL to all that is left of it."""
        if not self._ended:
            self._owned.order("stop", grace_s=self._stop_timeout_s)
            self._hear(self._stop_timeout_s + CLOSE_S)
        self._owned.close()
        self._ended = True
        redact_log(self.log)

    def _hear(self, timeout_s: float) -> None:
        """Take in what the owner says within ``timeout_s``; its own end is the server's too."""
        deadline = time.monotonic() + timeout_s
        while not self._ended:
            event = self._owned.event(max(0.0, deadline - time.monotonic()))
            if event is None:
                return
            self._ended = event["event"] in ("exited", "ended")
            self.exit_code = event.get("code", self.exit_code)


def redact_log(path: Path) -> None:
    """Take the secrets that were sent to a server out of the log that it has written."""
    with contextlib.suppress(FileNotFoundError):
        lines = path.read_text("utf-8", "surrogateescape").split("\n")
        clean = [redact(line) for line in lines]
        if clean != lines:
            data = "\n".join(clean).encode("utf-8", "surrogateescape")
            atomic.write(path, data, stat.S_IMODE(path.stat().st_mode))
