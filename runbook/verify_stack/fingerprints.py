"""Fingerprints of host, topology and model: equal for what is the same, ``None`` for unknown. Pure.

Numbering and order do not count. Where a model lies does not count either: paths are compared for
themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from runbook.probe import topology
from runbook.verify_stack.facts import StackFacts

_OF_A_CARD = ("uuid", "name", "memory_mib")


def fingerprints(facts: StackFacts, paths: Mapping[str, str]) -> dict[str, str | None]:
    """``host``, ``topology`` and one for each role in ``paths`` (role: path of a model)."""
    matrix = facts.host.get("topology")
    return {
        "host": _of_host(facts),
        "topology": topology.fingerprint(matrix.value) if matrix and matrix.value else None,
        **{role: _of_model(facts, path) for role, path in paths.items()},
    }


def _of_host(facts: StackFacts) -> str | None:
    """Its cards and processors; ``None`` where one of them is unknown."""
    cards, lscpu = facts.host.get("gpus"), facts.host.get("lscpu")
    if cards is None or lscpu is None or lscpu.value is None:
        return None
    if cards.value is None and not cards.absent:
        return None
    listed = cards.value["gpus"] if cards.value else []
    told = sorted([str(card[field]) for field in _OF_A_CARD] for card in listed)
    return _digest([told, lscpu.value["model"], lscpu.value["sockets"], lscpu.value["nodes"]])


def _of_model(facts: StackFacts, path: str) -> str | None:
    """Sizes, names and hashes of its files, as far as they were taken."""
    for serving in facts.serving.values():
        file = (serving.facts.get("files") or {}).get(path)
        if file and file["kind"] == "file":
            return _digest([file["size_bytes"], file["sha256"]])
        if file and file["kind"] == "folder":
            model: dict[str, Any] = (serving.facts.get("models") or {}).get(path) or {}
            files = [file["listing_sha256"], file.get("sha256")]
            return _digest([*files, model.get("config"), model.get("index_sha256")])
    return None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
