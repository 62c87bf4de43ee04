"""A host's facts as a folder of what its commands printed: written there, read anywhere.

One file a command, named in ``commands.host_facts``; ``python-packages.json`` ({name: version}) and
``serving.json`` (what the serving interpreters told) for a deployment. A file that is not there
leaves its fact unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from runbook import atomic
from runbook.bounded import parse_json
from runbook.errors import BadInput
from runbook.hosts.base import Done
from runbook.hosts.local import TAKES_ORDERS
from runbook.probe.ask import ServingFacts
from runbook.verify_stack.commands import host_facts
from runbook.verify_stack.facts import Reading, StackFacts, reading_of
from runbook.verify_stack.gpus import value_of

PACKAGES, SERVING = "python-packages.json", "serving.json"
#: What SGLang's own list of its environment calls a distribution otherwise.
_WRITTEN = {"flashinfer": "flashinfer-python"}
_MOST_BYTES = 1 << 24


def read_folder(folder: Path, configurations: Sequence[str], packages: Sequence[str]) -> StackFacts:
    """The facts that ``folder`` holds, for these configurations and the ``packages`` they need.

    Raises ``BadInput`` where there is no such folder or nothing captured in it, or where a JSON
    file in it is none.
    """
    names = [PACKAGES, SERVING, *(fact.file for fact in host_facts())]
    if not any((folder / name).is_file() for name in names):
        what = "holds none of the captured files" if folder.is_dir() else "is no folder"
        raise BadInput(
            f"{folder} {what}",
            "what the commands of the host printed, a file each",
            f"on the host: runbook facts --capture {folder}",
        )
    readings = {}
    for fact in host_facts():
        text = _text(folder / fact.file)
        readings[fact.name] = (
            _not_captured(fact.file)
            if text is None
            else reading_of(fact, Done(fact.argv, 0, text, ""))
        )
    state = readings["systemd_state"]
    why_not = None if state.value in TAKES_ORDERS else f"systemd is {state.value}"
    readings["systemd"] = Reading({"kind": "local", "why_not": why_not}) if state.value else state
    readings["port"] = Reading(reason="not captured: ports are looked at on the host", asked=False)
    return StackFacts(readings, _serving(folder, configurations, packages))


def _not_captured(file: str) -> Reading:
    return Reading(reason=f"not captured: {file} is not there", asked=False)


def _serving(
    folder: Path, configurations: Sequence[str], packages: Sequence[str]
) -> dict[str, ServingFacts]:
    told = _mapping(folder, SERVING) or {}
    installed = _mapping(folder, PACKAGES)
    facts = {} if installed is None else {"packages": _versions(installed, packages)}
    otherwise = f"not captured: {SERVING} is not there"
    unknown = ServingFacts(facts, {}, otherwise=otherwise)
    return {
        name: _answer(folder, told[name]) if name in told else unknown for name in configurations
    }


def _answer(folder: Path, told: Any) -> ServingFacts:
    """What a serving interpreter told, as it was captured. Raises ``BadInput``."""
    kinds = {"facts": dict, "reasons": dict, "reason": str, "otherwise": str}
    if (
        isinstance(told, dict)
        and {"facts", "reasons"} <= told.keys()
        and all(isinstance(value, kinds.get(name, ())) for name, value in told.items())
    ):
        return ServingFacts(**told)
    raise BadInput(
        f"{folder / SERVING} holds no answers of serving interpreters",
        "a file as --capture writes it",
        "capture it again",
    )


def _versions(installed: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, str | None]:
    """Version by the name that is asked for, however the list spells it."""
    versions = {
        canonicalize_name(_WRITTEN.get(name, name)): str(version)
        for name, version in installed.items()
        if version is not None
    }
    found = {name: versions.get(canonicalize_name(name), "") for name in wanted}
    return {
        name: None if "not found" in version.lower() else value_of(version)
        for name, version in found.items()
    }


def write_serving(folder: Path, facts: StackFacts) -> None:
    """Keep what the serving interpreters told beside what the commands printed."""
    if not facts.serving:
        return
    told = {name: asdict(serving) for name, serving in facts.serving.items()}
    for name, value in ((SERVING, told), (PACKAGES, facts.versions())):
        atomic.write(folder / name, json.dumps(value, indent=1) + "\n", 0o644)


def _mapping(folder: Path, name: str) -> dict[str, Any] | None:
    text = _text(folder / name)
    if text is None:
        return None
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    raise BadInput(
        f"{folder / name} holds no JSON object", "a file as --capture writes it", "capture it again"
    )


def _text(path: Path) -> str | None:
    """The text of a captured file; ``None`` where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="backslashreplace").lstrip("\ufeff")
    except OSError:
        return None
