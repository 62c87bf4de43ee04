"""What the verification of the stack told, as later stages read ``stack.json``. Pure.

Each takes the whole of it, empty where nobody looked, and answers for what is missing with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runbook.probe.topology import topology_class

Stack = Mapping[str, Any]


def told_of(stack: Stack, config: str) -> Mapping[str, Any]:
    """What the probes told of one configuration's launch."""
    serving = ((stack.get("readings") or {}).get("serving") or {}).get(config) or {}
    told: Mapping[str, Any] = serving.get("facts") or {}
    return told


def resolved_for(stack: Stack, config: str) -> dict[str, Any] | None:
    """What the server's own parser made of a configuration, ``None`` where it was not asked."""
    arguments = told_of(stack, config).get("arguments") or {}
    return arguments.get("resolved")


def reading_of(stack: Stack, name: str) -> Any | None:
    """What was read of the host under this name, ``None`` where it could not be."""
    host = (stack.get("readings") or {}).get("host") or {}
    return (host.get(name) or {}).get("value")


def cards_of(stack: Stack) -> tuple[dict[str, Any], ...]:
    """The GPUs, one mapping each."""
    return tuple((reading_of(stack, "gpus") or {}).get("gpus") or ())


def links_of(stack: Stack) -> str | None:
    """The class of the links between the cards as it was seen, ``None`` where it was not."""
    matrix = reading_of(stack, "topology")
    return topology_class(matrix) if matrix else None


def checks_of(stack: Stack) -> dict[str, Mapping[str, Any]]:
    """The checks by their names."""
    return {check["name"]: check for check in stack.get("checks") or ()}


def fingerprints_of(stack: Stack) -> Mapping[str, str | None]:
    """Name of a part, like ``topology`` -> its fingerprint."""
    found: Mapping[str, str | None] = stack.get("fingerprints") or {}
    return found
