"""Looks at a process and a port and prints what it sees as JSON; run on the target as root.

usage: look.py PID PORT FILE. What cannot be read is null, never an empty value: a process may
overwrite its own environment, which then reads as NULs and says nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from runbook.probe.attributes import read_attributes


def lines_of(path: Path) -> list[str] | None:
    """NUL-separated text of /proc as a list; ``None`` when unreadable, empty or overwritten."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if not data.strip(b"\0"):
        return None
    parts = data.removesuffix(b"\0").split(b"\0")
    return [part.decode("utf-8", "surrogateescape") for part in parts]


def shown_environ(path: Path) -> tuple[list[str] | None, bool]:
    """What a process shows of its environment, and whether its title lies over the first part."""
    words = lines_of(path)
    if words is None:
        return None, False
    shown = [word for word in words if "=" in word]
    return shown or None, "=" not in words[0]


def link(path: Path) -> str | None:
    """Where a link of /proc points to."""
    try:
        return str(path.readlink())
    except OSError:
        return None


def limits(path: Path) -> dict[str, str] | None:
    """Soft limits of a process by the kernel's name."""
    try:
        rows = path.read_text().splitlines()[1:]
    except OSError:
        return None
    return {row[:26].strip(): row[26:47].strip() for row in rows}


def started(folder: Path) -> float | None:
    """When a process started, in seconds since the epoch."""
    try:
        ticks = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, IndexError, ValueError):
        return None
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


def look_at(pid: str) -> dict[str, Any] | None:
    """Everything that is compared of one process; ``None`` when it is gone."""
    folder = Path("/proc", pid)
    try:
        status = (folder / "status").read_text()
    except OSError:
        return None
    environ = lines_of(folder / "environ")
    return {
        "pid": int(pid),
        "argv": lines_of(folder / "cmdline"),
        "environ": None if environ is None else [word for word in environ if "=" in word],
        "cwd": link(folder / "cwd"),
        "exe": link(folder / "exe"),
        "uid": next(int(row.split()[1]) for row in status.splitlines() if row.startswith("Uid:")),
        "limits": limits(folder / "limits"),
        "started": started(folder),
        "cgroup": unified_cgroup(pid),
        "attributes": read_attributes(pid),
    }


def workers_of(pid: str) -> list[dict[str, Any]]:
    """The other processes of the control group of ``pid``: number, name, environment."""
    group = unified_cgroup(pid)
    if not group or group == "/":
        return []
    found = []
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        if process.name != pid and (unified_cgroup(process.name) or "").startswith(group):
            try:
                name = (process / "comm").read_text().strip()
            except OSError:
                continue
            environ, cut = shown_environ(process / "environ")
            worker = {"pid": int(process.name), "name": name, "environ": environ, "cut": cut}
            found.append(worker)
    return found


def unified_cgroup(pid: str) -> str | None:
    """The control group of a process as systemd names it."""
    try:
        rows = Path("/proc", pid, "cgroup").read_text().splitlines()
    except OSError:
        return None
    named = [
        row.split(":", 2)[2] for row in rows if row.startswith("0::") or ":name=systemd:" in row
    ]
    return max(named, key=len, default=None)


def sockets_on(port: int) -> set[str]:
    """The sockets that listen on a TCP port, as links of ``/proc/PID/fd`` name them."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        path = Path("/proc/self/net", name)
        rows = [row.split() for row in path.read_text().splitlines()[1:]] if path.exists() else []
        inodes |= {r[9] for r in rows if r[3] == "0A" and int(r[1].split(":")[1], 16) == port}
    return {f"socket:[{inode}]" for inode in inodes}


def listeners(port: int) -> list[dict[str, Any]]:
    """The processes that listen on a TCP port, as far as this user may see them."""
    wanted = sockets_on(port)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            held = any(link(descriptor) in wanted for descriptor in (process / "fd").iterdir())
        except OSError:
            continue
        if held:
            found.append(
                {
                    "pid": int(process.name),
                    "started": started(process),
                    "cgroup": unified_cgroup(process.name),
                }
            )
    return found


def main() -> None:
    """Print the answer for the process, port and file of the command line."""
    pid, port, file = sys.argv[1:4]
    path = Path(file)
    answer = {
        "process": look_at(pid),
        "workers": workers_of(pid),
        "listeners": listeners(int(port)),
        "written": path.stat().st_mtime if path.exists() else None,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
