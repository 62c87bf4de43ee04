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

from __future__ import annotations

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

from runbook.redaction import is_secret

LIMITS = {
    "nofile": resource.RLIMIT_NOFILE,
    "memlock": resource.RLIMIT_MEMLOCK,
    "stack": resource.RLIMIT_STACK,
    "nproc": resource.RLIMIT_NPROC,
    "core": resource.RLIMIT_CORE,
}
FLAGS = ("isolated", "ignore_environment", "no_user_site", "no_site", "safe_path")
CHUNK_BYTES = 1 << 20
NVCC_S = 30
#: Where servers of this kind compile, load and keep what they need later.
CACHES = (
    "HOME",
    "XDG_CACHE_HOME",
    "HF_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
)


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
    if is_secret(name, value):
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
    found = os.statvfs(_nearest(path))
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


def read_toolkit(options: dict[str, Any]) -> dict[str, Any]:
    """The CUDA toolkit that ``CUDA_HOME`` (else ``CUDA_PATH``) names: kernels are compiled with its
    nvcc, whatever ``PATH`` finds. Of both: program and release, ``null`` where there is none."""
    named = [name for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folder = os.environ[named[0]] if named else ""
    own = os.path.join(folder, "bin", "nvcc")
    there = own if folder and os.access(own, os.X_OK) else None
    on_path = shutil.which("nvcc")
    return {
        "variable": named[0] if named else "",
        "folder": folder,
        "nvcc": there,
        "release": _release_of(there),
        "on_path": on_path,
        "on_path_release": _release_of(on_path),
    }


def _release_of(nvcc: str | None) -> str | None:
    if nvcc is None:
        return None
    try:
        said = subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, timeout=NVCC_S).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(rb"release (\d+\.\d+)", said)
    return found[1].decode() if found else None


def read_folders(options: dict[str, Any]) -> dict[str, Any]:
    """Folders that the environment names: those of ``LD_LIBRARY_PATH`` and whether they are there;
    home, caches and temporary folder, and whether this user may write and execute in them."""
    libraries = [one for one in os.environ.get("LD_LIBRARY_PATH", "").split(":") if one]
    caches = {name: os.environ[name] for name in CACHES if os.environ.get(name)}
    caches["TMPDIR"] = os.environ.get("TMPDIR") or "/tmp"
    return {
        "libraries": {path: os.path.isdir(path) for path in libraries},
        "caches": {
            name: {"path": path, "writable": not is_closed(path), "noexec": _is_noexec(path)}
            for name, path in caches.items()
        },
    }


def is_closed(path: str) -> bool:
    """Whether this user can neither write into a folder nor make it."""
    there = _nearest(path)
    return not (os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK))


def _is_noexec(path: str) -> bool:
    return bool(os.statvfs(_nearest(path)).f_flag & os.ST_NOEXEC)


def _nearest(path: str) -> str:
    """``path``, or the nearest folder above it that is there."""
    path = os.path.abspath(path)
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


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
    "toolkit": read_toolkit,
    "folders": read_folders,
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


if __name__ == "__main__":
    print("\n" + json.dumps(read_all(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})))
