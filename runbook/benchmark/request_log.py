"""``requests.jsonl``: one line a request, written as it ends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from runbook.cells import Cell
from runbook.load.records import Record

_STEP_BYTES = 65536


def line_of(cell: Cell, record: Record) -> dict[str, Any]:
    """A request with the cell it belongs to."""
    place = {
        "config": cell.config,
        "life": cell.life,
        "block": cell.block,
        "concurrency": cell.concurrency,
        "cell": f"life{cell.life}-c{cell.concurrency}",
    }
    return place | asdict(record)


class RequestLog:
    """Appends whole lines; what a killed writer left of a last line is cut off at opening."""

    def __init__(self, path: Path) -> None:
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

    def append(self, value: Mapping[str, Any]) -> None:
        """Write one line; it is with the kernel when this returns."""
        line = orjson.dumps(value) + b"\n"
        while line:
            line = line[self._file.write(line) :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
