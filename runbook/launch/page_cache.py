"""The page cache of a model's files where its server runs: dropped before a cold start."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runbook import probe
from runbook.errors import HostFailed
from runbook.hosts.base import Done

#: A start is cold where no more than this share of the files stayed in memory.
COLD_SHARE = 0.01
#: Some terabytes are looked through in minutes.
TIMEOUT_S = 1800.0

#: Runs a Python program with arguments where the server runs.
RunProgram = Callable[[str, Sequence[str], float], Done]


@dataclass(frozen=True)
class Dropped:
    """What was dropped; ``resident_bytes``: what stayed in memory, ``None`` where nobody tells.
    ``failed``: files that could not be dropped, with the reason."""

    files: int
    bytes: int
    resident_bytes: int | None
    failed: tuple[str, ...]

    @property
    def why_not_cold(self) -> str | None:
        """Why a start after it is no cold one, ``None`` where it is."""
        if self.failed:
            return f"not dropped: {'; '.join(self.failed)[:500]}"
        if not self.files:
            return "the model has no files"
        if self.resident_bytes is None:
            return "whether its files are still in memory is not told to this user"
        if self.resident_bytes > COLD_SHARE * self.bytes:
            share = self.resident_bytes / self.bytes
            return f"{share:.0%} of its files stayed in memory (mapped by a process, or a tmpfs)"
        return None

    @property
    def said(self) -> str:
        """What was dropped, in words."""
        return f"{self.files} file{'s' * (self.files != 1)}, {self.bytes / 1e9:.3g} GB"


def drop_page_cache(run: RunProgram, paths: Sequence[str]) -> Dropped:
    """Drop the page cache of model files and folders. Raises ``HostFailed``."""
    done = run(probe.source("page_cache"), paths, TIMEOUT_S)
    try:
        told = json.loads(done.out)
        return Dropped(**{**told, "failed": tuple(told["failed"])})
    except (ValueError, TypeError, KeyError):
        raise HostFailed(
            f"the page cache of {' '.join(paths)} could not be dropped: {done.err[-500:]}",
            "an answer of the program that drops it",
            "see what it says; without a cold start its time stays unknown",
        ) from None
