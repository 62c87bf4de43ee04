"""Guard of a unit, one file on its host: ``before-start``, ``ready`` (gate.py), ``after-boot``
(boot.py), and ``drift``.

``before-start EXPECTED`` looks whether what was measured is still there. Run by systemd as
ExecStartPre under the interpreter that will serve, with its flags, as its user, in its
environment; EXPECTED is the path of a JSON file. One line a finding,
``guard: LEVEL: NAME: FOUND; wanted: WANTED``; the exit code is 0, 20 when something failed, 21
without expectations. ``drift`` asks the same with the JSON itself: then nothing fails, findings
are printed as JSON, and the content of files is read, not only their size and time.

What was not measured is skipped. What was, and cannot be read now, is unknown, never a pass.
"""

from __future__ import annotations
"""What the serving interpreter finds around it, printed as one line of JSON.

Run by the interpreter that will serve, with its flags, as its user, in its environment and
directory: ``PYTHON serving.py [OPTIONS]`` or ``PYTHON - [OPTIONS] < serving.py``. OPTIONS is JSON:
``packages`` (names of distributions), ``requires_of`` (one of them), ``files`` (paths),
``hash_up_to_bytes`` (larger files are not hashed), ``disks`` (paths whose file systems matter),
``tools`` (names looked for on PATH).

The line is ``{"probe": "serving", "facts": {...}, "reasons": {...}}``. A fact that cannot be read
is ``null`` and has a reason; nothing raises. Sizes are bytes. Standard library alone, Python 3.8
or newer, one file: it runs where the runbook is not installed.
"""


import hashlib
import importlib.machinery
import json
import os
import platform
import pwd
import re
import resource
import shutil
import site
import stat
import subprocess
import sys
from importlib import metadata
from typing import Any, Callable

LIMITS = {
    "nofile": resource.RLIMIT_NOFILE,
    "memlock": resource.RLIMIT_MEMLOCK,
    "stack": resource.RLIMIT_STACK,
    "nproc": resource.RLIMIT_NPROC,
    "core": resource.RLIMIT_CORE,
}
FLAGS = ("isolated", "ignore_environment", "no_user_site", "no_site", "safe_path")
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL")
CHUNK_BYTES = 1 << 20


def read_python(options: dict[str, Any]) -> dict[str, Any]:
    """Version, program and what its flags switch off."""
    return {
        "version": platform.python_version(),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "realpath": os.path.realpath(sys.executable),
        "sha256": _hashed(sys.executable)["sha256"],
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "flags": [name for name in FLAGS if getattr(sys.flags, name, False)],
    }


def read_packages(options: dict[str, Any]) -> dict[str, str | None]:
    """Version of each distribution asked for, ``null`` for one that is not installed."""
    return {name: _version_of(name) for name in options.get("packages", [])}


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def read_requires(options: dict[str, Any]) -> list[str] | None:
    """What one distribution itself requires of the packages asked for, as its metadata has it;
    ``null`` where it is not installed."""
    try:
        required = metadata.requires(options.get("requires_of") or "") or []
    except (metadata.PackageNotFoundError, ValueError):
        return None
    asked = {_plain(name) for name in options.get("packages", [])}
    return [one for one in required if _plain(re.split(r"[^\w.-]", one)[0]) in asked]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_sys_path(options: dict[str, Any]) -> list[str]:
    """Where modules come from, without the first entry: that belongs to the program that runs."""
    return [str(entry) for entry in _module_path()]


def _module_path() -> list[str]:
    own = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
    return sys.path[1:] if own else list(sys.path)


def read_sitecustomize(options: dict[str, Any]) -> dict[str, Any]:
    """Every ``sitecustomize`` on the path, the one that was loaded, and whether it raised."""
    return _customization("sitecustomize", bool(sys.flags.no_site))


def read_usercustomize(options: dict[str, Any]) -> dict[str, Any]:
    """As ``sitecustomize``; off where the user's own site-packages are."""
    return _customization("usercustomize", bool(sys.flags.no_site) or not site.ENABLE_USER_SITE)


def _customization(name: str, switched_off: bool) -> dict[str, Any]:
    candidates = [_hashed(path) for path in _places_of(name)]
    module = sys.modules.get(name)
    # One that raised is taken out of sys.modules, but nothing there tells why: stderr does.
    left_out = bool(candidates) and module is None and not switched_off
    raised = _what_it_says(name) if left_out else None
    return {
        "candidates": candidates,
        "loaded": getattr(module, "__file__", None),
        "switched_off": switched_off,
        "raised": raised,
    }


def _places_of(name: str) -> list[str]:
    """Files that ``import name`` could load, in the order of the path, each once."""
    found: list[str] = []
    for entry in _module_path():
        try:
            spec = importlib.machinery.PathFinder.find_spec(name, [entry])
        except Exception:
            continue
        origin = getattr(spec, "origin", None)
        if origin and os.path.isfile(origin) and os.path.abspath(origin) not in found:
            found.append(os.path.abspath(origin))
    return found


def _hashed(path: str) -> dict[str, str | None]:
    try:
        return {"path": path, "realpath": os.path.realpath(path), "sha256": _sha256(path)}
    except OSError as error:
        return {"path": path, "realpath": os.path.realpath(path), "sha256": None, "why": str(error)}


