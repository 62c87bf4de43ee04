"""Reading a host: what is installed of a unit, and what state it is in. Changes nothing."""

from __future__ import annotations

import json
from typing import Any

from runbook.errors import BadInput
from runbook.hosts.base import Host
from runbook.install_service.places import UNITS, Places, Target
from runbook.install_service.plan import HostFacts

_ASKED = "FragmentPath,UnitFileState,ActiveState,SubState,MainPID,NRestarts,NeedDaemonReload,Result"


def show(host: Host, unit: str, properties: str = _ASKED) -> dict[str, str]:
    """Properties of a unit as systemd tells them; an unknown unit has empty ones."""
    out = host.run("systemctl", "show", "--property", properties, "--", unit).out
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def read_facts(host: Host, unit: str) -> HostFacts:
    """Everything a plan needs to know of the host."""
    places = Places(unit)
    reason = host.why_no_systemd()
    state = show(host, unit) if reason is None else {}
    names = host.list(places.root) or []
    gates = [f"{places.root}/{name}" for name in names if name.startswith("gate-")]
    current = _number(read_text(host, places.current))
    return HostFacts(
        unit_text=read_text(host, places.unit_file),
        fragment=state.get("FragmentPath", ""),
        drop_ins=_drop_ins(host, unit),
        gates={path: read_text(host, path) or "" for path in gates},
        generations=generations(host, places),
        next_generation=max(_folders(host, places), default=0) + 1,
        current=current,
        current_manifest=read_manifest(host, places, current) if current is not None else {},
        enabled=state.get("UnitFileState") == "enabled",
        active=state.get("ActiveState") == "active",
        needs_reload=state.get("NeedDaemonReload") == "yes",
        why_no_systemd=reason,
    )


def generations(host: Host, places: Places) -> tuple[int, ...]:
    """The numbers of the generations that have served, oldest first."""
    folders = _folders(host, places)
    return tuple(n for n in folders if host.exists(f"{places.generation(n)}/served"))


def _folders(host: Host, places: Places) -> list[int]:
    return sorted(int(n) for n in host.list(places.generations) or [] if n.isdigit())


def read_manifest(host: Host, places: Places, number: int) -> dict[str, Any]:
    """The manifest of a generation, empty when there is none."""
    text = read_text(host, f"{places.generation(number)}/manifest.json")
    try:
        found: dict[str, Any] = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found


def read_generation(host: Host, places: Places, number: int) -> Target:
    """A kept generation as a target. Raises ``BadInput`` when it is not whole."""
    folder = places.generation(number)
    unit_text = read_text(host, f"{folder}/unit")
    gate_text = read_text(host, f"{folder}/gate.py")
    manifest = read_manifest(host, places, number)
    if unit_text is None or gate_text is None or not manifest:
        kept = ", ".join(map(str, generations(host, places))) or "none"
        raise BadInput(f"{places.unit} has no generation {number}", f"one of: {kept}")
    return Target(places.unit, unit_text, gate_text, manifest)


def read_text(host: Host, path: str) -> str | None:
    """A text file of the host, ``None`` when absent; bytes that are no UTF-8 are escaped."""
    data = host.read(path)
    return None if data is None else data.decode(errors="backslashreplace")


def _drop_ins(host: Host, unit: str) -> dict[str, str]:
    """Drop-ins of this very unit, wherever an administrator may have put them."""
    found = {}
    for folder in (
        f"{UNITS}/{unit}.d",
        f"{UNITS}.control/{unit}.d",
        f"/run/systemd/system/{unit}.d",
    ):
        for name in host.list(folder) or []:
            if name.endswith(".conf"):
                found[f"{folder}/{name}"] = read_text(host, f"{folder}/{name}") or ""
    return found


def _number(text: str | None) -> int | None:
    return int(text) if text and text.strip().isdigit() else None
