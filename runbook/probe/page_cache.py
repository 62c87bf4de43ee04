"""Drops the page cache of files, so that the next start reads them from where they lie.

usage: page_cache.py PATH... Prints JSON: ``files``, ``bytes``, ``resident_bytes`` (what is still in
memory after it, null where this user cannot see that), ``failed`` (files, with the reason).

``posix_fadvise`` a file, not the host's whole cache. Pages that a running process maps, that are
not written yet or that lie in a tmpfs stay: stop the server first. Caches beneath the kernel's, of
a disk, of a file server or of ZFS, are not touched; nor are programs and compiled kernels.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

#: So much of a file is looked at in one go.
WINDOW = 2**30
#: ``mincore`` tells of a page by the lowest bit of its byte.
LOW_BIT = bytes(value & 1 for value in range(256))
#: One part of several, as llama.cpp names them: the path of one stands for all.
PART = re.compile(r"-\d{5}-of-(\d{5})(\.\w+)$")


def files_of(paths: Iterable[str]) -> Iterator[str]:
    """Every file below the paths, links followed; the other parts of one that is split."""
    for path in paths:
        part = PART.search(path)
        if Path(path).is_dir():
            for folder, _, names in os.walk(path, followlinks=True):
                yield from (f"{folder}/{name}" for name in names)
        elif part:
            for number in range(1, int(part[1]) + 1):
                yield f"{path[: part.start()]}-{number:05d}-of-{part[1]}{part[2]}"
        else:
            yield path


def drop(paths: Iterable[str]) -> dict[str, Any]:
    """Drop what the kernel holds of the files, and tell what stayed."""
    found: dict[str, Any] = {"files": 0, "bytes": 0, "resident_bytes": 0, "failed": []}
    for path in sorted({os.path.realpath(file) for file in files_of(paths)}):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            found["failed"].append(f"{path}: {error.strerror}")
            continue
        try:
            size = os.fstat(descriptor).st_size
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            stayed = resident_bytes(descriptor, size)
        except (OSError, ValueError) as error:
            found["failed"].append(f"{path}: {error}")
            continue
        finally:
            os.close(descriptor)
        found["files"] += 1
        found["bytes"] += size
        known = found["resident_bytes"] is not None and stayed is not None
        found["resident_bytes"] = found["resident_bytes"] + stayed if known else None
    return found


def resident_bytes(descriptor: int, size: int) -> int | None:
    """How much of a file is in memory; ``None`` where the kernel tells that to its owner alone."""
    if os.geteuid() not in (0, os.fstat(descriptor).st_uid):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    number = ctypes.c_int
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
    pages = 0
    for start in range(0, size, WINDOW):
        length = min(WINDOW, size - start)
        address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
        if address in (None, ctypes.c_void_p(-1).value):
            return None
        try:
            seen = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
            at, most = ctypes.c_void_p(address), ctypes.c_size_t(length)
            if libc.mincore(at, most, seen):
                return None
            pages += bytes(seen).translate(LOW_BIT).count(1)
        finally:
            libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(length))
    return min(size, pages * mmap.PAGESIZE)


def main() -> None:
    """Print what was dropped of the paths of the command line."""
    print(json.dumps(drop(sys.argv[1:])))


if __name__ == "__main__":
    main()