def _what_it_says(name: str) -> str | None:
    """What a fresh interpreter prints about ``name``; ``null`` when it prints nothing of it."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    done = subprocess.run(
        [sys.executable, *flags, "-c", ""],
        env=_environment_given(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    lines = done.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    starts = [number for number, line in enumerate(lines) if "Error in " + name in line]
    return " ".join(lines[starts[0] + 1 : starts[0] + 3]) or lines[starts[0]] if starts else None


def read_environment(options: dict[str, Any]) -> dict[str, Any]:
    """What the start of Python changed in the environment it was given: sitecustomize and such."""
    given, now = _environment_given(), dict(os.environ)
    return {
        "set": {name: _shown(name, now[name]) for name in sorted(set(now) - set(given))},
        "changed": {
            name: _shown(name, now[name])
            for name in sorted(set(now) & set(given))
            if now[name] != given[name]
        },
        "removed": sorted(set(given) - set(now)),
    }


def _environment_given() -> dict[str, str]:
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().split(b"\0")
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _shown(name: str, value: str) -> str:
    """The value, or its hash where the name says that it is a secret."""
    value = value.encode("utf-8", "backslashreplace").decode("utf-8")
    if any(word in name.upper() for word in SECRET_WORDS):
        return "sha256:" + hashlib.sha256(value.encode()).hexdigest()[:16]
    return value


def read_user(options: dict[str, Any]) -> dict[str, Any]:
    """Who runs this, and where."""
    try:
        entry = pwd.getpwuid(os.geteuid())
        name, home = entry.pw_name, entry.pw_dir
    except KeyError:
        return {"uid": os.geteuid(), "gid": os.getegid(), "name": None, "home": None}
    return {"uid": os.geteuid(), "gid": os.getegid(), "name": name, "home": home}


def read_cwd(options: dict[str, Any]) -> str:
    """The directory this runs in."""
    return os.getcwd()


def read_limits(options: dict[str, Any]) -> dict[str, Any]:
    """Resource limits by name: ``soft`` and ``hard``, a number or ``infinity``."""
    return {
        name: dict(zip(("soft", "hard"), map(_limit, resource.getrlimit(which))))
        for name, which in LIMITS.items()
    }


def _limit(value: int) -> int | str:
    return "infinity" if value == resource.RLIM_INFINITY else value


def read_nr_open(options: dict[str, Any]) -> int:
    """The kernel's own ceiling of open files a process."""
    with open("/proc/sys/fs/nr_open") as file:
        return int(file.read())


def read_shm(options: dict[str, Any]) -> dict[str, int]:
    """``/dev/shm``: size and what is free."""
    return _room("/dev/shm")


def read_disks(options: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Size and free room of the file system of each path asked for."""
    return {path: _room(path) for path in options.get("disks", [])}


def _room(path: str) -> dict[str, int]:
    """Room below ``path``, or below its nearest parent that is there."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return {
        "size_bytes": found.f_frsize * found.f_blocks,
        "free_bytes": found.f_frsize * found.f_bavail,
    }


def read_cores(options: dict[str, Any]) -> dict[str, int]:
    """Processors this process may use, and those the machine has on line."""
    return {
        "usable": len(os.sched_getaffinity(0)),
        "online": os.sysconf("SC_NPROCESSORS_ONLN"),
    }


def read_cpu(options: dict[str, Any]) -> str:
    """The processor's name."""
    with open("/proc/cpuinfo") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Hardware", "cpu model"):
                return value.strip()
    raise ValueError("/proc/cpuinfo names no model")


def read_memory(options: dict[str, Any]) -> dict[str, int]:
    """Memory, whole and available."""
    with open("/proc/meminfo") as file:
        rows = dict(line.split(":", 1) for line in file if ":" in line)
    return {
        "total_bytes": int(rows["MemTotal"].split()[0]) * 1024,
        "available_bytes": int(rows["MemAvailable"].split()[0]) * 1024,
    }


def read_kernel(options: dict[str, Any]) -> dict[str, str]:
    """Release and architecture."""
    found = os.uname()
    return {"release": found.release, "machine": found.machine}


def read_system(options: dict[str, Any]) -> str:
    """The operating system by the name it gives itself."""
    with open("/etc/os-release") as file:
        for line in file:
            if line.startswith("PRETTY_NAME="):
                return line.partition("=")[2].strip().strip("\"'")
    raise ValueError("/etc/os-release gives no PRETTY_NAME")


def read_tools(options: dict[str, Any]) -> dict[str, str | None]:
    """Where each tool lies on this PATH, ``null`` for one that is not there."""
    return {name: shutil.which(name) for name in options.get("tools", [])}


