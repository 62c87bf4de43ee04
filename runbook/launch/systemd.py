"""Units on a host: start, stop, show, their journal, and servers as runtime units."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import PurePosixPath
from typing import Any

from runbook import probe
from runbook.errors import ServerFailed
from runbook.hosts.base import Host
from runbook.launch import cards
from runbook.launch.page_cache import Dropped, drop_page_cache
from runbook.launch.server import Launcher, RunningServer
from runbook.launch.spec import LaunchSpec
from runbook.launch.unit import UnitSettings, render_unit
from runbook.owning.owned import is_readable
from runbook.probe.look import LostWorkers
from runbook.redaction import redact

#: Units that are gone at reboot.
RUNTIME_UNITS = PurePosixPath("/run/systemd/system")

#: Beyond what systemd itself waits, in seconds.
_SPARE_S = 30.0
#: A try that the guard refuses takes no longer, with all that it waits for.
_TRY_S = 120.0

#: A look at another machine costs a command there.
_LOOK_AFAR_S = 5.0


def show(host: Host, unit: str, *properties: str) -> dict[str, str]:
    """Properties of a unit as systemd prints them; an unknown unit has ``LoadState=not-found``."""
    asked = [f"--property={','.join(properties)}"] if properties else []
    out = host.run("systemctl", "show", *asked, "--", unit).out
    pairs = (line.partition("=") for line in out.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def start(host: Host, unit: str, timeout_s: float) -> None:
    """Start a unit and wait until systemd calls it started.

    Raises ``ServerFailed`` with the end of its journal.
    """
    since_s = now_s(host)
    done = host.run("systemctl", "start", "--", unit, timeout_s=timeout_s + _SPARE_S, check=False)
    if done.code:
        said = journal(host, unit, since_s).strip()
        raise ServerFailed(
            f"{unit} did not start: {done.err.strip()}",
            "a unit that starts",
            f"read its journal:\n{_tail(said, 20)}",
        )


def stop(host: Host, unit: str, timeout_s: float) -> None:
    """Stop a unit and wait until it has ended."""
    host.run("systemctl", "stop", "--", unit, timeout_s=timeout_s + _SPARE_S)


def enable(host: Host, unit: str) -> None:
    """Start a unit at every boot."""
    host.run("systemctl", "enable", "--", unit)


def disable(host: Host, unit: str) -> None:
    """Start a unit at boot no longer."""
    host.run("systemctl", "disable", "--", unit)


def daemon_reload(host: Host) -> None:
    """Let systemd read the unit files again."""
    host.run("systemctl", "daemon-reload")


def last_start(host: Host, unit: str) -> tuple[float | None, float | None]:
    """Within which seconds of the epoch the last start of a unit lies: its end is ``None`` unless
    the unit is active since then, both are where systemd does not tell.

    A unit that waits for its next try, or has used up its tries, woke after the last one: that try
    is looked for up to ``_TRY_S`` before, and never in the time that it was active."""
    names = ("InactiveExitTimestamp", "ActiveExitTimestamp", "ActiveEnterTimestamp")
    words = ("--timestamp=unix", f"--property={','.join(names)}")
    out = host.run("systemctl", "show", *words, "--", unit, check=False).out
    pairs = (line.partition("=@") for line in out.splitlines())
    stamps = {name: float(text) for name, _, text in pairs if text.isdigit() and int(text)}
    woken_s, left_s, entered_s = map(stamps.get, names)
    if woken_s is None or entered_s is None or entered_s < max(woken_s, left_s or 0.0):
        left_s = left_s or 0.0
        if woken_s is None or left_s > woken_s:
            return woken_s, None
        return max(woken_s - _TRY_S, left_s), None
    return max(woken_s, left_s or 0.0), entered_s + 1


def journal(
    host: Host,
    unit: str,
    since_s: float | None = None,
    lines: int | None = None,
    grep: str = "",
    until_s: float | None = None,
) -> str:
    """What a unit has logged, all of it on disk first, without the secrets that were sent to it.

    ``since_s``, ``until_s``: from then and up to then, in seconds of the epoch. ``lines``: only the
    last ones. ``grep``: only those that match; some journals call it an error when none does.
    """
    host.run("journalctl", "--sync")
    since = [f"--since=@{since_s:.6f}"] if since_s is not None else []
    since += [f"--until=@{until_s:.6f}"] if until_s is not None else []
    options = ["--no-pager", "--quiet", "--output=short-iso-precise"]
    if lines is not None:
        options.append(f"--lines={lines}")
    if grep:
        options.append(f"--grep={grep}")
    done = host.run("journalctl", f"--unit={unit}", *options, *since, check=not grep)
    return redact(done.out)


def now_s(host: Host) -> float:
    """The host's clock, in seconds of the epoch."""
    return float(host.run("date", "+%s.%N").out)


def load_driver(host: Host) -> None:
    """Load the GPU driver's modules where its program is there: a unit may load none."""
    host.run("sh", "-c", "! command -v nvidia-modprobe || nvidia-modprobe -u -c=0", check=False)


