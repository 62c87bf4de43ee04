"""A host's facts as a folder of what its commands printed: written there, read anywhere.

One file a command, named in ``commands.host_facts``; ``python-packages.json`` ({name: version}) and
``serving.json`` (what the serving interpreters told) for a deployment. A file that is not there, or
that is broken, leaves its own facts unknown, with the reason, and no others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from runbook import atomic
from runbook.bounded import parse_json, read_text
from runbook.errors import BadInput
from runbook.hosts.base import Done
from runbook.hosts.local import TAKES_ORDERS
from runbook.probe.ask import ServingFacts
from runbook.verify_stack.commands import Fact, host_facts
from runbook.verify_stack.facts import Reading, StackFacts, reading_of
from runbook.verify_stack.gpus import value_of

PACKAGES, SERVING = "python-packages.json", "serving.json"
#: What SGLang's own list of its environment calls a distribution otherwise.
_WRITTEN = {"flashinfer": "flashinfer-python"}
_MOST_BYTES = 1 << 24


class _Broken(Exception):
    """A captured file that cannot be used; the text says why, with its name."""


def read_folder(
    folder: Path, configurations: Sequence[str], packages: Sequence[str], fault: str = ""
) -> StackFacts:
    """The facts that ``folder`` holds, for these configurations and the ``packages`` they need.

    ``fault``: what is wrong with ``serving.json``, which then tells nothing. Raises ``BadInput``
    where there is no such folder, or nothing captured in it that can be read.
    """
    names = [*(fact.file for fact in host_facts()), PACKAGES, SERVING]
    present = [name for name in names if (folder / name).is_file()]
    if not present:
        what = "holds none of the captured files" if folder.is_dir() else "is no folder"
        raise BadInput(
            f"{folder} {what}",
            "what the commands of the host printed, a file each",
            f"on the host: runbook facts --capture {folder}",
        )
    _refuse_all_broken(folder, present)
    readings = {fact.name: _reading(folder, fact) for fact in host_facts()}
    state = readings["systemd_state"]
    why_not = None if state.value in TAKES_ORDERS else f"systemd is {state.value}"
    readings["systemd"] = Reading({"kind": "local", "why_not": why_not}) if state.value else state
    readings["port"] = Reading(reason="not captured: ports are looked at on the host", asked=False)
    return StackFacts(readings, _serving(folder, configurations, packages, fault))


def _refuse_all_broken(folder: Path, names: Sequence[str]) -> None:
    """Raise ``BadInput`` where not one of these files can be used."""
    faults = []
    for name in names:
        try:
            if name.endswith(".json"):
                _mapping(folder, name)
            else:
                _text(folder / name)
        except _Broken as error:
            faults.append(str(error))
        else:
            return
    raise BadInput(
        f"nothing in {folder} can be read: {'; '.join(faults[:3])}",
        "files as --capture writes them",
        "capture it again",
    )


def _reading(folder: Path, fact: Fact) -> Reading:
    """A fact of the host as its file tells it."""
    try:
        text = _text(folder / fact.file)
        if text is None:
            return Reading(reason=f"not captured: {fact.file} is not there", asked=False)
        return reading_of(fact, Done(fact.argv, 0, text, ""))
    except _Broken as error:
        return Reading(reason=str(error))


def _serving(
    folder: Path, configurations: Sequence[str], packages: Sequence[str], fault: str
) -> dict[str, ServingFacts]:
    facts: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    told: dict[str, Any] = {}
    try:
        installed = _mapping(folder, PACKAGES)
        facts = {} if installed is None else {"packages": _versions(installed, packages)}
    except _Broken as error:
        reasons = {"packages": str(error)}
    try:
        told = {} if fault else _mapping(folder, SERVING) or {}
        fault = fault or f"not captured: {SERVING} is not there"
    except _Broken as error:
        fault = str(error)
    unknown = ServingFacts(facts, reasons, otherwise=fault)
    return {
        name: _answer(told[name], unknown) if name in told else unknown for name in configurations
    }


def _answer(told: Any, unknown: ServingFacts) -> ServingFacts:
    """What a serving interpreter told, as it was captured; ``unknown`` where that is none."""
    kinds = {"facts": dict, "reasons": dict, "reason": str, "otherwise": str}
    if (
        isinstance(told, dict)
        and {"facts", "reasons"} <= told.keys()
        and all(isinstance(value, kinds.get(name, ())) for name, value in told.items())
    ):
        return ServingFacts(**told)
    return replace(unknown, otherwise=f"{SERVING} holds no answers of serving interpreters")


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
    """The object of a JSON file, ``None`` where it is not there. Raises ``_Broken``."""
    text = _text(folder / name)
    if text is None:
        return None
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    raise _Broken(f"{name} holds no JSON object, or is cut off: capture it again")


def _text(path: Path) -> str | None:
    """The text of a captured file; ``None`` where there is none. Raises ``_Broken`` for one that
    cannot be read or is no text: what was lost in it cannot be told from what was never there."""
    if not path.exists():
        return None
    try:
        text = read_text(path, _MOST_BYTES, *[""] * 4)
    except BadInput as error:
        raise _Broken(error.found.replace(str(path), path.name)) from None
    if "\0" in text:
        raise _Broken(f"{path.name} holds NUL bytes: it is no text, or of another encoding")
    return text
