"""One worker at a time on one unit of one host.

The lock is a file below ``/run``, so a reboot clears it. It names the process that holds it; one
that is gone on this machine loses it to the next, any other has to be told by a person.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runbook.errors import Blocked
from runbook.hosts.base import Host
from runbook.install_service.places import LOCKS
from runbook.run import process_mark

_SWAP = """
import fcntl, os, sys
path, expected, new = sys.argv[1:]
def swap():
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.path.dirname(path) + "/guard", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        found = open(path).read() if os.path.exists(path) else ""
        if found == expected:
            if new:
                with open(path + ".new", "w") as file:
                    file.write(new)
                os.replace(path + ".new", path)
            elif found:
                os.unlink(path)
    return found
try:
    print(swap(), end="")
except OSError as error:
    sys.exit(f"{error.filename}: {error.strerror}")
"""


@contextmanager
def locked(host: Host, unit: str) -> Iterator[None]:
    """Hold the unit. Raises ``Blocked`` naming the holder."""
    path = f"{LOCKS}/{unit}.lock"
    mine = _mark()
    found = _swap(host, path, "", mine)
    if found and _is_gone(found):
        found = "" if _swap(host, path, found, mine) == found else found
    if found:
        raise Blocked(
            f"{unit} is being changed by {found}",
            "one at a time",
            f"wait for it; if it is gone for good, remove {path} on the host",
        )
    try:
        yield
    finally:
        _swap(host, path, mine, "")


def _swap(host: Host, path: str, expected: str, new: str) -> str:
    """Put ``new`` where ``expected`` stands (empty: nothing); return what stood there."""
    return host.run_script("locking the unit", _SWAP, path, expected, new)


def _mark() -> str:
    return json.dumps({"process": process_mark(os.getpid()), "namespace": _namespace()})


def _is_gone(found: str) -> bool:
    """Whether the holder ran on this machine, where it can be seen, and is gone."""
    try:
        holder = json.loads(found)
        process, namespace = str(holder["process"]), holder["namespace"]
        pid, _, _ = process.partition(":")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        here = process.endswith(f":{boot}") and namespace == _namespace()
        return here and process_mark(int(pid)) != process
    except (ValueError, KeyError, TypeError):
        return False


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())
