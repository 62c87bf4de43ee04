"""Working folders in the temporary directory, and what killed processes left of them.

A folder is locked (``flock``) by the process that made it. The kernel drops the lock with the
process, however it ends, in whatever process namespace: a folder that nobody locks has no owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: How the names of working folders begin. Those of ``runbook/owning/owner.py`` hold credentials.
PREFIXES = tuple(f"runbook-{kind}-" for kind in ("kernel", "ssh", "run", "owner"))

#: Where they are made beside ``TMPDIR``: an ssh socket needs a short path, credentials memory.
_PARENTS = ("/tmp", "/dev/shm")


@contextmanager
def folder(prefix: str, parent: str | None = None) -> Iterator[Path]:
    """A new folder of one of ``PREFIXES`` in ``parent`` (the temporary directory), locked until it
    is removed at the end. Raises ``OSError`` where none can be made."""
    import tempfile

    while True:
        with (
            tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name,
            contextlib.ExitStack() as held,
        ):
            try:
                held.enter_context(_locked(name))
            except BlockingIOError:  # taken for left over in the moment before its lock
                continue
            except OSError:  # a file system may know no locks
                pass
            if Path(name).exists():
                yield Path(name)
                return


def clear() -> None:
    """Remove the working folders of dead processes of this user. Costs one look at each parent
    folder; says nothing and raises nothing: who starts next tries again."""
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    for parent in dict.fromkeys([*filter(os.path.isabs, named), *_PARENTS]):
        with contextlib.suppress(OSError), os.scandir(parent) as entries:
            found = [entry.path for entry in entries if entry.name.startswith(PREFIXES)]
            for path in found:
                _remove_unowned(path)


def _remove_unowned(path: str) -> None:
    with contextlib.suppress(OSError), _locked(path):
        if not _answers(f"{path}/socket"):
            _remove(path)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold a folder of this user. Raises ``BlockingIOError`` when another process does, ``OSError``
    where it is another user's, no folder, or a link to one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(path)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _answers(path: str) -> bool:
    """Whether an ssh client listens there: versions before made its folder without a lock."""
    import socket

    if not Path(path).is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(0.2)
        try:
            client.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True


def _remove(path: str) -> None:
    """Remove a folder; what has no rights, like an overlay's own folders, is given them first."""
    import shutil

    try:
        shutil.rmtree(path)
    except PermissionError:
        Path(path).chmod(stat.S_IRWXU)
        for above, names, _ in os.walk(path):
            for below in (Path(above, name) for name in names):
                if not below.is_symlink():
                    below.chmod(stat.S_IRWXU)
        shutil.rmtree(path)
