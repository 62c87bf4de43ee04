"""What the guard of a service expects: what was measured, as far as a start depends on it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from runbook.hosts.base import Host
from runbook.install_service.measured import Measured
from runbook.launch import systemd
from runbook.params import Params
from runbook.probe.ask import interpreter_words
from runbook.rehearsal.model import resolve_model

_COMPARED = ("python", "sitecustomize", "usercustomize", "packages", "files")


def expectations(params: Params, measured: Measured) -> dict[str, Any]:
    """What ``probe/guard.py`` reads: levels, questions, and the answers that were measured.

    What was not recorded is left out, so that the guard says so and does not fail for it.
    """
    files = dict(measured.facts.get("files") or {})
    roles = {"model": params.server.model, "draft": params.server.draft}
    return {
        "levels": params.service.guard.model_dump(),
        "options": {
            "packages": sorted(measured.facts.get("packages") or {}),
            "files": sorted(files),
            "hash_up_to_bytes": int(params.stack.hash_up_to_gib * 2**30),
            "disks": [params.server.cwd],
        },
        "facts": {name: measured.facts[name] for name in _COMPARED if measured.facts.get(name)},
        "roles": {role: resolve_model(path) for role, path in roles.items() if path},
        "port": params.server.port,
        "least_shm_gib": params.stack.min_shm_gib,
        "least_disk_gib": params.stack.min_disk_gib,
        "topology": measured.topology,
        "nccl": _nccl_of(measured),
        "gpu_count": params.stack.gpus,
        "gpus": [
            {"uuid": card["uuid"], "driver": card["driver_version"]}
            for card in measured.gpus
            if card.get("uuid") and card.get("driver_version")
        ],
    }


def _nccl_of(measured: Measured) -> dict[str, str] | None:
    files = measured.facts.get("nccl_conf")
    if files is None:
        return None
    return {path: str(conf.get("sha256") or conf.get("why")) for path, conf in files.items()}


def as_text(expected: Mapping[str, Any]) -> str:
    """The expectations as they lie beside the guard: the same text for the same expectations."""
    return json.dumps(expected, indent=1, sort_keys=True) + "\n"


def command(measured: Measured, other_python: str, guard: str, expected: str) -> tuple[str, ...]:
    """The guard under the interpreter that serves, with its flags; ``other_python`` where a launch
    has none. ``guard`` and ``expected`` are paths."""
    spec = measured.spec
    serves = spec.interpreter.rpartition("/")[2].startswith("python")
    python = interpreter_words(spec.argv) if serves else [other_python]
    return (*python, guard, "before-start", expected)


_SAID = re.compile(r"\bguard: ((?:fail|warn): .*|\d+ good, .*)$")


def said_last(host: Host, unit: str) -> list[str]:
    """What the guard said before the last start of a unit, however much was logged since: to look
    through months of it would take minutes."""
    began_s, over_s = systemd.last_start(host, unit)
    return said_in(systemd.journal(host, unit, began_s, grep="guard: ", until_s=over_s))


def said_in(journal: str) -> list[str]:
    """What the guard said before the last start, out of the unit's journal; empty: nothing."""
    found: list[str] = []
    ended = True
    for line in journal.splitlines():
        match = _SAID.search(line)
        if match:
            found = [match[1]] if ended else [*found, match[1]]
            ended = match[1][:1].isdigit()
    return found
