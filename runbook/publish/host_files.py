"""Files of an operator on a host: links followed, mode and owner kept, edits kept beside."""

from __future__ import annotations

import posixpath
from collections.abc import Collection

from runbook.errors import BadInput
from runbook.hosts.base import Host


def resolve(host: Host, path: str) -> str:
    """The file behind the absolute ``path``, links followed; it need not exist."""
    if not path.startswith("/"):
        raise BadInput(
            f"{path} is no absolute path",
            "a path that begins at /",
            "correct record in the parameters",
        )
    return host.run("realpath", "-m", "--", path).out.removesuffix("\n")


def keep_copy(host: Host, path: str, content: bytes) -> str:
    """Keep ``content`` beside ``path`` under a free name, which is returned."""
    folder, name = posixpath.split(path)
    kept = free_name(name, host.list(folder) or [])
    host.write(f"{folder}/{kept}", content, 0o600)
    return kept


def replace(host: Host, path: str, content: bytes, mode_if_new: int = 0o644) -> None:
    """Write ``content`` whole or not at all, with the mode and owner the file has."""
    if not host.exists(path):
        host.make_dir(posixpath.dirname(path))
        host.write(path, content, mode_if_new)
        return
    mode, owner = host.run("stat", "-c", "%a %u:%g", "--", path).out.split()
    host.write(path, content, int(mode, 8))
    host.run("chown", "--", owner, path)


def free_name(name: str, taken: Collection[str]) -> str:
    """The first of ``<name>.orig-1``, ``-2``, ... that is not taken."""
    number = 1
    while f"{name}.orig-{number}" in taken:
        number += 1
    return f"{name}.orig-{number}"