class UnitLauncher(Launcher):
    """Starts servers as runtime units, rendered by the renderer of the production unit."""

    kind = "unit"

    def __init__(self, host: Host) -> None:
        self.host = host

    def port_holder(self, port: int) -> str | None:
        """Asked on the host, where that is not this machine."""
        if self.host.kind != "ssh":
            return super().port_holder(port)
        held = _look(self.host, 0, port)["listeners"]
        return "; ".join(f"pid {one['pid']} of {one['cgroup']}" for one in held) or None

    def ask_driver(self, query: str) -> str:
        """Asked on the host, where that is not this machine."""
        if self.host.kind != "ssh":
            return super().ask_driver(query)
        most_s = cards.NVIDIA_SMI_S
        return cards.ask_by(lambda argv: self.host.run(*argv, timeout_s=most_s, check=False), query)

    def drop_page_cache(self, paths: Sequence[str]) -> Dropped:
        """On the host, as root where its units are root's."""
        return drop_page_cache(self.host.run_program, paths)

    def start(
        self, spec: LaunchSpec, name: str, start_timeout_s: float, stop_timeout_s: float
    ) -> UnitServer:
        """Start ``spec`` as ``runbook-NAME.service``. Raises ``ServerFailed``."""
        unit = f"runbook-{name}.service"
        settings = UnitSettings(f"Benchmark of {name}", start_timeout_s, stop_timeout_s)
        text = render_unit(spec, settings)
        since_s = now_s(self.host)
        made = _missing(self.host, spec)
        with ExitStack() as undo:
            removal = [*_removal(unit), *(["rm", "-rf", "--", path] for path in made)]
            undo.enter_context(watched(self.host, name, removal))
            for path in made:
                undo.callback(self.host.remove, path)
            for path, program in spec.files.items():
                self.host.make_dir(PurePosixPath(path).parent)
                self.host.write(path, program)
            undo.callback(_remove, self.host, unit, stop_timeout_s)
            self.host.write(RUNTIME_UNITS / unit, text)
            daemon_reload(self.host)
            load_driver(self.host)
            start(self.host, unit, start_timeout_s)
            main_pid = int(show(self.host, unit, "MainPID")["MainPID"])
            return UnitServer(spec, self.host, unit, main_pid, since_s, undo.pop_all())


class UnitServer(RunningServer):
    """One server life as a runtime unit; ``unit`` is its name, ``main_pid`` the host's number."""

    def __init__(
        self,
        spec: LaunchSpec,
        host: Host,
        unit: str,
        main_pid: int,
        since_s: float,
        undo: ExitStack,
    ) -> None:
        self.spec = spec
        self.host = host
        self.unit = unit
        self.main_pid = main_pid
        self._since_s = since_s
        self._undo = undo
        self._stopped = False
        seen = host.host_pid(main_pid) if main_pid else None
        self._pid = seen or main_pid
        self._pidfd: int | None = None
        if seen is not None:
            with contextlib.suppress(ProcessLookupError):
                self._pidfd = os.pidfd_open(seen)
                undo.callback(os.close, self._pidfd)
        self._workers = (
            LostWorkers(seen)
            if seen is not None
            else LostWorkers(main_pid, lambda: _look(host, main_pid, 0)["family"], _LOOK_AFAR_S)
        )

    @property
    def pid(self) -> int:
        """The main process as the runner numbers it; as the host does where it is not seen."""
        return self._pid

    def alive(self) -> bool:
        """Whether the main process still runs; no command is needed where the runner sees it."""
        if self._stopped or not self.main_pid:
            return False
        if self._pidfd is not None:
            return not is_readable(self._pidfd)
        now = show(self.host, self.unit, "MainPID", "ActiveState")
        return now == {"MainPID": str(self.main_pid), "ActiveState": "active"}

    def lost_workers(self) -> str:
        """As in ``RunningServer``; asked on the host where the runner does not see it."""
        return self._workers.look()

    def log_tail(self, lines: int = 20) -> str:
        """The end of the journal of this life."""
        return _tail(journal(self.host, self.unit, self._since_s), lines)

    def stop(self) -> None:
        """Stop and remove the unit."""
        self._stopped = True
        self._undo.close()


@contextmanager
def watched(host: Host, name: str, orders: Sequence[Sequence[str]]) -> Iterator[None]:
    """Run ``orders`` on the host when the runner is gone before this is left, also by ``kill -9``.

    A transient unit of the host waits for that; nothing is left of it.
    """
    pid = host.runner_pid()
    if pid is None:
        yield
        return
    unit = f"runbook-watch-{name}.service"
    script = "\n".join([f"tail --pid={pid} -f /dev/null", *(shlex.join(one) for one in orders)])
    host.run("systemd-run", "--quiet", "--collect", f"--unit={unit}", "sh", "-c", script)
    try:
        yield
    finally:
        host.run("systemctl", "stop", "--", unit, check=False)


def _look(host: Host, pid: int, port: int) -> dict[str, Any]:
    """What ``look.py`` sees on a host of a process and a port."""
    asked = [host.python, "-I", "-S", "-", str(pid), str(port), "/"]
    seen: dict[str, Any] = json.loads(host.run(*asked, stdin=probe.source("look").encode()).out)
    return seen


def _missing(host: Host, spec: LaunchSpec) -> list[str]:
    """What has to be made for the files of a launch, each by its uppermost folder that is not
    there; an installed service may have them already."""
    found = []
    for path in map(PurePosixPath, spec.files):
        ways = [*reversed(path.parents), path]
        found += [str(way) for way in ways if not host.exists(way)][:1]
    return found


def _removal(unit: str) -> list[list[str]]:
    return [
        ["systemctl", "kill", "--signal=KILL", "--", unit],
        ["systemctl", "stop", "--", unit],
        ["rm", "-f", str(RUNTIME_UNITS / unit)],
        ["systemctl", "daemon-reload"],
        ["systemctl", "reset-failed", "--", unit],
    ]


def _remove(host: Host, unit: str, stop_timeout_s: float) -> None:
    """Stop a runtime unit and leave nothing of it, whatever state it is in."""
    try:
        stop(host, unit, stop_timeout_s)
    finally:
        host.remove(RUNTIME_UNITS / unit)
        daemon_reload(host)
        host.run("systemctl", "reset-failed", "--", unit, check=False)


def _tail(text: str, lines: int) -> str:
    return "\n".join(text.splitlines()[-lines:])