def read_files(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each file or folder asked for: kind, size, time, SHA-256 of a file that is not too large."""
    most = options.get("hash_up_to_bytes", 0)
    return {path: _file(path, most) for path in options.get("files", [])}


def _file(path: str, most: int) -> dict[str, Any]:
    try:
        found = os.stat(path)
    except OSError as error:
        return {"kind": None, "why": error.strerror}
    facts: dict[str, Any] = {"realpath": os.path.realpath(path), "mtime_ns": found.st_mtime_ns}
    if stat.S_ISDIR(found.st_mode):
        return dict(facts, kind="folder", readable=True, **_folder(path, most))
    facts.update(kind="file", size_bytes=found.st_size, sha256=None, readable=True)
    try:
        if found.st_size <= most:
            facts["sha256"] = _sha256(path)
        else:
            open(path, "rb").close()
    except OSError as error:
        facts.update(readable=False, why=error.strerror)
    return facts


def _folder(path: str, most: int) -> dict[str, Any]:
    """Number, size and newest change of the files below, a hash over their names and sizes, and
    one over their content where all of them together are not too large."""
    entries, newest_ns = [], 0
    for folder, _, names in os.walk(path):
        for name in names:
            whole = os.path.join(folder, name)
            try:
                found = os.stat(whole)
            except OSError:
                entries.append((os.path.relpath(whole, path), -1))
                continue
            entries.append((os.path.relpath(whole, path), found.st_size))
            newest_ns = max(newest_ns, found.st_mtime_ns)
    listing = json.dumps(sorted(entries)).encode()
    size = sum(size for _, size in entries if size > 0)
    return {
        "files": len(entries),
        "size_bytes": size,
        "newest_mtime_ns": newest_ns,
        "listing_sha256": hashlib.sha256(listing).hexdigest(),
        "sha256": _content(path, sorted(entries)) if size <= most else None,
    }


def _content(path: str, entries: list[tuple[str, int]]) -> str | None:
    """A hash over the content of all files of a folder, ``null`` when one cannot be read."""
    digest = hashlib.sha256()
    for name, _ in entries:
        hashed = _hashed(os.path.join(path, name))["sha256"]
        if hashed is None:
            return None
        digest.update(json.dumps([name, hashed]).encode())
    return digest.hexdigest()


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
            digest.update(chunk)
    return digest.hexdigest()


READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "python": read_python,
    "packages": read_packages,
    "requires": read_requires,
    "sys_path": read_sys_path,
    "sitecustomize": read_sitecustomize,
    "usercustomize": read_usercustomize,
    "environment": read_environment,
    "user": read_user,
    "cwd": read_cwd,
    "limits": read_limits,
    "nr_open": read_nr_open,
    "shm": read_shm,
    "disks": read_disks,
    "cores": read_cores,
    "cpu": read_cpu,
    "memory": read_memory,
    "kernel": read_kernel,
    "system": read_system,
    "tools": read_tools,
    "files": read_files,
}


def read_all(options: dict[str, Any]) -> dict[str, Any]:
    """All facts, and the reason of each that is missing."""
    facts: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, reader in READERS.items():
        try:
            facts[name] = reader(options)
        except Exception as error:
            facts[name] = None
            reasons[name] = f"{type(error).__name__}: {error}"
    return {"probe": "serving", "facts": facts, "reasons": reasons}


"""Looks at a process and a port and prints what it sees as JSON; run on the target as root.

usage: look.py PID PORT FILE. What cannot be read is null, never an empty value: a process may
overwrite its own environment, which then reads as NULs and says nothing.
"""


import json
import os
import sys
import time
from pathlib import Path
from typing import Any


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


"""How GPUs are connected, as ``nvidia-smi topo`` prints it: matrix, class and fingerprint.

Pure, standard library alone, Python 3.8 or newer, one file: verification reads it here, and what
is installed on a target can carry it along.
"""


import hashlib
import json
import re
from typing import Any

#: From near to far; ``NV`` and a number is nearer than all of them.
LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS")

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_GPU = re.compile(r"GPU\d+")
_ROW = re.compile(r"\s*(GPU\d+)\s+(?!GPU|NIC)(\S.*)")
_CELL = re.compile(r"X|OK|[A-Z]{1,4}\d*|N/A")
_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def parse_matrix(text: str) -> dict[str, Any]:
    """The matrix in the answer to ``nvidia-smi topo -m`` or ``-p2p``; any text is taken.

    ``gpus``: names in the order of rows and columns; ``cells``: a list a row, ``None`` where the
    text is cut off; ``cpus`` and ``numa``: affinity a GPU, ``None`` where there is none;
    ``faults``: what is missing or contradicts itself.
    """
    header, rows, affinity = _lines_of(_without_cut_word(text))
    names = list(dict.fromkeys(_GPU.findall(header))) or list(rows)
    cells = [_cells(rows.get(name, []), len(names)) for name in names]
    rests = [affinity.get(name, []) for name in names]
    columns = 1 + ("NUMA" in header.replace("GPU NUMA", ""))
    whole = [rest if len(rest) >= columns else [None, None] for rest in rests]
    return {
        "gpus": names,
        "cells": cells,
        "cpus": [rest[0] for rest in whole],
        "numa": [rest[1] if columns == 2 else None for rest in whole],
        "faults": _faults(names, cells, rows),
    }


def _without_cut_word(text: str) -> str:
    """The text without its last word where nothing says that the word is whole."""
    last = re.search(r"\S+\Z", text)
    return text if last is None or last[0] in ("X", "N/A") else text[: last.start()]


def _lines_of(text: str) -> tuple[str, dict[str, list[str]], dict[str, list[str]]]:
    """The header, and of each GPU's row the words of its links and of its affinity."""
    header = ""
    rows: dict[str, list[str]] = {}
    affinity: dict[str, list[str]] = {}
    for line in _ESCAPE.sub("", text).splitlines():
        row = _ROW.fullmatch(line.rstrip())
        if line.strip().startswith("Legend"):
            break
        if row:
            words = row[2].split()
            rows[row[1]] = [word for word in words if _CELL.fullmatch(word)]
            affinity[row[1]] = [word for word in words if _CPUS.fullmatch(word)]
        elif not rows:
            header += line + " "
    return header, rows, affinity


def _cells(words: list[str], columns: int) -> list[str | None]:
    return [words[at] if at < len(words) else None for at in range(columns)]


def _faults(names: list[str], cells: list[list[Any]], rows: dict[str, Any]) -> list[str]:
    faults = [f"the row of {name} is missing" for name in names if name not in rows]
    faults += [f"the column of {name} is missing" for name in rows if name not in names]
    for name, row in zip(names, cells):
        if name in rows and None in row:
            faults.append(f"the row of {name} is cut off")
    for one, row in enumerate(cells):
        for other in range(one):
            there, back = row[other], cells[other][one]
            if there != back and None not in (there, back):
                faults.append(f"{names[one]} to {names[other]}: {there}, but back: {back}")
    return faults


def pairs(matrix: dict[str, Any]) -> dict[str, str]:
    """``GPU0-GPU1: SYS`` for every pair of GPUs whose cell is known."""
    names = matrix["gpus"]
    return {
        f"{names[one]}-{names[other]}": matrix["cells"][one][other]
        for one in range(len(names))
        for other in range(one + 1, len(names))
        if matrix["cells"][one][other] is not None
    }


def topology_class(matrix: dict[str, Any]) -> str | None:
    """What all pairs have in common, ``None`` where the matrix is not whole.

    ``nvlink``: NVLink somewhere; ``switch``: all below PCIe switches; ``root``: one host bridge;
    ``node``: one NUMA node; ``system``: some pairs across nodes, some nearer; ``all-system``: every
    pair across nodes. Where a socket is cut into several nodes (NPS2, NPS4), SYS does not mean the
    other socket.
    """
    found = set(pairs(matrix).values())
    if matrix["faults"] or not matrix["gpus"] or not all(map(_is_link, found)):
        return None
    if not found:
        return "single"
    if any(link.startswith("NV") for link in found):
        return "nvlink"
    if found == {"SYS"}:
        return "all-system"
    farthest = max(found, key=LINKS.index)
    return {"PIX": "switch", "PXB": "switch", "PHB": "root", "NODE": "node", "SYS": "system"}[
        farthest
    ]


def _is_link(text: str) -> bool:
    return text in LINKS or re.fullmatch(r"NV\d+", text) is not None


def fingerprint(matrix: dict[str, Any]) -> str | None:
    """Hash (16 hex digits) of the links alone, equal however the GPUs are numbered.

    ``None`` where the matrix is not whole. Every GPU in turn is told apart from the others, then
    GPUs are told apart by their links to those told apart already, until nothing more differs.
    """
    if topology_class(matrix) is None:
        return None
    cells = matrix["cells"]
    seen_by_each = [_told_apart(cells, start) for start in range(len(cells))]
    return _digest(sorted(seen_by_each))


def _told_apart(cells: list[list[str]], start: int) -> str:
    colours = ["start" if at == start else "" for at in range(len(cells))]
    for _ in cells:
        colours = [
            _digest([colours[at], sorted(zip(row, colours))]) for at, row in enumerate(cells)
        ]
    return _digest(sorted(colours))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]

