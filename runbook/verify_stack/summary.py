"""The facts in short, one line each, as the record shows them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from runbook.checks import counted
from runbook.probe.ask import ServingFacts
from runbook.probe.topology import pairs, topology_class
from runbook.verify_stack.facts import Reading, StackFacts
from runbook.verify_stack.gpus import gpus_from
from runbook.verify_stack.launches import GIB, size


def summarize(facts: StackFacts) -> dict[str, str | None]:
    """Fact by name; ``None`` is unknown. What differs between configurations is said for each."""
    shown: dict[str, str | None] = {
        name: _over_launches(facts.serving, name, show) for name, show in _SHOWN.items()
    }
    shown["GPUs"] = _gpus(facts.host["gpus"])
    version = facts.host["systemd_version"]
    matrix = facts.host.get("topology")
    if matrix and matrix.value:
        kind = topology_class(matrix.value) or "unknown"
        shown["topology"] = f"{kind}, {len(pairs(matrix.value))} pairs of GPUs"
    shown["systemd"] = version.reason if version.value is None else str(version.value)
    return shown


def _gpus(reading: Reading) -> str | None:
    if reading.value is None:
        return reading.reason if reading.absent else None
    found = gpus_from(reading.value)
    kinds = Counter(
        f"{gpu.name}, driver {gpu.driver_version}, "
        + (f"{gpu.power_limit_w:g} W" if gpu.power_limit_w else "power limit unknown")
        for gpu in found.gpus
    )
    lines = [f"{count} x {kind}" for kind, count in kinds.items()]
    return "; ".join([*lines, *found.faults]) or "none"


def _over_launches(
    serving: Mapping[str, ServingFacts], name: str, show: Callable[[Mapping[str, Any]], str | None]
) -> str | None:
    said: dict[str, str | None] = {}
    for config, facts in serving.items():
        try:
            said[config] = show(facts.facts)
        except (AttributeError, KeyError, TypeError):  # a fact that is missing
            said[config] = None
    values = set(said.values())
    if len(values) == 1:
        return values.pop()
    return "; ".join(f"{config}: {value or 'unknown'}" for config, value in said.items()) or None


def _python(facts: Mapping[str, Any]) -> str:
    python = facts["python"]
    return f"{python['implementation']} {python['version']}, {python['executable']}"


def _packages(facts: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {version or 'not installed'}" for name, version in facts["packages"].items()
    )


def _processor(facts: Mapping[str, Any]) -> str:
    cores = facts["cores"]
    return f"{facts['cpu'] or 'unknown model'}, {cores['usable']} of {cores['online']} cores usable"


def _memory(facts: Mapping[str, Any]) -> str:
    memory = facts["memory"]
    available, total = memory["available_bytes"] / GIB, memory["total_bytes"] / GIB
    return f"{available:.1f} of {total:.1f} GiB available"


def _room(room: Mapping[str, int]) -> str:
    return f"{room['free_bytes'] / GIB:.1f} of {room['size_bytes'] / GIB:.1f} GiB free"


def _files(facts: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{path}: {_file(file)}" if file["kind"] else f"{path}: {file['why']}"
        for path, file in facts["files"].items()
    )


def _file(file: Mapping[str, Any]) -> str:
    if file["kind"] == "folder":
        found = f"{counted(file['files'], 'file')}, {size(file['size_bytes'])}"
        return f"{found}, listing SHA-256 {file['listing_sha256']}"
    return f"{size(file['size_bytes'])}, SHA-256 {file['sha256'] or 'not taken'}"


def _sitecustomize(facts: Mapping[str, Any]) -> str:
    loaded = [facts[name]["loaded"] for name in ("sitecustomize", "usercustomize")]
    return ", ".join(filter(None, loaded)) or "none"


def _limits(facts: Mapping[str, Any]) -> str:
    limits = facts["limits"]
    return ", ".join(f"{name} {limits[name]['soft']}" for name in ("nofile", "memlock", "stack"))


_SHOWN: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "operating system": lambda facts: facts["system"],
    "kernel": lambda facts: f"{facts['kernel']['release']} {facts['kernel']['machine']}",
    "processor": _processor,
    "memory": _memory,
    "/dev/shm": lambda facts: _room(facts["shm"]),
    "disk": lambda facts: "; ".join(f"{at}: {_room(one)}" for at, one in facts["disks"].items()),
    "python": _python,
    "packages": _packages,
    "sitecustomize": _sitecustomize,
    "limits": _limits,
    "model files": _files,
}
