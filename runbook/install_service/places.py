"""Where the files of a service lie on its host, and what a generation is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbook.launch.spec import STATE

UNITS = "/etc/systemd/system"
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

    @property
    def replaced(self) -> str:
        """A file that holds the units that gave way to this one, as they were."""
        return f"{self.root}/replaced.json"

    def generation(self, number: int) -> str:
        """The folder of one generation."""
        return f"{self.generations}/{number}"

    def gate(self, text: str) -> str:
        """Where a gate lies: named by its content, so that an older unit keeps its older gate."""
        return f"{self.root}/gate-{digest(text)[:12]}.py"

    def guard(self, text: str) -> str:
        """Where a guard lies, named likewise."""
        return f"{self.root}/guard-{digest(text)[:12]}.py"

    def expected(self, text: str) -> str:
        """Where the expectations of a guard lie, named likewise."""
        return f"{self.root}/guard-{digest(text)[:12]}.json"


@dataclass(frozen=True)
class Target:
    """What shall be on the host: the unit, its gate and guard, and the story of all.

    ``guard_text`` and ``expected_text`` (JSON) are empty where there is no guard. ``manifest``:
    configuration, run, spec, measured load and info, expectations of the guard; what is needed to
    prove the service later without the run folder.
    """

    unit: str
    unit_text: str
    gate_text: str
    manifest: Mapping[str, Any]
    guard_text: str = ""
    expected_text: str = ""

    @property
    def beside(self) -> dict[str, str]:
        """Path -> text of the files that the unit runs or reads; all are named by content."""
        found = {self.places.gate(self.gate_text): self.gate_text}
        if self.guard_text:
            found[self.places.guard(self.guard_text)] = self.guard_text
            found[self.places.expected(self.expected_text)] = self.expected_text
        return found | dict(self.manifest["spec"].get("files") or {})

    @property
    def kept(self) -> dict[str, str]:
        """Name -> text of the files in the folder of a generation, the manifest apart."""
        found = {"unit": self.unit_text, "gate.py": self.gate_text}
        if self.guard_text:
            found |= {"guard.py": self.guard_text, "guard.json": self.expected_text}
        return found

    @property
    def places(self) -> Places:
        """Where it goes."""
        return Places(self.unit)
