"""File operations as they run on a host: this text is sent there and executed by its Python.

Standard library of Python 3.8 and later only. ``argv`` is the operation and its path; content
goes through standard input and, in base64, standard output, so that no byte is touched.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

#: Ends the names of files that are being written, as those of ``runbook.atomic``.
SUFFIX = ".half-written"


def write(path: str, mode: str, length: str) -> None:
    """Replace ``path`` by standard input, whole or not at all, and on disk before this ends.

    ``length``: bytes that must come; a sender that ended in the middle has sent fewer.
    """
    target = Path(path)
    descriptor, name = tempfile.mkstemp(SUFFIX, f".{target.name}.", target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), int(mode, 8))
            shutil.copyfileobj(sys.stdin.buffer, file)
            if file.tell() != int(length):
                raise OSError(f"{file.tell()} of {length} bytes came, the old file stays")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink()
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Put the entries of a folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: str) -> None:
    """Print the content in base64, nothing (not even a newline) when there is no such file."""
    with contextlib.suppress(FileNotFoundError):
        print(base64.b64encode(Path(path).read_bytes()).decode())


def remove(path: str) -> None:
    """Remove a file, a link, or a folder with all in it; absent is fine."""
    target = Path(path)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        target.unlink()
    else:
        return
    sync_folder(target.parent)


def make_dir(path: str, mode: str) -> None:
    """Make a folder and its parents, each on disk; a folder that is there keeps its mode."""
    target = Path(path)
    if target.is_dir():
        return
    if not target.parent.is_dir():
        make_dir(str(target.parent), "755")
    target.mkdir()
    target.chmod(int(mode, 8))
    sync_folder(target.parent)


def exists(path: str) -> None:
    """Print whether there is anything of that name, a dangling link too."""
    print(json.dumps(os.path.lexists(path)))


def list_dir(path: str) -> None:
    """Print the sorted names in a folder, ``null`` when there is no such folder."""
    try:
        print(json.dumps(sorted(entry.name for entry in Path(path).iterdir())))
    except FileNotFoundError:
        print("null")


def main(argv: list[str]) -> None:
    """Run one operation; what a user can cause ends with 1 and one line."""
    operations: dict[str, Callable[..., None]] = {
        "write": write,
        "read": read,
        "remove": remove,
        "make_dir": make_dir,
        "exists": exists,
        "list": list_dir,
    }
    try:
        operations[argv[0]](*argv[1:])
    except OSError as error:
        sys.exit(f"{argv[1]}: {error.strerror or error}")


if __name__ == "__main__":
    main(sys.argv[1:])
