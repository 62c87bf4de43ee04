"""What a box needs of this machine: why none can be made, and what it would not see by itself."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from runbook.errors import BadInput
from runbook.hosts.base import COMMAND_ENV
from runbook.hosts.local import execute_here

SYSTEMD = "/lib/systemd/systemd"
NAMESPACES = ("--mount", "--uts", "--ipc", "--pid")

#: What makes namespaces an ordinary user's own, where the kernel lets it.
_AS_USER = ("--user", "--map-root-user")
_DELEGATED = "systemd-run --user --scope --property=Delegate=yes -- runbook ..."

_PROGRAMS = {
    SYSTEMD: "systemd",
    "systemctl": "systemd",
    "journalctl": "systemd",
    "dbus-daemon": "dbus",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "findmnt": "util-linux",
}

#: Folders of the box itself; a bind over one of them, or over a parent, would hide them.
_LAID_OVER = ("/tmp", "/run", "/dev", "/proc", "/sys")
_ITS_OWN = ("/etc/systemd/system", "/var/log/journal", "/usr/lib", *_LAID_OVER)


def is_root() -> bool:
    """Whether the box is root's. An ordinary user's has one user id and a root of its own."""
    return os.geteuid() == 0


def namespaces() -> tuple[str, ...]:
    """What ``unshare`` makes for a box of this user."""
    return NAMESPACES if is_root() else (*_AS_USER, *NAMESPACES)


def cgroup2_folder() -> Path | None:
    """Where a box makes its cgroup: for root where cgroup2 is mounted, else in the cgroup of this
    process, which must be delegated to its user. ``None`` where cgroup2 is not mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, *_ = line.split()
        if kind == "cgroup2":
            mounted = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), folder)
            return Path(mounted if is_root() else mounted + _own_cgroup())
    return None


def _own_cgroup() -> str:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next((line[3:].rstrip("/") for line in lines if line.startswith("0::/")), "")


def why_no_box(state: Path) -> str | None:
    """``None`` where a box can be made with its files in ``state``, else what is missing and what
    to do about it. Tries the real thing: namespaces, a cgroup, an overlay on that file system."""
    path = COMMAND_ENV["PATH"]
    for program, package in _PROGRAMS.items():
        if shutil.which(program, path=path) is None:
            return f"{program} is missing: apt-get install {package}"
    missing = [_why_no_namespaces(), _why_no_cgroup(), _why_no_files(state)]
    return "; ".join(reason for reason in missing if reason) or None


def _why_no_cgroup() -> str | None:
    folder = cgroup2_folder()
    if folder is None:
        return "cgroup2 is not mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup"
    try:
        trial = folder / f"runbook-trial-{uuid.uuid4().hex}"
        trial.mkdir()
        trial.rmdir()
        if os.access(folder / "cgroup.procs", os.W_OK):
            return None
        said = "its processes cannot be moved"
    except OSError as error:
        said = error.strerror or str(error)
    do = "make it writable (containers: --privileged)"
    if not is_root():
        do = f"run in a cgroup that is delegated to you: {_DELEGATED}"
    return f"no cgroup in {folder} ({said}): {do}"


def _why_no_namespaces() -> str | None:
    """Tries them, with a mount: some kernels give an ordinary user namespaces without rights."""
    mount = ("sh", "-c", "mount -t proc proc /proc && mount -t tmpfs tmpfs /tmp")
    argv = ["unshare", *namespaces(), "--cgroup", "--fork", *mount]
    done = execute_here(argv, b"", 20, COMMAND_ENV)
    if done.code == 0:
        return None
    said = done.err.strip().partition("\n")[0]
    switched_off = [] if is_root() else list(_switched_off(Path("/proc/sys")))
    do = "; ".join(switched_off) or "allow them (containers: --privileged)"
    return f"no private namespaces ({said}): {do}" + ("" if is_root() else ", or run as root")


#: Settings that keep ordinary users from namespaces: name, the value that does, one that does not.
_SWITCHES = (
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)


def _switched_off(settings: Path) -> Iterator[str]:
    """The command for each setting below ``settings`` that is in the way."""
    for name, off, on in _SWITCHES:
        file = settings / name.replace(".", "/")
        if file.exists() and file.read_text().strip() == off:
            yield f"{name} is {off}: sudo sysctl -w {name}={on}"


_TRY_OVERLAY = """
set -e
cd "$1"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
rm -rf root/etc/systemd/system
mkdir root/etc/systemd/system
"""


def _why_no_files(state: Path) -> str | None:
    """An overlay, for root; an ordinary user's box needs a folder that can be written."""
    parent = next(folder for folder in (state, *state.parents) if folder.is_dir())
    try:
        with tempfile.TemporaryDirectory(prefix=".trial-", dir=parent) as trial:
            if not is_root():
                return None
            argv = ["unshare", "--mount", "sh", "-c", _TRY_OVERLAY, "sh", trial]
            done = execute_here(argv, b"", 20, COMMAND_ENV)
    except OSError as error:
        return f"no files can be made in {parent} ({error.strerror}): use another folder"
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
