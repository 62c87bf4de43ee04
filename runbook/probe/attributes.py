"""What a process has besides arguments, environment and limits: processors, memory nodes,
priorities of processor and disk, umask, and what it is apart in. Read from /proc, and set.

Names and words are those of systemd's settings: ``cpus`` (CPUAffinity=), ``numa_policy`` and
``numa_nodes`` (NUMAPolicy=, NUMAMask=), ``nice``, ``io_class`` and ``io_priority``, ``cpu_policy``
and ``cpu_priority``, ``oom_score_adjust``, ``umask``. Standard library alone, Python 3.8 or newer,
one file.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

CPU_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle"}
IO_CLASSES = {1: "realtime", 2: "best-effort", 3: "idle"}
#: Numbers of set_mempolicy(2), as systemd sets it.
NUMA_POLICIES = {"default": 0, "preferred": 1, "bind": 2, "interleave": 3, "local": 4}
#: As the kernel writes a policy in numa_maps.
_IN_NUMA_MAPS = {"prefer": "preferred", "interleave": "interleave", "bind": "bind"}
#: Numbers of system calls that Python has no function for: ioprio_set, ioprio_get, set_mempolicy.
_CALLS = {"x86_64": (251, 252, 238), "aarch64": (30, 31, 237)}
_IO_SHIFT = 13
#: What a process may be apart in; uts and time are of no weight for a server.
NAMESPACES = ("mnt", "pid", "net", "user", "ipc", "cgroup")


def read_attributes(pid: str) -> dict[str, Any]:
    """Every attribute of a process, ``None`` where it cannot be read or where systemd has no word
    for it (``numa_policy`` and ``cpu_policy`` then hold the kernel's)."""
    folder = Path("/proc", pid)
    status = _status(folder)
    fields = _text(folder / "stat").rpartition(")")[2].split()
    number = int(fields[38]) if len(fields) > 38 else None
    real_time = int(fields[37]) if len(fields) > 38 else None
    policy, nodes = read_numa(_text(folder / "numa_maps"))
    io_class, io_priority = _io(pid)
    adjust = _text(folder / "oom_score_adj").strip()
    return {
        "cpus": status.get("Cpus_allowed_list"),
        "mems": status.get("Mems_allowed_list"),
        "numa_policy": policy,
        "numa_nodes": nodes,
        "nice": int(fields[16]) if len(fields) > 16 else None,
        "io_class": io_class,
        "io_priority": io_priority,
        "cpu_policy": None if number is None else CPU_POLICIES.get(number, f"number {number}"),
        "cpu_priority": real_time or None,
        "oom_score_adjust": int(adjust) if adjust else None,
        "umask": status.get("Umask"),
    }


def read_numa(maps: str) -> tuple[str | None, str]:
    """The memory policy of a process by its stack and heap, and the nodes it names, empty for none.

    The kernel shows the policy of a process with every mapping that has none of its own.
    """
    own = [line.split()[1] for line in maps.splitlines() if re.search(r" (stack|heap)( |$)", line)]
    if not own:
        return None, ""
    word, _, nodes = own[-1].partition(":")
    bare = word.partition("=")[0]
    return _IN_NUMA_MAPS.get(bare, bare), nodes


def apart_in(pid: str, other: str = "self") -> list[str] | None:
    """The kinds of namespaces in which two processes differ, and ``root`` where that is another
    folder; ``None`` where that may not be seen."""
    found = []
    try:
        for kind in NAMESPACES:
            if _link(pid, f"ns/{kind}") != _link(other, f"ns/{kind}"):
                found.append(kind)
        if _link(pid, "root") != _link(other, "root"):
            found.append("root")
    except OSError:
        return None
    return found


def set_attributes(wanted: dict[str, Any]) -> None:
    """Give this process these attributes, as systemd does before it executes a program.

    Raises ``OSError`` with the name of the first that is refused; those after it are not set.
    """
    priority = wanted.get("cpu_priority") or 0
    io_class, io_priority = wanted.get("io_class"), wanted.get("io_priority")
    steps: dict[str, Callable[[Any], Any]] = {
        "oom_score_adjust": lambda value: Path("/proc/self/oom_score_adj").write_text(str(value)),
        "nice": lambda value: os.setpriority(os.PRIO_PROCESS, 0, value),
        "cpu_policy": lambda value: os.sched_setscheduler(
            0, getattr(os, "SCHED_" + value.upper()), os.sched_param(priority)
        ),
        "cpus": lambda value: os.sched_setaffinity(0, numbers_in(value)),
        "numa_policy": lambda value: _set_numa(value, wanted.get("numa_nodes") or ""),
        "umask": lambda value: os.umask(int(value, 8)),
    }
    if io_class or io_priority is not None:
        steps["io_class"] = lambda value: _set_io(value or "best-effort", io_priority)
    for name, step in steps.items():
        if wanted.get(name) is not None or name == "io_class":
            try:
                step(wanted.get(name))
            except OSError as error:
                raise OSError(error.errno, f"{name} {wanted.get(name)}: {error.strerror}") from None


def numbers_in(text: str) -> set[int]:
    """The numbers in a list like ``0-3,8``."""
    found = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _link(pid: str, name: str) -> str:
    return os.readlink(f"/proc/{pid}/{name}")  # noqa: PTH115 - Path.readlink is of Python 3.9


def _status(folder: Path) -> dict[str, str]:
    rows = (line.partition(":") for line in _text(folder / "status").splitlines())
    return {name: value.strip() for name, _, value in rows}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _call(which: int, *arguments: Any) -> int:
    """A system call; raises ``OSError``, also on a machine whose numbers are not known."""
    numbers = _CALLS.get(platform.machine())
    if numbers is None:
        raise OSError(38, f"no system call numbers for {platform.machine()}")
    done = int(ctypes.CDLL(None, use_errno=True).syscall(numbers[which], *arguments))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def _io(pid: str) -> tuple[str | None, int | None]:
    """Class and priority at the disk. A process that never set them has none: they follow nice."""
    try:
        found = _call(1, 1, int(pid))
    except OSError:
        return None, None
    io_class = IO_CLASSES.get(found >> _IO_SHIFT, "none")
    return io_class, None if io_class in ("none", "idle") else found & 7


def _set_io(io_class: str, priority: int | None) -> None:
    number = next(number for number, word in IO_CLASSES.items() if word == io_class)
    _call(0, 1, 0, number << _IO_SHIFT | (4 if priority is None else priority))


def _set_numa(policy: str, nodes: str) -> None:
    mask = sum(1 << node for node in numbers_in(nodes))
    words = (ctypes.c_ulong * 16)(*((mask >> 64 * at) & (2**64 - 1) for at in range(16)))
    _call(2, NUMA_POLICIES[policy], words if mask else None, 1024 if mask else 0)
