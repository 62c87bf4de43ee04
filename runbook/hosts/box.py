"""A throw-away systemd: PID 1 of private namespaces, over an overlay of this machine's ``/``.

Its files survive in a folder, so that it can be rebooted, lose its power and be opened again
later. The network is this machine's: what listens in the box is reached at 127.0.0.1 from here.
It isolates a rehearsal from the machine; it is no security boundary.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from runbook.errors import HostFailed, NotHere
from runbook.hosts.base import COMMAND_ENV, Done, Host
from runbook.hosts.box_needs import (
    NAMESPACES,
    cgroup2_folder,
    is_root,
    namespaces,
    visible,
    why_no_box,
)
from runbook.hosts.local import execute_here
from runbook.owning.owned import Job, Owned

BOOT_S = 60.0
SETTLE_S = 60.0
GO_DOWN_S = 120.0

#: A parent outside the box's process namespace. nsenter's own would stop, and never go on, when a
#: box that goes down stops its processes before it ends them.
_WAIT = ("/bin/sh", "-c", '"$@"; exit $?', "sh")

#: Into an ordinary user's own namespace, where the one user id is root.
_USER = {True: (), False: ("--user", "--preserve-credentials")}


class Box(Host):
    """A systemd of its own, booted while the context is entered.

    ``state``: the folder that holds its files. ``binds``: paths of this machine that must be
    visible inside, read-only, besides the interpreter's.
    """

    kind = "box"

    def __init__(self, state: Path, binds: Iterable[Path] = ()) -> None:
        self.state = state.absolute()
        self.binds = visible([*binds, Path(sys.prefix), Path(sys.base_prefix)])
        self._owned: Owned | None = None
        self._init: int | None = None
        self._namespace: Path | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # What does not go down in time is ended all the same.
            if kind is None and self._init is not None:
                with contextlib.suppress(HostFailed):
                    self.shutdown()
        finally:
            self.close()

    def open(self) -> None:
        """Boot. Raises ``NotHere`` where no box can be made or this one has never come up,
        ``HostFailed`` when one that did comes up no more, ``RunBusy`` when another process has it
        open."""
        if self._init is not None:
            return
        self.close()
        if reason := why_no_box(self.state):
            raise NotHere(
                f"no box can be made here: {reason}",
                "private namespaces, a cgroup, systemd and, for root, an overlay",
                "see README, What you need; or set host.kind: local",
            )
        for folder in ("upper", "work", "root"):
            (self.state / folder).mkdir(parents=True, exist_ok=True)
        pairs = [text for source, target in self.binds for text in (str(source), str(target))]
        job = Job(
            argv=[
                shutil.which("unshare", path=COMMAND_ENV["PATH"]) or "",
                *namespaces(),
                "--fork",
                "--kill-child",
                "--",
                "/bin/sh",
                str(Path(__file__).with_name("box_init.sh")),
                "overlay" if is_root() else "copy",
                str(self.state),
                *pairs,
            ],
            env=COMMAND_ENV,
            log=str(self.state / "console.log"),
            lock=str(self.state / "lock"),
            cgroup=str(cgroup2_folder()),
        )
        self._owned = Owned(job, self.state / "owner.log")
        came_up = self.state / "came-up"
        try:
            self._wait_booted(self._owned, SETTLE_S)
            came_up.touch()
        except BaseException as error:
            self.close()
            if isinstance(error, HostFailed) and not came_up.exists():
                raise NotHere(error.found, error.wanted, error.do) from error
            raise

    def close(self) -> None:
        """End everything in the box at once, and the box. Safe to call twice."""
        self._init = None
        if self._owned is not None:
            self._owned.close()
            self._owned = None

    def shutdown(self) -> None:
        """Power off in good order; ``open`` boots it again."""
        self._go_down("poweroff")
        self.close()

    def reboot(self, settle_s: float = SETTLE_S) -> None:
        """Reboot in good order, through systemd, and return when it is up again: when every unit
        that starts at boot has started or failed, or after ``settle_s``."""
        self._go_down("reboot")
        self._boot_again(settle_s)

    def cut(self, settle_s: float = SETTLE_S) -> None:
        """Sudden death of everything in the box, as by a power cut; returns as ``reboot`` does.

        This machine's page cache survives it, so writes that never reached the disk are not lost.
        """
        owned = self._running()
        self._init = None
        owned.order("stop", grace_s=0)
        self._wait_exited(owned, BOOT_S)
        self._boot_again(settle_s)

    @property
    def python(self) -> str:
        """The runbook's own interpreter, which is bound into every box."""
        return sys.executable

    def execute(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Done:
        """Run ``argv`` inside; on time-out, and when the box goes down, all of it is ended."""
        self._running()
        env = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in COMMAND_ENV.items())]
        enter = ["nsenter", "--target", str(self._init), *_USER[is_root()], *NAMESPACES]
        enter += ["--cgroup", "--no-fork", "--"]
        done = execute_here([*enter, *_WAIT, *env, *argv], stdin, timeout_s, COMMAND_ENV)
        if done.code:
            self._notice_end(done)
        return Done(tuple(argv), done.code, done.out, done.err)

    def why_no_systemd(self) -> str | None:
        """``None`` while it is booted."""
        return None if self._init is not None else "the box is not booted"

    def boot_id(self) -> str:
        """The id of this boot."""
        return self.run("cat", "/proc/sys/kernel/random/boot_id").out.strip()

    def host_pid(self, pid: int) -> int | None:
        """The process ``pid`` of the box as this machine numbers it, ``None`` when it is gone."""
        self._running()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                if _process_namespace(int(entry.name)) != self._namespace:
                    continue
                for line in (entry / "status").read_text().splitlines():
                    if line.startswith("NSpid:") and int(line.split()[-1]) == pid:
                        return int(entry.name)
            except OSError:
                continue
        return None

    def journal(self, unit: str) -> str:
        """The journal of a unit over all boots, also while the box is down."""
        if self._init is not None:
            self.run("journalctl", "--sync")
        folder = self.state / "upper/var/log/journal"
        argv = [
            "journalctl",
            f"--directory={folder}",
            f"--unit={unit}",
            "--output=short-iso-precise",
        ]
        done = execute_here([*argv, "--no-pager", "--quiet"], b"", 60, COMMAND_ENV)
        if done.code:
            raise HostFailed(
                f"the box's journal cannot be read: {done.err.strip()}",
                "its journal below box/",
                "see box/console.log of the run",
            )
        return done.out

    # --- up and down ------------------------------------------------------------------------

    def _running(self) -> Owned:
        if self._owned is None or self._init is None:
            raise HostFailed("the box is not booted", "a booted box", "open it")
        if self._namespace is None or _process_namespace(self._init) != self._namespace:
            self.close()
            raise HostFailed(
                "the box went down by itself: its systemd, or the process that owns it, was ended",
                "a box that stays up",
                f"run the command again, it boots with its files; see {self.state}/console.log",
            )
        return self._owned

    def _notice_end(self, done: Done) -> None:
        """Raises where the box went down under a command, which then was killed or could not
        enter; the end of its first process may be seen a moment later."""
        may_be = done.code == 128 + signal.SIGKILL or done.err.startswith("nsenter:")
        deadline = time.monotonic() + (1.0 if may_be else 0.0)
        self._running()
        while time.monotonic() < deadline:
            time.sleep(0.02)
            self._running()

    def _go_down(self, how: str) -> None:
        owned = self._running()
        self.run("systemctl", "--no-block", how)
        self._init = None
        self._wait_exited(owned, GO_DOWN_S)

    def _wait_exited(self, owned: Owned, timeout_s: float) -> None:
        event = owned.event(timeout_s)
        if event is None or event["event"] != "exited":
            self.close()
            raise HostFailed(
                f"the box did not go down within {timeout_s:g} s",
                "an orderly end",
                "it was ended the hard way: run the command again",
            )

    def _boot_again(self, settle_s: float) -> None:
        owned = self._owned
        if owned is not None:
            owned.order("start")
            self._wait_booted(owned, settle_s)

    def _wait_booted(self, owned: Owned, settle_s: float) -> None:
        begun = time.monotonic()
        self._namespace = None
        outer = owned.started(f"the box {self.state}", BOOT_S)["pid"]
        said = "nothing"
        while (waited_s := time.monotonic() - begun) < BOOT_S or said == "starting":
            event = owned.event(0.03 if waited_s < 5 else 0.3)
            if event is not None:
                break
            self._init = self._init or _systemd_below(outer)
            if self._init is not None:
                self._namespace = self._namespace or _process_namespace(self._init)
                try:
                    asked = self.execute(("systemctl", "is-system-running"), b"", BOOT_S)
                except HostFailed:  # it has ended between the look and the question
                    break
                said = asked.out.strip()
            # "starting": the basic system is up, units that start at boot may take their time.
            if said in ("running", "degraded") or (said == "starting" and waited_s > settle_s):
                return
        self.close()
        console = self._console()
        raise HostFailed(
            f"the box did not boot (systemd says {said}): {console.splitlines()[-1]}",
            "a box that boots",
            f"read the end of its console:\n{console}",
        )

    def _console(self) -> str:
        text = (self.state / "console.log").read_text(errors="backslashreplace").strip()
        return text[-1500:].strip() or "nothing on its console"


def _process_namespace(pid: int) -> Path | None:
    """Names the process namespace of a process; ``None`` when it has ended."""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink()
    except OSError:
        return None


def _systemd_below(outer: int) -> int | None:
    """The PID 1 of a box once it has become systemd."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                name, _, rest = (entry / "stat").read_text().rpartition(")")
                if int(rest.split()[1]) == outer and name.endswith("(systemd"):
                    return int(entry.name)
            except OSError:
                continue
    return None
