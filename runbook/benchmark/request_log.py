"""``requests.jsonl``: one line a request; beside it ``answers.jsonl.gz`` with what was answered.

Both are written as a request ends: a killed writer loses what was in flight, no more.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from runbook import atomic
from runbook.cells import Cell
from runbook.load.records import Record

_STEP_BYTES = 65536
#: Of a record, what goes into the packed file alone.
_TEXTS = ("text", "reasoning", "calls")
_GZIP = 16 + zlib.MAX_WBITS


def line_of(cell: Cell, record: Record) -> dict[str, Any]:
    """A request with the cell it belongs to, and the times that follow from its stamps."""
    place = {
        "config": cell.config,
        "life": cell.life,
        "block": cell.block,
        "concurrency": cell.concurrency,
        "cell": cell.mark,
    }
    times = {
        "ttft_ms": record.ttft_ms,
        "ttfat_ms": record.ttfat_ms,
        "tpot_ms": record.tpot_ms,
        "chunk_gap_ms": record.chunk_gap_ms,
        "e2e_ms": record.e2e_ms,
    }
    return place | asdict(record) | times


class RequestLog:
    """Appends whole lines; what a killed writer left of a last line is cut off at opening."""

    def __init__(self, path: Path) -> None:
        self._answers = PackedLog(path.with_name("answers.jsonl.gz"))
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
        self._repair()

    def _repair(self) -> None:
        size = end = self._file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _STEP_BYTES)
            self._file.seek(start)
            newline = self._file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            self._file.truncate(end)

    def record(self, cell: Cell, record: Record) -> None:
        """One request: what was measured here, what was answered in the packed file."""
        line = line_of(cell, record)
        texts = {name: line.pop(name) for name in _TEXTS}
        place = {name: line[name] for name in ("config", "life", "cell", "prompt_id", "end_s")}
        self._answers.append(place | texts)
        self.append(line)

    def append(self, value: Mapping[str, Any]) -> None:
        """Write one line; it is with the kernel when this returns."""
        line = orjson.dumps(value) + b"\n"
        while line:
            line = line[self._file.write(line) :]

    def close(self) -> None:
        """Close both files."""
        self._answers.close()
        self._file.close()


class PackedLog:
    """Appends lines to a gzip file, each with the kernel when ``append`` returns.

    Each writer adds a member of its own, so the file is one for ``zcat`` all the time, but for
    the trailer of the last one. What a killed writer left is made whole at opening.
    """

    def __init__(self, path: Path) -> None:
        text, torn = _unpack(path)
        if torn:
            packer = zlib.compressobj(wbits=_GZIP)
            whole = text[: text.rfind(b"\n") + 1]
            atomic.write(path, packer.compress(whole) + packer.flush())
        self._path = path
        self._packer: zlib._Compress | None = None

    def append(self, value: Mapping[str, Any]) -> None:
        """Write one line."""
        if self._packer is None:
            self._packer = zlib.compressobj(wbits=_GZIP)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "ab")
        packed = self._packer.compress(orjson.dumps(value) + b"\n")
        self._file.write(packed + self._packer.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        """End the member and close the file."""
        if self._packer is not None:
            self._file.write(self._packer.flush())
            self._file.close()
            self._packer = None


def read_answers(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of ``answers.jsonl.gz``, also of one that is being written or was cut off."""
    text, _ = _unpack(path)
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        yield orjson.loads(line)


def _unpack(path: Path) -> tuple[bytes, bool]:
    """What a file of gzip members holds, and whether the last one is torn."""
    packed = path.read_bytes() if path.is_file() else b""
    found: list[bytes] = []
    while packed:
        unpacker = zlib.decompressobj(wbits=_GZIP)
        try:
            found.append(unpacker.decompress(packed))
        except zlib.error:
            return b"".join(found), True
        if not unpacker.eof:
            return b"".join(found), True
        packed = unpacker.unused_data
    return b"".join(found), False
