"""The one protocol behind every host: run a command, read and write a file there.

A kind of host only has to say how a command is run; files are read and written by commands, so
nothing but a POSIX shell and Python 3 is needed on the far side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from runbook.errors import HostFailed

#: Environment of every command on a host: nothing of the caller's shell leaks in.
COMMAND_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "SYSTEMD_PAGER": "cat",
    "SYSTEMD_COLORS": "0",
}


@dataclass(frozen=True)
class Done:
    """A command that has ended; ``out`` and ``err`` are text (undecodable bytes escaped)."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str


class Host(ABC):
    """A place to deploy to. Used as a context manager by ``hosts.open_host``."""

    kind: ClassVar[str]

    @abstractmethod
    def execute(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Done:
        """Run ``argv`` to its end and return it whatever its code. ``HostFailed`` on time-out."""

    @property
    @abstractmethod
    def python(self) -> str:
        """A Python 3 interpreter on this host, for file operations and probes."""

    @abstractmethod
    def why_no_systemd(self) -> str | None:
        """``None`` where systemd is PID 1 and answers, else the reason in words."""

    def run(
        self, *argv: str, stdin: bytes = b"", timeout_s: float = 60.0, check: bool = True
    ) -> Done:
        """Run a command; with ``check`` a non-zero code raises ``HostFailed`` with its stderr."""
        done = self.execute(argv, stdin, timeout_s)
        if check and done.code:
            said = (done.err or done.out).strip()[-2000:]
            raise HostFailed(f"{' '.join(argv)[:300]} ended with {done.code}: {said}", "code 0")
        return done
