"""GPUs as ``nvidia-smi`` lists them. Pure.

``[N/A]``, ``[Not Supported]`` and their like are ``None``: never a value, and never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Fields of the query, in the order of ``Gpu``.
QUERY = (
    "index,name,uuid,driver_version,memory.total,compute_cap,pci.bus_id,mig.mode.current,"
    "persistence_mode,pstate,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,"
    "pcie.link.width.max,power.limit,power.default_limit,ecc.mode.current"
)
#: What a card is doing, and what it suffers from.
STATE_QUERY = (
    "index,ecc.errors.uncorrected.volatile.total,utilization.gpu,memory.used,clocks.max.sm,"
    "clocks_event_reasons.hw_slowdown,clocks_event_reasons.hw_thermal_slowdown,"
    "clocks_event_reasons.hw_power_brake_slowdown"
)
_FORMAT = "--format=csv,noheader,nounits"
COMMAND = ("nvidia-smi", f"--query-gpu={QUERY}", _FORMAT)
STATE_COMMAND = ("nvidia-smi", f"--query-gpu={STATE_QUERY}", _FORMAT)

_NOTHING = re.compile(
    r"n/?a|not (supported|available)|unknown( error)?|insufficient permissions"
    r"|.*deprecated|.*\b(lost|failed)\b",
    re.IGNORECASE,
)
_NOISE = re.compile(r"(-?|\S*/)(ba|da|z)?sh: .*warning: ")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Gpu:
    """One card; memory in MiB, power in watts."""

    index: int | None
    name: str | None
    uuid: str | None
    driver_version: str | None
    memory_mib: float | None
    compute_cap: str | None
    bus_id: str | None
    mig: str | None
    persistence: str | None
    pstate: str | None
    link_gen: int | None
    link_gen_max: int | None
    link_width: int | None
    link_width_max: int | None
    power_limit_w: float | None
    power_default_w: float | None
    ecc: str | None

    def __str__(self) -> str:
        return f"GPU {'?' if self.index is None else self.index}"


@dataclass(frozen=True)
class GpuList:
    """The cards, and the lines that list none: a lost card, an error, output that was cut off."""

    gpus: tuple[Gpu, ...]
    faults: tuple[str, ...] = ()


def parse_gpus(text: str) -> GpuList:
    """The answer to ``COMMAND``; any text is taken, what is no card becomes a fault."""
    gpus, faults = [], []
    for fields in rows_of(text):
        if fields[0] == "index":
            continue
        if len(fields) == len(QUERY.split(",")) and (
            fields[0].isdecimal() or value_of(fields[0]) is None
        ):
            gpus.append(_gpu([value_of(field) for field in fields]))
        elif fields[0] != "No devices were found":
            faults.append(", ".join(fields)[:200])
    return GpuList(tuple(gpus), tuple(faults))


def gpus_from(value: Mapping[str, Any]) -> GpuList:
    """``GpuList`` from its form in ``stack.json``."""
    return GpuList(tuple(Gpu(**gpu) for gpu in value["gpus"]), tuple(value["faults"]))


def _gpu(fields: Sequence[str | None]) -> Gpu:
    (index, name, uuid, driver, memory, cap, bus, mig, persistence, pstate, *rest) = fields
    gen, gen_max, width, width_max, power, power_default, ecc = rest
    return Gpu(
        *(_whole(index), name, uuid, driver, _number(memory), cap, bus),
        *(_mode(mig), _mode(persistence), pstate),
        *(_whole(gen), _whole(gen_max), _whole(width), _whole(width_max)),
        *(_number(power), _number(power_default), _mode(ecc)),
    )


def plain(text: str) -> str:
    """The text without escape sequences of a terminal."""
    return _ESCAPE.sub("", text)


def rows_of(text: str) -> list[list[str]]:
    """The fields of every line that is not blank nor a shell's warning; any line end is one."""
    lines = [one for one in plain(text).splitlines() if one.strip() and not _NOISE.match(one)]
    return [[field.strip() for field in line.split(",")] for line in lines]


def value_of(field: str) -> str | None:
    """A field's text, ``None`` for ``[N/A]`` and its like."""
    bare = field.strip("[] \t")
    return None if not bare or _NOTHING.fullmatch(bare) else field


def _mode(text: str | None) -> str | None:
    """``Enabled`` or ``Disabled``: any other word is none, or is cut off."""
    return text if text in ("Enabled", "Disabled") else None


def _number(text: str | None) -> float | None:
    match = re.match(r"\d{1,12}(\.\d{1,6})?(?![\d.])", text, re.ASCII) if text else None
    return float(match[0]) if match else None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return int(number) if number is not None and number == int(number) else None
