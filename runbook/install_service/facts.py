"""What is on a host of one unit: read in one go, then taken apart purely. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runbook.errors import BadInput, NotHere
from runbook.hosts.base import Host
from runbook.install_service.places import KEPT_TEXTS, Places, Target
from runbook.launch import systemd
from runbook.launch.resting import Seen, seen_in
from runbook.launch.spec import UNITS

_ASKED = (
    "FragmentPath",
    "DropInPaths",
    "UnitFileState",
    "ActiveState",
    "SubState",
    "MainPID",
    "NRestarts",
    "NeedDaemonReload",
    "Result",
)

_COLLECT = """
import json, os, sys
found = {}
def take(path):
    if os.path.isdir(path):
        for name in os.listdir(path):
            take(path + "/" + name)
    elif os.path.exists(path):
        with open(path, "rb") as file:
            found[path] = file.read().decode("utf-8", "backslashreplace")
try:
    for path in sys.argv[1:]:
        take(path)
except OSError as error:
    sys.exit(f"{error.filename}: {error.strerror}")
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Replaced(Seen):
    """A unit as it was before it gave way, and to which generation it did."""

    generation: int = 0


@dataclass(frozen=True)
class HostFacts:
    """``files``: path -> text of everything that belongs to the unit; ``state``: its properties,
    empty where no systemd runs, and then ``why_no_systemd`` says why."""

    places: Places
    files: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    why_no_systemd: str | None = None

    @property
    def unit_text(self) -> str | None:
        """The unit's file, ``None`` without one."""
        return self.files.get(self.places.unit_file)

    @property
    def fragment(self) -> str:
        """Where systemd has the unit from, empty when it knows none."""
        return self.state.get("FragmentPath", "")

    @property
    def drop_ins(self) -> list[str]:
        """Drop-ins of its units: where an administrator puts them, and those that systemd knows
        from elsewhere. What is for every service was there when it was measured, too."""
        folders = tuple(f"{folder}/" for folder in _drop_in_folders(self.places))
        lying = [path for path in self.files if path.startswith(folders) and path.endswith(".conf")]
        known = self.state.get("DropInPaths", "").split()
        own = [path for path in known if "/service.d/" not in path]
        return list(dict.fromkeys([*lying, *own]))

    @property
    def beside(self) -> dict[str, str]:
        """Path -> text of the guards and of what these expect, of the launchers."""
        starts = tuple(f"{self.places.root}/{kind}-" for kind in ("guard", "launcher"))
        return {path: text for path, text in self.files.items() if path.startswith(starts)}

    @property
    def folders(self) -> list[int]:
        """The numbers of all generations that were begun."""
        start = self.places.generations + "/"
        names = {p.removeprefix(start).partition("/")[0] for p in self.files if p.startswith(start)}
        return sorted(int(name) for name in names if name.isdigit())

    @property
    def generations(self) -> list[int]:
        """The numbers of the generations that have served and are whole, oldest first."""
        return [number for number in self.folders if self._has(number, *KEPT_TEXTS, "served")]

    def _has(self, number: int, *names: str) -> bool:
        """Whether a generation has a manifest and all these files."""
        folder = self.places.generation(number)
        there = all(f"{folder}/{name}" in self.files for name in names)
        return there and bool(self.manifest(number))

    @property
    def current(self) -> int | None:
        """The generation that served last, ``None`` before any has."""
        text = self.files.get(self.places.current, "").strip()
        return int(text) if text.isdigit() else None

    @property
    def current_manifest(self) -> Mapping[str, Any]:
        """The manifest of the current generation, empty without one."""
        return {} if self.current is None else self.manifest(self.current)

    @property
    def replaced_text(self) -> str:
        """The note of what gave way, empty without one."""
        return self.files.get(self.places.replaced, "")

    @property
    def replaced(self) -> tuple[Replaced, ...]:
        """The units that gave way to this one."""
        return tuple(seen_in(self.replaced_text or "[]", self.places.replaced, Replaced))

    @property
    def enabled(self) -> bool:
        """Whether it starts at boot."""
        return self.state.get("UnitFileState") == "enabled"

    @property
    def is_recorded(self) -> bool:
        """Whether what it does at a boot is recorded."""
        return self.places.boot_link in self.files

    @property
    def units(self) -> dict[str, str]:
        """Path -> text of the files in the places of its units."""
        paths = (self.places.boot_file, self.places.unit_file)
        return {path: self.files[path] for path in paths if path in self.files}

    @property
    def active(self) -> bool:
        """Whether it runs and its gate has ended."""
        return self.state.get("ActiveState") == "active"

    @property
    def needs_reload(self) -> bool:
        """Whether systemd knows an older file than there is."""
        return self.state.get("NeedDaemonReload") == "yes"

    def manifest(self, number: int) -> Mapping[str, Any]:
        """The manifest of a generation, empty when there is none."""
        try:
            found = json.loads(
                self.files.get(f"{self.places.generation(number)}/manifest.json", "")
            )
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def generation(self, number: int) -> Target:
        """A kept generation as a target. Raises ``BadInput`` when it is not whole."""
        if not self._has(number, *KEPT_TEXTS):
            kept = ", ".join(map(str, self.generations)) or "none"
            raise BadInput(
                f"{self.places.unit} has no generation {number}",
                f"one of: {kept}",
                "name one of them, or install anew: runbook service plan PARAMS",
            )
        folder = self.places.generation(number)
        texts = {text: self.files[f"{folder}/{name}"] for name, text in KEPT_TEXTS.items()}
        return Target(self.places.unit, manifest=self.manifest(number), **texts)


def read_facts(host: Host, unit: str) -> HostFacts:
    """Everything a plan needs to know of the host; a machine in its place tells nothing of it."""
    places = Places(unit)
    reason = host.why_no_systemd()
    if not host.is_there:
        return HostFacts(places, why_no_systemd=reason)
    state = read_state(host, unit) if reason is None else {}
    own = (places.unit_file, places.boot_file, places.boot_link, places.root)
    paths = [*own, *_drop_in_folders(places)]
    out = host.run_script(f"reading the files of {unit}", _COLLECT, *paths)
    return HostFacts(places, json.loads(out), state, reason)


def require_systemd(host: Host) -> None:
    """Raises ``NotHere`` where no unit can be managed."""
    reason = host.why_no_systemd()
    if reason is not None:
        raise NotHere(
            reason, "systemd on the host of the service", "run it where systemd is, as root"
        )


def not_installed(unit: str) -> NotHere:
    """The error where a verb needs an installed service."""
    return NotHere(
        f"{unit} is not installed by the runbook",
        "a service that is installed",
        "runbook service install PARAMS",
    )


def read_state(host: Host, unit: str) -> dict[str, str]:
    """The state of a unit as systemd tells it; an unknown unit has empty properties."""
    return systemd.show(host, unit, *_ASKED)


def _drop_in_folders(places: Places) -> list[str]:
    folders = (UNITS, f"{UNITS}.control", "/run/systemd/system", "/run/systemd/system.control")
    return [f"{at}/{unit}.d" for at in folders for unit in (places.unit, places.boot_unit)]
