"""On what a configuration is measured: host, links, driver, packages, models. Pure.

Read from the facts of ``verify_stack`` as ``stack.json`` has them: a finished cell stands only
where they are the same. Numbering and order do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from runbook.verified import Stack, cards_of, fingerprints_of, reading_of, told_of

_LOADED_OPTIONS = (
    "/proc/driver/nvidia/params",
    "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
)

Surroundings = Mapping[str, str | None]


def surroundings_of(stack: Stack, config: str) -> dict[str, str | None]:
    """Name -> value in words or as a hash, ``None`` where unknown; empty without facts."""
    if not stack:
        return {}
    told, cards = told_of(stack, config), cards_of(stack)
    return {
        **fingerprints_of(stack),
        "driver": _counted(card["driver_version"] for card in cards),
        "options of the driver": _mark_of_driver(reading_of(stack, "settings") or {}),
        "power limit in W": _counted(card["power_limit_w"] for card in cards),
        "kernel": (told.get("kernel") or {}).get("release"),
        "Python": (told.get("python") or {}).get("version"),
        "what the start of Python does": _mark_of_start(told),
        "NCCL, its settings files and its graph": _mark_of_nccl(told),
        **(told.get("packages") or {}),
    }


def changes(before: Surroundings, now: Surroundings) -> list[str]:
    """What is not as it was, a sentence each."""
    if now and not before:
        return ["on what it was measured is not recorded"]
    names = dict.fromkeys([*before, *now])
    return [
        f"{name} {before.get(name) or 'unknown'}, now {now.get(name) or 'unknown'}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _counted(values: Iterable[Any]) -> str | None:
    counts = Counter(map(str, values))
    return ", ".join(f"{count} x {value}" for value, count in sorted(counts.items())) or None


def _mark_of_driver(settings: Mapping[str, Any]) -> str | None:
    """A hash of the options that the loaded modules have, whatever modprobe.d asks for."""
    loaded = {name: settings[name] for name in _LOADED_OPTIONS if name in settings}
    return _mark(loaded) if loaded else None


def _mark_of_start(told: Mapping[str, Any]) -> str | None:
    """A hash of what Python loads at its start, and of the variables that this sets."""
    sites = [told.get("sitecustomize"), told.get("usercustomize")]
    if None in sites:
        return None
    loaded = [
        [one["sha256"] for one in site["candidates"] if one["path"] == site["loaded"]]
        for site in sites
        if site
    ]
    return _mark([loaded, told.get("environment")])


def _mark_of_nccl(told: Mapping[str, Any]) -> str | None:
    names = ("nccl", "nccl_conf", "nccl_graph")
    return _mark([told.get(name) for name in names]) if told.get("nccl") else None


def _mark(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
