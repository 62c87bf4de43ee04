"""What a box needs of this machine: why none can be made, and what it would not see by itself."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path

from runbook.errors import BadInput
from runbook.hosts.base import COMMAND_ENV
from runbook.hosts.local import execute_here

SYSTEMD = "/lib/systemd/systemd"
NAMESPACES = ("--mount", "--uts", "--ipc", "--pid")

_PROGRAMS = {
    SYSTEMD: "systemd",
    "systemctl": "systemd",
    "journalctl": "systemd",
    "dbus-daemon": "dbus",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
}

#: Folders of the box itself; a bind over one of them, or over a parent, would hide them.
_LAID_OVER = ("/tmp", "/run", "/dev", "/proc", "/sys")
_ITS_OWN = ("/etc/systemd/system", "/var/log/journal", "/usr/lib", *_LAID_OVER)


def cgroup2_folder() -> Path | None:
    """Where cgroup2 is mounted, ``None`` where it is not."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), folder))
    return None


def why_no_box(state: Path) -> str | None:
    """``None`` where a box can be made with its files in ``state``, else what is missing and what
    to do about it. Tries the real thing: namespaces, a cgroup, an overlay on that file system."""
    if os.geteuid() != 0:
        return "it needs root: run as root (sudo)"
    path = COMMAND_ENV["PATH"]
    for program, package in _PROGRAMS.items():
        if shutil.which(program, path=path) is None:
            return f"{program} is missing: apt-get install {package}"
    folder = cgroup2_folder()
    if folder is None:
        return "cgroup2 is not mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup"
    try:
        trial = folder / f"runbook-trial-{uuid.uuid4().hex}"
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        said = error.strerror
        return f"no cgroup in {folder} ({said}): make it writable (containers: --privileged)"
    return _why_no_namespaces() or _why_no_overlay(state)


def _why_no_namespaces() -> str | None:
    argv = ["unshare", *NAMESPACES, "--cgroup", "--fork", "--mount-proc", "true"]
    done = execute_here(argv, b"", 20, COMMAND_ENV)
    if done.code == 0:
        return None
    return f"no private namespaces ({done.err.strip()}): allow them (containers: --privileged)"


_TRY_OVERLAY = """
set -e
cd "$1"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
rm -rf root/etc/systemd/system
mkdir root/etc/systemd/system
"""


def _why_no_overlay(state: Path) -> str | None:
    parent = next(folder for folder in (state, *state.parents) if folder.is_dir())
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=parent) as trial:
        argv = ["unshare", "--mount", "sh", "-c", _TRY_OVERLAY, "sh", trial]
        done = execute_here(argv, b"", 20, COMMAND_ENV)
    if done.code == 0:
        return None
    said = done.err.strip().partition("\n")[0].replace(f"{trial}/", "")
    return f"no overlay with its files in {state} ({said}): use a folder on ext4, xfs or tmpfs"


def visible(paths: Iterable[Path]) -> list[tuple[Path, Path]]:
    """(source, target) for each path: what it resolves to, parents first, then its other names.

    A path that holds the box's own folders is left out: the overlay shows it anyway.
    """
    pairs = set()
    for path in paths:
        if not path.exists():
            raise BadInput(
                f"{path} does not exist", "a path to show in the box", "correct it, or make it"
            )
        source = path.resolve()
        pairs |= {(source, target) for target in (path.absolute(), source)}
    shown = (pair for pair in pairs if not _hides(pair[1]))
    return sorted(shown, key=lambda pair: (pair[0] != pair[1], pair[1]))


def not_shown(path: Path) -> bool:
    """Whether a box does not see ``path`` by itself: under ``/tmp`` and the like, or on another
    file system than ``/``."""
    names = (path.absolute(), path.resolve())
    laid_over = any(name.is_relative_to(folder) for name in names for folder in _LAID_OVER)
    return laid_over or path.stat().st_dev != Path("/").stat().st_dev


def _hides(target: Path) -> bool:
    return any(Path(own).is_relative_to(target) for own in _ITS_OWN)
