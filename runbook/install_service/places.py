"""Where the files of a service lie on its host, and what a generation is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNITS = "/etc/systemd/system"
STATE = "/var/lib/golive-runbook"
LOCKS = "/run/golive-runbook"

#: Generations kept besides the current one.
KEPT = 5

#: Lines of a journal that are read into a record: enough for all that an install and its proofs
#: do, bounded on a host that has logged for months.
JOURNAL_LINES = 20000


def digest(text: str) -> str:
    """SHA-256 of a text, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Places:
    """The paths that belong to one unit."""

    unit: str

    @property
    def unit_file(self) -> str:
        """What systemd reads."""
        return f"{UNITS}/{self.unit}"

    @property
    def root(self) -> str:
        """Everything else the runbook keeps for this unit on the host."""
        return f"{STATE}/{self.unit}"

    @property
    def generations(self) -> str:
        """One folder a generation, named by its number."""
        return f"{self.root}/generations"

    @property
    def current(self) -> str:
        """A file that holds the number of the generation that served last."""
        return f"{self.root}/current"

    def generation(self, number: int) -> str:
        """The folder of one generation."""
        return f"{self.generations}/{number}"

    def gate(self, text: str) -> str:
        """Where a gate lies: named by its content, so that an older unit keeps its older gate."""
        return f"{self.root}/gate-{digest(text)[:12]}.py"


@dataclass(frozen=True)
class Target:
    """What shall be on the host: the unit, its gate, and the story of both.

    ``manifest``: configuration, run, spec, measured load and info; what is needed to prove the
    service later without the run folder.
    """

    unit: str
    unit_text: str
    gate_text: str
    manifest: Mapping[str, Any]

    @property
    def places(self) -> Places:
        """Where it goes."""
        return Places(self.unit)
