"""``LaunchSpec``: how a server is started, whole. The benchmark launch, the unit, the launch by
hand and the command in the document are renderings of this one object."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: Variables that the service manager itself sets in every process it starts (systemd 252-257).
#: Environments are compared without them; nothing else is ever left out.
MANAGER_SETS = frozenset(
    {
        "CREDENTIALS_DIRECTORY",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "LANG",
        "MEMORY_PRESSURE_WATCH",
        "MEMORY_PRESSURE_WRITE",
        "NOTIFY_SOCKET",
        "SYSTEMD_EXEC_PID",
        "SYSTEMD_NSS_DYNAMIC_BYPASS",
    }
)


#: Resource limits by the name a launch has them under, as /proc/PID/limits calls them.
KERNEL_NAMES = {
    "nofile": "Max open files",
    "memlock": "Max locked memory",
    "cpu": "Max cpu time",
    "fsize": "Max file size",
    "data": "Max data size",
    "stack": "Max stack size",
    "core": "Max core file size",
    "rss": "Max resident set",
    "nproc": "Max processes",
    "as": "Max address space",
    "locks": "Max file locks",
    "sigpending": "Max pending signals",
    "msgqueue": "Max msgqueue size",
    "nice": "Max nice priority",
    "rtprio": "Max realtime priority",
    "rttime": "Max realtime timeout",
}


#: Where the runbook keeps its files on a host, a folder a unit.
STATE = "/var/lib/golive-runbook"

#: Where systemd has the units of a host.
UNITS = "/etc/systemd/system"


@dataclass(frozen=True)
class LaunchSpec:
    """One server launch.

    ``argv``: the absolute interpreter first, one string an argument. ``env``: the whole
    environment; nothing is inherited from a shell, a kernel or the manager. ``cwd``: absolute.
    ``user``: a name, empty for root. ``nofile`` and ``memlock``: resource limits in files and
    bytes, ``None`` for no limit (infinity). ``credentials``: name -> absolute path of a file that
    the server finds as ``$CREDENTIALS_DIRECTORY/name``; the content is never part of the spec.
    ``files``: path -> text of programs of the runbook that are to be there before a start.
    ``limits``: further resource limits by their names in systemd, in small letters. ``process``:
    what else the process has, by the names of ``server.process`` in the parameters: processors,
    memory nodes, priorities. What is not named in them is as the manager gives it.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    user: str = ""
    nofile: int | None = 1048576
    memlock: int | None = None
    credentials: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int | None] = field(default_factory=dict)
    process: Mapping[str, Any] = field(default_factory=dict)

    @property
    def interpreter(self) -> str:
        """The program that is executed: ``argv[0]``."""
        return self.argv[0]

    def fingerprint(self) -> str:
        """SHA-256 (hex) over every field: equal fingerprints are equal launches."""
        fields = asdict(self)
        for name in ("files", "limits", "process"):
            if not fields[name]:
                del fields[name]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def shell_command(self) -> str:
        """The launch by hand, to paste into a POSIX shell: ``cd``, ``env -i``, an option a line."""
        env = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.env.items())]
        lines = [f"cd {shlex.quote(self.cwd)} && env -i", *env, shlex.quote(self.interpreter)]
        for word in self.argv[1:]:
            if word.startswith("-") or not lines[-1].startswith("-") or " " in lines[-1]:
                lines.append(shlex.quote(word))
            else:
                lines[-1] += f" {shlex.quote(word)}"
        return " \\\n  ".join(lines)
