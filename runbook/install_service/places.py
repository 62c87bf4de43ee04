"""Where the files of a service lie on its host, and what a generation is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbook.launch.spec import STATE, UNITS

LOCKS = "/run/golive-runbook"

#: What starts the service at boot.
WANTED_BY = "multi-user.target"

#: Files in the folder of a generation, and what of a ``Target`` is in each.
KEPT_TEXTS = {
    "unit": "unit_text",
    "boot": "boot_text",
    "guard.py": "guard_text",
    "guard.json": "expected_text",
}

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
    def boot_unit(self) -> str:
        """The one-shot unit that records how this one came back at a boot."""
        return f"{self.unit.removesuffix('.service')}-boot.service"

    @property
    def boot_file(self) -> str:
        """What systemd reads of it."""
        return f"{UNITS}/{self.boot_unit}"

    @property
    def boot_link(self) -> str:
        """What starts it at boot."""
        return f"{UNITS}/{WANTED_BY}.wants/{self.boot_unit}"

    @property
    def boot_record(self) -> str:
        """What it has recorded of the last boot."""
        return f"{self.root}/boot.json"

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

    @property
    def monitor(self) -> str:
        """The program of the liveness check: one that outlives the generation it came with."""
        return f"{self.root}/monitor.py"

    @property
    def monitoring(self) -> str:
        """A file that lists what ``service monitoring`` has written on the host."""
        return f"{self.root}/monitoring.json"

    def generation(self, number: int) -> str:
        """The folder of one generation."""
        return f"{self.generations}/{number}"

    def guard(self, text: str) -> str:
        """Where a guard lies: named by its content, so that an older unit keeps its older guard."""
        return f"{self.root}/guard-{digest(text)[:12]}.py"

    def expected(self, text: str) -> str:
        """Where the expectations of a guard lie, named likewise."""
        return f"{self.root}/guard-{digest(text)[:12]}.json"


@dataclass(frozen=True)
class Target:
    """What shall be on the host: the unit, its guard, and the story of all.

    ``boot_text``: the one-shot unit that records how the unit came back at a boot.
    ``guard_text``: the program of both; ``expected_text``: what it expects, JSON. ``manifest``:
    configuration, run, spec, measured load and info, expectations of the guard; what is needed to
    prove the service later without the run folder.
    """

    unit: str
    unit_text: str
    boot_text: str
    guard_text: str
    expected_text: str
    manifest: Mapping[str, Any]

    @property
    def beside(self) -> dict[str, str]:
        """Path -> text of the files that the unit runs or reads; all are named by content."""
        return {
            self.places.guard(self.guard_text): self.guard_text,
            self.places.expected(self.expected_text): self.expected_text,
            **(self.manifest["spec"].get("files") or {}),
        }

    @property
    def files(self) -> dict[str, str]:
        """Path -> text of all that is written on the host, each before what needs it."""
        places = self.places
        return {
            **self.beside,
            places.boot_file: self.boot_text,
            places.unit_file: self.unit_text,
        }

    @property
    def kept(self) -> dict[str, str]:
        """Name -> text of the files in the folder of a generation, the manifest apart."""
        return {name: getattr(self, text) for name, text in KEPT_TEXTS.items()}

    @property
    def places(self) -> Places:
        """Where it goes."""
        return Places(self.unit)
