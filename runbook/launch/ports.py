"""Who holds a port of this machine; nothing is ever ended for it."""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from pathlib import Path

from runbook.owning.owned import command_of

_LISTEN = "0A"
_UNIT = re.compile(r"/([^/]+\.(?:service|scope))(?=/|$)", re.MULTILINE)


def port_holder(port: int) -> str | None:
    """``None`` when ``port`` is free, else its holder: ``pid 123 (python3 x.py), unit y.service``.

    Connections that linger after their server (TIME_WAIT) do not count, as for a server that
    sets ``SO_REUSEADDR``.
    """
    if _can_bind(port):
        return None
    holders = [_describe(pid) for pid in _processes_of(_listening_sockets(port))]
    return "; ".join(holders) or "a process that cannot be seen from here"


def _can_bind(port: int) -> bool:
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
    return True


def _listening_sockets(port: int) -> set[str]:
    """Inodes of the sockets that listen on ``port``."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, *_, inode = line.split()[:10]
                if state == _LISTEN and int(local.rpartition(":")[2], 16) == port:
                    inodes.add(inode)
    return inodes


def _processes_of(inodes: set[str]) -> list[int]:
    """The processes that have one of these sockets open, in order of their number."""
    names = {f"socket:[{inode}]" for inode in inodes}
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if any(str(link.readlink()) in names for link in (entry / "fd").iterdir()):
                    found.add(int(entry.name))
    return sorted(found)


def _describe(pid: int) -> str:
    said = f"pid {pid} ({command_of(pid)})"
    unit = unit_of(pid)
    return f"{said}, unit {unit}" if unit else said


def unit_of(pid: int) -> str | None:
    """The innermost systemd unit of a process here, ``None`` where there is none."""
    with contextlib.suppress(OSError):
        return unit_in(Path(f"/proc/{pid}/cgroup").read_text())
    return None


def unit_in(cgroups: str) -> str | None:
    """The innermost systemd unit in the text of a ``/proc/PID/cgroup``."""
    names = _UNIT.findall(cgroups)
    return names[-1] if names else None
