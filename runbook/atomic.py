"""Files on this machine, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

#: Ends the names of files that are being written.
SUFFIX = ".half-written"


def write(path: Path, data: str | bytes, mode: int = 0o600) -> None:
    """Write ``data`` to ``path``: temporary file beside it, fsync, rename, fsync of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = data.encode() if isinstance(data, str) else data
    descriptor, name = tempfile.mkstemp(SUFFIX, f".{path.name}.", path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # that of a descriptor names no file
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
