"""The one protocol behind every host: run a command, read and write a file there.

A kind of host only has to say how a command is run; files are read and written by commands, so
nothing but a POSIX shell and Python 3 is needed on the far side.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import ClassVar

from runbook.errors import HostFailed

_DENIED = ("Permission denied", "Operation not permitted")

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

    #: Whether it is the host that was asked for, and no machine in its place.
    is_there = True

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

    def runner_pid(self) -> int | None:
        """A process of this host that lives as long as the runner; ``None`` where all of the host
        ends with it."""
        return None

    def host_pid(self, pid: int) -> int | None:
        """The process ``pid`` of this host as the runner numbers it, ``None`` if not seen."""
        return None

    def run(
        self, *argv: str, stdin: bytes = b"", timeout_s: float = 60.0, check: bool = True
    ) -> Done:
        """Run a command; with ``check`` a non-zero code raises ``HostFailed`` with its stderr."""
        done = self.execute(argv, stdin, timeout_s)
        if check and done.code:
            said = (done.err or done.out).strip()[-2000:]
            raise HostFailed(
                f"{' '.join(argv)[:300]} ended with {done.code}: {said}",
                "code 0",
                f"see what it says, correct it, and run it by hand on the {self.kind} host",
            )
        return done

    def run_program(self, program: str, words: Sequence[str], timeout_s: float) -> Done:
        """Run a Python program of the standard library with arguments, whatever its exit code."""
        argv = [self.python, "-I", "-S", "-", *words]
        return self.run(*argv, stdin=program.encode(), timeout_s=timeout_s, check=False)

    def run_script(self, what: str, script: str, *arguments: str, stdin: bytes = b"") -> str:
        """Run a Python script that says on stderr why it fails; returns its output.

        Raises ``HostFailed`` with ``what`` and that reason.
        """
        done = self.execute([self.python, "-I", "-S", "-c", script, *arguments], stdin, 60.0)
        if done.code:
            said = done.err.strip()[-2000:]
            wanted, do = "code 0", "see rights and room there: ls -ld, df -h"
            if said.endswith(_DENIED):
                wanted, do = "root", "run the runbook as root (sudo)"
            raise HostFailed(f"{what} on {self.kind}: {said}", wanted, do)
        return done.out

    # --- files; paths are absolute -----------------------------------------------------------

    def read(self, path: str | PurePath) -> bytes | None:
        """The content of a file, ``None`` when there is none. ``HostFailed`` when not readable."""
        out = self._file("read", path)
        return base64.b64decode(out) if out else None

    def write(self, path: str | PurePath, data: str | bytes, mode: int = 0o644) -> None:
        """Replace a file, whole or not at all; on disk (file and folder) when this returns."""
        content = data.encode() if isinstance(data, str) else data
        self._file("write", path, f"{mode:o}", str(len(content)), stdin=content)

    def remove(self, path: str | PurePath) -> None:
        """Remove a file, a link, or a folder with all in it; absent is fine."""
        self._file("remove", path)

    def make_dir(self, path: str | PurePath, mode: int = 0o755) -> None:
        """Make a folder and its parents; a folder that is there keeps its mode."""
        self._file("make_dir", path, f"{mode:o}")

    def exists(self, path: str | PurePath) -> bool:
        """Whether there is anything of that name, a dangling link too."""
        return bool(json.loads(self._file("exists", path)))

    def list(self, path: str | PurePath) -> list[str] | None:
        """The sorted names in a folder, ``None`` when there is no such folder."""
        names: list[str] | None = json.loads(self._file("list", path))
        return names

    def _file(self, operation: str, path: str | PurePath, *more: str, stdin: bytes = b"") -> str:
        if not PurePath(path).is_absolute():
            raise HostFailed(
                f"{path} is not absolute", "an absolute path on the host", "write it in full"
            )
        return self.run_script(operation, far_side(), operation, str(path), *more, stdin=stdin)


@cache
def far_side() -> str:
    """The program that does file operations on a host."""
    return Path(__file__).with_name("far_side.py").read_text()