"""Readiness gate of a unit: ends when the service has served, or at once when it cannot.

``ready`` of the guard, run by systemd as ExecStartPost, so that ``systemctl start`` returns when a
completion was served. It climbs a ladder (the port is ours, health, model, a streamed completion
of two tokens or more) and watches the main process all the while. It prints what it waits for.

Exit codes, chosen outside those that systemd gives names to (2 to 7, 64 to 78, 200 and up):
0 served; 10 the main process is gone; 11 out of time; 12 the server will not serve us; 13 wrongly
asked.
"""


import argparse
import http.client
import json
import os
import threading
import time
import urllib.parse
from pathlib import Path


GONE, LATE, REFUSED, WRONGLY_ASKED = 10, 11, 12, 13
SAY_AGAIN_S = 15.0


class Refused(Exception):
    """The server answers, and waiting longer will not help."""


class NotYet(Exception):
    """The server is not ready; the text says in what way."""


def process_start(pid: int) -> str | None:
    """Start time of a process in clock ticks; ``None`` when it has ended or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def unit_holds_port(port: int, main: int) -> bool | None:
    """Whether a process of ``main``'s control group listens on ``port``.

    ``None`` when that cannot be read. An older server that still holds the port would answer in
    the place of the new one.
    """
    held = sockets_on(port)
    if not held:
        return False
    ours, readable = unified_cgroup(str(main)), False
    for process in Path("/proc").glob("[0-9]*"):
        if process.name != str(main) and unified_cgroup(process.name) != ours:
            continue
        try:
            for descriptor in (process / "fd").iterdir():
                readable = True
                if link(descriptor) in held:
                    return True
        except OSError:
            continue
    return False if readable else None


class Ladder(threading.Thread):
    """Asks the server until it has served; ``waits_for`` is the rung it stands on."""

    def __init__(self, url: str, model: str, tokens: int, main: int, key: str | None) -> None:
        super().__init__(daemon=True)
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.base = parts.path.rstrip("/")
        self.model, self.tokens, self.main = model, tokens, main
        self.headers = {"Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        self.waits_for = "the first look"
        self.served: str | None = None
        self.refused: str | None = None

    def run(self) -> None:
        """Climb again and again, less often as time goes by, until served or refused."""
        begun = time.monotonic()
        while self.served is None and self.refused is None:
            try:
                self.climb()
            except Refused as error:
                self.refused = str(error)
            except NotYet as error:
                self.waits_for = str(error)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.waits_for = f"an answer ({type(error).__name__}: {error})"
            time.sleep(min(1.0, max(0.1, (time.monotonic() - begun) / 50)))

    def climb(self) -> None:
        """One try, from the bottom. Raises ``NotYet`` or ``Refused``."""
        if self.main and unit_holds_port(self.port, self.main) is False:
            if sockets_on(self.port):
                raise NotYet(f"port {self.port}: held by a process that is not of this unit")
            raise NotYet(f"the server to listen on port {self.port}")
        self.waits_for = "health"
        status, _ = self.get("/health")
        if status not in (200, 404, 405):
            raise NotYet(f"health (it says {status})")
        model = self.served_model()
        self.waits_for = f"a completion of {model}"
        count = self.complete(model)
        if count < self.tokens:
            raise NotYet(f"a completion of {self.tokens} tokens (it gave {count})")
        self.served = f"{model} served a completion of {count} tokens"

    def served_model(self) -> str:
        """The id to ask for, which the server must list."""
        status, body = self.get("/v1/models")
        if status in (401, 403):
            raise Refused(f"/v1/models says {status}: the server wants an API key we do not have")
        if status != 200:
            raise NotYet(f"the list of models (it says {status})")
        names = [str(entry["id"]) for entry in json.loads(body)["data"]]
        if self.model and self.model not in names:
            raise Refused(f"the server has the models {names}, not {self.model}")
        if not names:
            raise NotYet("a model in the list of models")
        return self.model or names[0]

    def complete(self, model: str) -> int:
        """Tokens of one streamed completion: those of ``usage``, else the pieces of text."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Count from one to twenty."}],
            "max_tokens": 16,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        connection = http.client.HTTPConnection(self.host, self.port)
        try:
            path = f"{self.base}/v1/chat/completions"
            connection.request("POST", path, json.dumps(body), self.headers)
            answer = connection.getresponse()
            if answer.status in (401, 403):
                raise Refused(
                    f"it says {answer.status}: the server wants an API key we do not have"
                )
            if answer.status != 200:
                said = answer.read(300).decode(errors="replace")
                raise NotYet(f"a completion (it says {answer.status}: {said})")
            return count_tokens(answer)
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request("GET", self.base + path, headers=self.headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def count_tokens(stream: http.client.HTTPResponse) -> int:
    """Tokens of a streamed chat answer. Raises ``NotYet`` for an error in the stream or no end."""
    pieces, usage, ended = 0, 0, False
    for line in stream:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            ended = True
            break
        event = json.loads(data)
        if event.get("error"):
            raise NotYet(f"a completion (the stream says {event['error']})")
        usage = (event.get("usage") or {}).get("completion_tokens") or usage
        for choice in event.get("choices") or []:
            delta = choice.get("delta") or {}
            text = [delta.get(key) for key in ("content", "reasoning_content", "reasoning")]
            pieces += any(text)
            ended = ended or choice.get("finish_reason") is not None
    if not ended:
        raise NotYet("a completion that comes to its end")
    return max(pieces, usage)


def wait(ladder: Ladder, main: int, deadline_s: float) -> int:
    """Watch ladder, main process and clock; return the exit code."""
    begun = time.monotonic()
    born = process_start(main) if main else None
    said, said_at = "", 0.0
    ladder.start()
    while True:
        waited = time.monotonic() - begun
        if ladder.served:
            print(f"gate: ready after {waited:.1f} s: {ladder.served}", flush=True)
            return 0
        rung = ladder.waits_for
        if main and (born is None or process_start(main) != born):
            print(f"gate: main process {main} is gone while waiting for {rung}", flush=True)
            return GONE
        if ladder.refused:
            print(f"gate: will not become ready: {ladder.refused}", flush=True)
            return REFUSED
        if waited > deadline_s:
            print(f"gate: gave up after {waited:.0f} s waiting for {rung}", flush=True)
            return LATE
        if (rung != said and waited - said_at >= 1) or waited - said_at >= SAY_AGAIN_S:
            print(f"gate: {waited:.0f} of {deadline_s:.0f} s, waiting for {rung}", flush=True)
            said, said_at = rung, waited
        time.sleep(0.05)


def read_key(main: int) -> str | None:
    """The API key from systemd's credentials, ``None`` without one.

    Older releases of systemd (252) hide them from ExecStartPost, or show it an empty folder; then
    the main process's own view of the same folder is read. Raises ``OSError`` when there is a key
    that cannot be read.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return None
    views = ["", f"/proc/{main}/root"] if main else [""]
    for view in views:
        try:
            return Path(f"{view}{folder}/api-key").read_text().strip() or None
        except FileNotFoundError:  # no key, or not in this view of the folder
            continue
        except PermissionError:
            if view == views[-1]:
                raise
    return None


def ready(words: list[str]) -> int:
    """Wait as the command line says; the exit code. A request that hangs may outlive it."""
    parser = argparse.ArgumentParser("ready", exit_on_error=False)
    parser.add_argument("--url", required=True, help="base URL without /v1")
    parser.add_argument("--model", default="", help="id that must be served; empty for the first")
    parser.add_argument("--deadline", type=float, required=True, help="seconds")
    parser.add_argument("--tokens", type=int, default=2, help="tokens that count as served")
    try:
        given = parser.parse_args(words)
        pid = int(os.environ.get("MAINPID") or 0)
        key = read_key(pid)
    except (argparse.ArgumentError, ValueError, OSError) as error:
        print(f"gate: {error}", flush=True)
        return WRONGLY_ASKED
    ladder = Ladder(given.url, given.model, given.tokens, pid, key)
    return wait(ladder, pid, given.deadline)

"""How a unit came back at the last boot of its host, from the journal of that boot.

Run as root: ``after-boot UNIT`` prints it, ``after-boot UNIT FILE`` writes it there once the unit
has come to rest. The one-shot unit that is installed beside a service does the latter at each
boot, so that what happened is known however soon the journal is rotated.
"""


import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: How systemd marks what it says of a unit (``systemd/sd-messages.h``).
STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
RESTART_PLANNED = "5eb03494b6584870a536b337290809b3"

#: What the gate says when a completion was served.
SERVED = "gate: ready"


UNKNOWN = 22


def after_boot(words: list[str]) -> int:
    """Print what this boot tells of the unit ``words[0]``, or write it to ``words[1]``; 22 when it
    cannot be told."""
    unit, file = words[0], words[1] if len(words) > 1 else ""
    try:
        if file:
            wait_for_rest(unit)
        found = {"probe": "boot", **read_boot(unit)}
        if file:
            replace_file(Path(file), json.dumps(found) + "\n")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"boot: {type(error).__name__}: {error}", file=sys.stderr)
        return UNKNOWN
    served = sum(start["served_s"] is not None for start in found["starts"])
    said = f"boot: starts of {unit}: {len(found['starts'])}, of them served: {served}"
    print(said if file else json.dumps(found))
    return 0


def wait_for_rest(unit: str) -> None:
    """Wait while systemd brings a unit up, and while it tries again."""
    show = ("systemctl", "show", "-P", "ActiveState", unit)
    while said_by(*show) in ("activating", "reloading"):
        time.sleep(0.5)


def read_boot(unit: str) -> dict[str, Any]:
    """The boot that the host is in, and the starts of ``unit`` in it.

    ``at``: when systemd took over, in seconds of the epoch. Of the host's monotonic clock:
    ``began_s``, when systemd took over; ``over_s``, when the boot was over (null: it is not);
    ``kept_from_s``, how far back the journal reaches. ``read_at``: now, in seconds of the epoch.
    """
    said_by("journalctl", "--sync")
    manager = said_by("systemctl", "show", "-P", "UserspaceTimestampMonotonic")
    over = said_by("systemctl", "show", "-P", "ActiveEnterTimestampMonotonic", "multi-user.target")
    began_s, over_s = int(manager) / 1e6, int(over) / 1e6
    now_s, uptime_s = time.time(), float(Path("/proc/uptime").read_text().split()[0])
    journal = ("journalctl", "--boot", "--output=json", "--quiet", "--no-pager")
    oldest = first_line(*journal)
    return {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "at": now_s - (uptime_s - began_s),
        "began_s": began_s,
        "over_s": over_s or None,
        "kept_from_s": moment_s(json.loads(oldest)) if oldest else uptime_s,
        "read_at": now_s,
        "starts": list(starts_in(said_by(*journal, "--unit", unit))),
    }


def starts_in(journal: str) -> Iterator[dict[str, Any]]:
    """The starts of the unit in a journal (one JSON object a line), in order: ``at_s``, whether
    systemd had ``planned`` it, and ``served_s``, null for one that did not serve."""
    start: dict[str, Any] | None = None
    planned = False
    for line in journal.splitlines():
        entry = json.loads(line)
        said = entry.get("MESSAGE_ID")
        if said == RESTART_PLANNED:
            planned = True
        elif said == STARTING:
            if start:
                yield start
            start = {"at_s": moment_s(entry), "planned": planned, "served_s": None}
            planned = False
        elif start and start["served_s"] is None and SERVED in str(entry.get("MESSAGE")):
            start["served_s"] = moment_s(entry)
    if start:
        yield start


def moment_s(entry: dict[str, Any]) -> float:
    """When an entry of the journal was written, in seconds of the monotonic clock."""
    return int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6


def said_by(*command: str) -> str:
    """What a command prints, without the last line's end. Raises ``OSError`` and
    ``subprocess.SubprocessError``."""
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120)
    return done.stdout.decode(errors="replace").strip()


def first_line(*command: str) -> str:
    """The first line of what a command prints; the rest is not waited for."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        line = started.stdout.readline()
        started.kill()
    return line.decode(errors="replace").strip()


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


FAILED, NO_EXPECTATIONS, NO_COMMAND = 20, 21, 23
GIB = 2**30
#: After a boot the driver may still be busy with its cards, after a stop it may still free memory.
GPUS_WAIT_S = 60.0
#: More than this share of a card in use before a start is somebody's.
GPU_USED_SHARE = 0.05

#: Where servers of this kind compile, load and keep what they need later.
CACHES = (
    "HOME",
    "XDG_CACHE_HOME",
    "HF_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
)

#: Status, found, wanted. The status is pass, fail, unknown or skipped.
Answer = tuple[str, str, str]
NOT_MEASURED: Answer = ("skipped", "it was not measured", "")


def judge_file(wanted: dict[str, Any] | None, found: dict[str, Any] | None) -> Answer:
    """One model: by its content where that was read, else by size and time."""
    if not wanted:
        return NOT_MEASURED
    aim = _describe_file(wanted)
    if not found:
        return "unknown", "it could not be looked at", aim
    if found.get("kind") != wanted["kind"] or found.get("readable") is False:
        return "fail", found.get("why") or f"it is a {found.get('kind')}", aim
    said = _describe_file(found)
    if any(found.get(key) != wanted.get(key) for key in ("size_bytes", "files", "listing_sha256")):
        return "fail", said, aim
    if found.get("sha256") and wanted.get("sha256"):
        return ("pass" if found["sha256"] == wanted["sha256"] else "fail"), said, aim
    if is_unchanged(wanted, found):
        return "pass", said, aim
    return "unknown", f"{said}: changed since, and no hash tells whether its content is", aim


def is_unchanged(wanted: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether place, size and times are those that were measured."""
    keys = ("realpath", "size_bytes", "mtime_ns", "newest_mtime_ns")
    return all(found.get(key) == wanted.get(key) for key in keys)


def _describe_file(file: dict[str, Any]) -> str:
    size = f"{file.get('size_bytes', 0)} bytes"
    if file["kind"] == "folder":
        size = f"{file.get('files')} file{'s' * (file.get('files') != 1)}, {size}"
    if file.get("sha256"):
        return f"{size}, SHA-256 {file['sha256'][:12]}"
    stamp_s = (file.get("newest_mtime_ns") or file.get("mtime_ns") or 0) / 1e9
    return f"{size} of {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(stamp_s))}"


def judge_interpreter(wanted: dict[str, Any] | None, found: dict[str, Any] | None) -> Answer:
    """The program and its version; what was not known of it then says nothing now."""
    keys = ("executable", "realpath", "version", "prefix", "sha256")
    known = {key: wanted[key] for key in keys if wanted.get(key)} if wanted else None
    return judge_values(known, found)


def judge_values(wanted: dict[str, Any] | None, found: dict[str, Any] | None) -> Answer:
    """Values by name, each as it was."""
    if not wanted:
        return NOT_MEASURED
    if found is None:
        return "unknown", "it could not be read", _pairs(wanted, wanted)
    other = [key for key in wanted if wanted[key] != found.get(key)]
    shown = other or list(wanted)
    return ("fail" if other else "pass"), _pairs(found, shown), _pairs(wanted, shown)


def _pairs(values: dict[str, Any], keys: Iterable[str]) -> str:
    return ", ".join(f"{key} {_short(values.get(key))}" for key in keys)


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text[:12] if len(text) == 64 and text.isalnum() else text


def judge_customization(expected: dict[str, Any], found: dict[str, Any]) -> Answer:
    """Which ``sitecustomize`` and ``usercustomize`` Python has loaded, and their content."""
    aims, seen = [], []
    for name in ("sitecustomize", "usercustomize"):
        if not expected.get(name):
            return NOT_MEASURED
        if not found.get(name):
            return "unknown", f"{name} could not be read", loaded(expected[name])
        if found[name].get("raised"):
            return "fail", f"{name} raised: {found[name]['raised']}", loaded(expected[name])
        aims.append(f"{name} {loaded(expected[name])}")
        seen.append(f"{name} {loaded(found[name])}")
    return ("pass" if seen == aims else "fail"), ", ".join(seen), ", ".join(aims)


def loaded(part: dict[str, Any]) -> str:
    """The file that was loaded, with its hash."""
    path = part.get("loaded")
    hashes = {one["path"]: one.get("sha256") for one in part.get("candidates") or []}
    return f"{path} ({_short(hashes.get(path, 'not hashed'))})" if path else "none"


def judge_room(free_bytes: int | None, least_gib: float) -> Answer:
    """Free room, in a file system or in shared memory."""
    aim = f"{least_gib:g} GiB free or more"
    if free_bytes is None:
        return "unknown", "it could not be read", aim
    enough = free_bytes >= least_gib * GIB
    return ("pass" if enough else "fail"), f"{free_bytes / GIB:.1f} GiB free", aim


def judge_caches() -> Answer:
    """Home and caches that the environment names must be writable, or may be made, by this user."""
    named = {name: os.environ[name] for name in CACHES if os.environ.get(name)}
    if not named:
        return NOT_MEASURED
    closed = [f"{name} {path} cannot be written" for name, path in named.items() if _closed(path)]
    said = ", ".join(closed) or f"{', '.join(named)} can be written"
    return ("fail" if closed else "pass"), said, "folders that this user can write"


def _closed(path: str) -> bool:
    there = next((up for up in (Path(path), *Path(path).parents) if up.exists()), Path("/"))
    return not (there.is_dir() and os.access(there, os.W_OK | os.X_OK))


def judge_gpus(
    wanted: list[dict[str, str]] | None, found: list[dict[str, Any]] | None, count: int = 0
) -> Answer:
    """The very cards, under the driver that was measured with; where these are not known, as many
    as are wanted."""
    if not wanted and not count:
        return NOT_MEASURED
    if not wanted:
        aim = f"{count} or more GPUs"
        if found is None:
            return "unknown", "nvidia-smi does not answer", aim
        return ("pass" if len(found) >= count else "fail"), _cards(found), aim
    aim = _cards(wanted)
    if found is None:
        return "unknown", "nvidia-smi does not answer", aim
    gone = sorted({card["uuid"] for card in wanted} - {card["uuid"] for card in found})
    said = _cards(found) + (f", without {', '.join(gone)}" if gone else "")
    return ("fail" if gone or _cards(found) != aim else "pass"), said, aim


def judge_gpu_memory(count: int, found: list[dict[str, Any]] | None) -> Answer:
    """Nobody must hold the memory of the cards."""
    if not count:
        return NOT_MEASURED
    aim = f"at most {GPU_USED_SHARE:.0%} of each card in use"
    used: list[Any] = [card.get("used") for card in found or [{}]]
    if None in used:
        return "unknown", "nvidia-smi does not tell it", aim
    most = max(used)
    return ("pass" if most <= GPU_USED_SHARE else "fail"), f"{most:.0%} of a card in use", aim


def judge_topology(wanted: str | None) -> Answer:
    """The links between the cards, however these are numbered."""
    if not wanted:
        return NOT_MEASURED
    text = ask_smi("topo", "-m")
    found = None if text is None else fingerprint(parse_matrix(text))
    if found is None:
        return "unknown", "nvidia-smi topo -m tells no whole matrix", wanted
    return ("pass" if found == wanted else "fail"), f"links {found}", f"links {wanted}"


def judge_nccl(wanted: dict[str, str] | None) -> Answer:
    """The files of settings that NCCL reads for this user, by their content."""
    if wanted is None:
        return NOT_MEASURED
    found = read_nccl()
    said, aim = (_pairs(one, sorted(one)) or "no nccl.conf" for one in (found, wanted))
    return ("pass" if said == aim else "fail"), said, aim


def read_nccl() -> dict[str, str]:
    """Path -> hash, or why it cannot be read."""
    own = Path(pwd.getpwuid(os.geteuid()).pw_dir, ".nccl.conf")
    found = {}
    for path in (os.environ.get("NCCL_CONF_FILE") or str(own), "/etc/nccl.conf"):
        try:
            found[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except FileNotFoundError:
            continue
        except OSError as error:
            found[path] = str(error.strerror)
    return found


def _cards(cards: list[dict[str, str]]) -> str:
    drivers = ", ".join(sorted({card["driver"] for card in cards}))
    return f"{len(cards)} GPU{'s' * (len(cards) != 1)}, driver {drivers}"


def judge_port(port: int, held: bool, holders: list[str]) -> Answer:
    """Nobody must listen where the server will."""
    aim = f"port {port} free"
    if not held:
        return "pass", "free", aim
    return "fail", f"held by {'; '.join(holders) or 'a process that this user cannot see'}", aim


def holder(seen: dict[str, Any]) -> str:
    """A process that listens, in words: number, command, unit."""
    try:
        words = Path(f"/proc/{seen['pid']}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    command = b" ".join(words).decode("utf-8", "replace").strip()[:120]
    units = [part for part in (seen["cgroup"] or "").split("/") if part.endswith(".service")]
    return f"pid {seen['pid']} ({command})" + (f", unit {units[-1]}" if units else "")


def read_gpus(wait_for: int) -> list[dict[str, Any]] | None:
    """The cards; waits a while until there are as many as expected, and their memory is free.

    ``used``: the share of its memory in use. ``None``: no answer.
    """
    deadline = time.monotonic() + (GPUS_WAIT_S if wait_for else 0)
    while True:
        cards = ask_driver()
        there = cards is not None and len(cards) >= wait_for
        busy = [card for card in cards or [] if (card["used"] or 0) > GPU_USED_SHARE]
        if (there and not busy) or time.monotonic() >= deadline:
            return cards
        time.sleep(1)


def ask_smi(*words: str) -> str | None:
    """What ``nvidia-smi`` says; ``None`` without it, or when it fails."""
    program = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path="/usr/bin:/usr/sbin")
    if program is None:
        return None
    try:
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def ask_driver() -> list[dict[str, Any]] | None:
    """One question about all cards."""
    fields = "uuid,driver_version,memory.used,memory.total"
    text = ask_smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits") or ""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
    return [
        {"uuid": row[0], "driver": row[1], "used": _share(row[2], row[3])}
        for row in rows
        if len(row) == 4
    ] or None


def _share(part: str, whole: str) -> float | None:
    return int(part) / int(whole) if part.isdigit() and whole.isdigit() and int(whole) else None


def read_serving(expected: dict[str, Any], thorough: bool) -> dict[str, Any]:
    """What the interpreter finds. The content of a file is read where the measured hash is known
    and its place, size or time is another than then; with ``thorough`` in any case."""
    options = expected["options"]
    most = options["hash_up_to_bytes"] if thorough else 0
    facts: dict[str, Any] = read_all({**options, "hash_up_to_bytes": most})["facts"]
    files = facts.get("files") or {}
    for path, wanted in expected["facts"].get("files", {}).items():
        found = files.get(path) or {}
        same_size = found.get("size_bytes") == wanted.get("size_bytes")
        if wanted.get("sha256") and same_size and not is_unchanged(wanted, found):
            again = {"files": [path], "hash_up_to_bytes": options["hash_up_to_bytes"]}
            files[path] = read_files(again)[path]
    return facts


def judge(expected: dict[str, Any], thorough: bool = False) -> list[dict[str, str]]:
    """Every finding: name, level, status, found, wanted; what is off is not looked at."""
    levels: dict[str, str] = {n: v for n, v in expected["levels"].items() if v != "off"}
    facts = read_serving(expected, thorough)
    cards = None
    if count_of(expected) and ("gpus" in levels or "gpu_memory" in levels):
        cards = read_gpus(0 if thorough else count_of(expected))
    findings = []
    for name, level in levels.items():
        status, found, wanted = answer(name, expected, facts, cards)
        findings.append(
            {"name": name, "level": level, "status": status, "found": found, "wanted": wanted}
        )
    return findings


def count_of(expected: dict[str, Any]) -> int:
    """How many cards are waited for: those that were measured with, or those asked for."""
    return len(expected["gpus"]) or int(expected.get("gpu_count") or 0)


def answer(name: str, expected: dict[str, Any], facts: dict[str, Any], cards: Any) -> Answer:
    """The answer to one question of the guard. Raises ``KeyError`` for one it does not know."""
    wanted = expected["facts"]
    if name in ("model", "draft"):
        path = expected["roles"].get(name)
        return judge_file(wanted.get("files", {}).get(path), (facts.get("files") or {}).get(path))
    if name == "interpreter":
        return judge_interpreter(wanted.get("python"), facts.get("python"))
    if name == "sitecustomize":
        return judge_customization(wanted, facts)
    if name == "packages":
        return judge_values(wanted.get("packages"), facts.get("packages"))
    if name == "caches":
        return judge_caches()
    if name == "shm":
        return judge_room((facts.get("shm") or {}).get("free_bytes"), expected["least_shm_gib"])
    if name == "disk":
        free = [room["free_bytes"] for room in (facts.get("disks") or {}).values()]
        return judge_room(min(free, default=None), expected["least_disk_gib"])
    if name == "gpus":
        return judge_gpus(expected["gpus"], cards, count_of(expected))
    if name == "gpu_memory":
        return judge_gpu_memory(count_of(expected), cards)
    if name == "topology":
        return judge_topology(expected.get("topology"))
    if name == "nccl":
        return judge_nccl(expected.get("nccl"))
    port = {"port": expected["port"]}[name]
    return judge_port(port, bool(sockets_on(port)), [holder(one) for one in listeners(port)])


def say(findings: list[dict[str, str]], took_s: float) -> int:
    """Print what was found; 20 when something failed that must not."""
    bad = [one for one in findings if one["status"] in ("fail", "unknown")]
    for one in bad:
        print("guard: {level}: {name}: {found}; wanted: {wanted}".format(**one))
    good = sum(one["status"] == "pass" for one in findings)
    rest = len(findings) - good - len(bad)
    print(f"guard: {good} good, {len(bad)} not, {rest} not measured, in {took_s:.2f} s")
    return FAILED if any(one["level"] == "fail" for one in bad) else 0


def before_start(words: list[str]) -> int:
    """Look, and say what is not as expected; ``words``: the path of the expectations."""
    began = time.monotonic()
    try:
        findings = judge(json.loads(Path(words[0]).read_text()))
    except (OSError, ValueError, KeyError) as error:
        return without_expectations(words[0], error)
    return say(findings, time.monotonic() - began)


def drift(words: list[str]) -> int:
    """Print all findings; ``words``: the expectations themselves."""
    try:
        findings = judge(json.loads(words[0]), thorough=True)
    except (OSError, ValueError, KeyError) as error:
        return without_expectations(words[0], error)
    print("\n" + json.dumps({"probe": "guard", "findings": findings}))
    return 0


def without_expectations(given: str, error: Exception) -> int:
    """Say what is wrong with them."""
    print(f"guard: fail: expectations {given[:200]}: {type(error).__name__}: {error}")
    return NO_EXPECTATIONS


#: What the one file does on its host.
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "before-start": before_start,
    "ready": ready,
    "after-boot": after_boot,
    "drift": drift,
}


def main() -> int:
    """Do what the command line asks; the exit code."""
    name, *words = sys.argv[1:] or [""]
    command = COMMANDS.get(name)
    if command is None or not words:
        print(f"guard: {name or 'nothing'} was asked, it knows: {', '.join(COMMANDS)}")
        return NO_COMMAND
    return command(words)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a request that hangs in its thread must not hold the unit's start
