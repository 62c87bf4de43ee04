"""Looks at a process and a port and prints what it sees as JSON; run on the target as root.

usage: look.py PID PORT FILE. What cannot be read is null, never an empty value: a process may
overwrite its own environment, which then reads as NULs and says nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runbook.probe.attributes import read_attributes

#: A dead child that nobody has taken note of for so long is not waited for.
UNHEEDED_S = 5.0
LOOK_AGAIN_S = 1.0
#: A launcher that only waits takes less of a processor than this.
IDLE_SHARE = 0.05
#: Names that servers give their workers, which end with the server alone.
WORKERS = ("sglang", "VLLM::", "ray::")
#: Of these, names of workers that no server ends before it is ready.
LASTING = ("sglang", "VLLM::")
INTERPRETERS = ("python", "pt_main_thread")
#: Programs before a launcher that run it as their child.
WRAPPERS = ("sh", "bash", "dash", "env", "nice", "numactl", "taskset", "tini", "sudo", "runuser")
#: What is run for a moment, and may be left unheeded by who asked for it.
SHORT_LIVED = (
    *("nvcc", "cicc", "ptxas", "fatbinary", "nvlink", "cudafe++", "ninja", "cmake", "make"),
    *("cc", "c++", "gcc", "g++", "cc1", "cc1plus", "clang", "as", "ld", "ld.gold", "collect2"),
    *("ldconfig", "nvidia-smi", "rocm-smi", "lscpu", "lsmod", "git", "which", "uname", "df"),
)
#: Helpers of Python's multiprocessing, which outlive the workers.
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


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


def family_of(main: int) -> list[dict[str, Any]]:
    """``main`` and what descends from it: number, parent, name, state, ticks of processor time,
    how it ended (as ``waitpid`` has it; 0 where this user may not see it), start in ticks."""
    known: dict[int, dict[str, Any]] = {}
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = stat.read_text(errors="replace").rpartition(")")
            words = tail.split()
            pid, parent = int(stat.parent.name), int(words[1])
            known[pid] = {
                "pid": pid,
                "parent": parent,
                "name": head.partition("(")[2],
                "state": words[0],
                "ticks": int(words[11]) + int(words[12]),
                "ended": int(words[49]) if len(words) > 49 else 0,
                "born": words[19],
            }
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(pid)
    family = [main] if main and main in known else []
    for pid in family:  # it grows while it is walked
        family += children.get(pid, [])
    return [dict(known[pid], helper=is_helper(pid)) for pid in family]


def is_helper(pid: int) -> bool:
    """Whether a process is a helper of Python's multiprocessing."""
    words = lines_of(Path("/proc", str(pid), "cmdline")) or []
    return any(name in word for word in words for name in HELPERS)


class LostWorkers:
    """Child processes of a server that is not ready, which have ended while it waits for them.

    ``read``: the family of ``main`` as ``family_of`` tells it, where that is not this machine.
    """

    def __init__(
        self,
        main: int,
        read: Callable[[], list[dict[str, Any]]] | None = None,
        again_s: float = LOOK_AGAIN_S,
    ) -> None:
        self.main, self.again_s = main, again_s
        self.read = read or (lambda: family_of(main))
        self.next_s = 0.0
        self.seen: dict[tuple[int, str], tuple[float, int]] = {}
        self.living: dict[tuple[int, str], tuple[float, dict[str, Any]]] = {}

    def look(self) -> str:
        """What was lost, in words; empty where nothing is, or it is too soon to look again."""
        now = time.monotonic()
        if now < self.next_s:
            return ""
        self.next_s = now + self.again_s
        return self.judge(self.read(), now)

    def judge(self, family: list[dict[str, Any]], now: float) -> str:
        """As ``look``, of a family seen at ``now`` (seconds)."""
        known = {one["pid"]: one for one in family}
        dead = [
            one
            for one in family
            if one["state"] == "Z" and one["ended"] and one["name"] not in SHORT_LIVED
        ]
        self.seen = {
            key: self.seen.get(key, (now, known[one["parent"]]["ticks"]))
            for one in dead
            if one["parent"] in known
            for key in [(one["pid"], one["born"])]
        }
        launchers = self.launchers(family)
        lost = [
            one
            for one in dead
            if (one["pid"], one["born"]) in self.seen
            and self.is_lost(one, known[one["parent"]], family, launchers, now)
        ]
        lost += self.taken_away(family, now)
        return in_words(lost, known) if lost else ""

    def taken_away(self, family: list[dict[str, Any]], now: float) -> list[dict[str, Any]]:
        """Workers that their parent, which lives, has waited for, and that are no more: it has
        noted their end and goes on without them."""
        there = {(one["pid"], one["born"]) for one in family}
        alive = [one for one in family if one["state"] != "Z"]
        for one in alive:
            if one["name"].startswith(LASTING):
                self.living[one["pid"], one["born"]] = (now, one)
        parents = {one["pid"] for one in alive}
        return [
            dict(one, ended=None)
            for key, (last, one) in self.living.items()
            if key not in there and one["parent"] in parents and now - last >= UNHEEDED_S
        ]

    def launchers(self, family: list[dict[str, Any]]) -> set[int]:
        """The main process, and where that only runs another one, that one."""
        names = {one["pid"]: one["name"] for one in family}
        found = {self.main}
        for one in family:  # parents come first
            if one["parent"] in found and names[one["parent"]] in WRAPPERS:
                found.add(one["pid"])
        return found

    def is_lost(
        self,
        one: dict[str, Any],
        parent: dict[str, Any],
        family: list[dict[str, Any]],
        launchers: set[int],
        now: float,
    ) -> bool:
        """Whether its parent would wait for a dead child for ever."""
        key = (one["pid"], one["born"])
        since, ticks = self.seen[key]
        if now - since < UNHEEDED_S:
            return False
        if one["name"].startswith(WORKERS):
            return True
        if parent["ticks"] - ticks > IDLE_SHARE * (now - since) * os.sysconf("SC_CLK_TCK"):
            self.seen[key] = (now, parent["ticks"])
            return False
        if parent["pid"] not in launchers:
            return False
        if one["name"] == parent["name"] or one["name"].startswith(INTERPRETERS):
            return True
        siblings = [child for child in family if child["parent"] == parent["pid"]]
        return all(child["state"] == "Z" or child["helper"] for child in siblings)


def in_words(lost: list[dict[str, Any]], known: dict[int, dict[str, Any]]) -> str:
    """``its worker processes have ended (12 sh: exit 126), and 5 python3 waits for them``."""
    told = [f"{one['pid']} {one['name']}: {how_it_ended(one['ended'])}" for one in lost]
    more = f" and {len(told) - 4} more" if len(told) > 4 else ""
    parent = known[lost[0]["parent"]]
    return (
        f"its worker processes have ended ({', '.join(told[:4])}{more}), and {parent['pid']} "
        f"{parent['name']} still waits for them"
    )


def how_it_ended(status: int | None) -> str:
    """A status of ``waitpid`` in words; ``None`` where only its parent was told."""
    if status is None:
        return "its status is not known"
    return f"signal {status & 127}" if status & 127 else f"exit {status >> 8}"


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
        "family": family_of(int(pid)),
        "listeners": listeners(int(port)),
        "written": path.stat().st_mtime if path.exists() else None,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
