"""Checks on each GPU as ``nvidia-smi`` tells of it: they say which, never "one of them". Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from runbook.checks import Check, counted
from runbook.params import Stack
from runbook.verify_stack.gpus import Gpu, GpuList

#: P-states in which a link may rest at a lower generation.
_IDLE = frozenset(f"P{number}" for number in range(5, 16))


def check_gpus(found: GpuList, stack: Stack) -> Check:
    """Whether as many cards answer as the parameters want."""
    wanted, count = counted(stack.gpus, "GPU"), len(found.gpus)
    lost = [
        f"{gpu} tells neither name nor UUID" for gpu in found.gpus if not (gpu.name or gpu.uuid)
    ]
    uuids = Counter(gpu.uuid for gpu in found.gpus if gpu.uuid)
    lost += [f"{uuid} is told {often} times" for uuid, often in uuids.items() if often > 1]
    said = counted(count, "GPU") + "".join(f"; {fault}" for fault in (*found.faults, *lost))
    if count != stack.gpus or found.faults or lost:
        fix = "see nvidia-smi and: journalctl -k -g NVRM; a lost card needs a reset or a reboot"
        return Check("gpus", "fail", said, wanted, fix)
    names = _counted(gpu.name for gpu in found.gpus)
    return Check("gpus", "pass", f"{said}: {names}", wanted)


def check_name(found: GpuList, stack: Stack) -> Check:
    """Whether every card is of the wanted model, and all of one."""
    fix = "correct stack.gpu_name, or the machine"
    wanted = f"each with {stack.gpu_name!r} in its name" if stack.gpu_name else "one model"
    check = _each(
        *("gpu_name", found, stack, lambda gpu: gpu.name, wanted, fix),
        lambda gpu: stack.gpu_name in str(gpu.name),
    )
    return _all_equal(check, found, lambda gpu: gpu.name)


def check_memory(found: GpuList, stack: Stack) -> Check:
    """Whether every card has the memory."""
    return _each(
        *(
            "gpu_memory",
            found,
            stack,
            lambda gpu: _gib(gpu.memory_mib),
            f"{stack.gpu_memory_gib:g} GiB",
        ),
        "other cards, or a smaller model",
        lambda gpu: (gpu.memory_mib or 0) >= stack.gpu_memory_gib * 1024,
    )


def check_compute_cap(found: GpuList, stack: Stack) -> Check:
    """Whether kernels built for the wanted compute capability run on every card."""
    wanted = stack.compute_cap or "any"
    fix = "other cards, or kernels that are built for these"
    return _each(
        *("compute_cap", found, stack, lambda gpu: gpu.compute_cap, wanted, fix),
        lambda gpu: stack.compute_cap in ("", gpu.compute_cap),
    )


def check_mig(found: GpuList, stack: Stack) -> Check:
    """MIG must be off on every card; a card that knows no MIG does not tell."""
    fix = "sudo nvidia-smi -i INDEX -mig 0, then reset the card"
    return _each(
        *("mig", found, stack, lambda gpu: gpu.mig, "Disabled", fix),
        lambda gpu: gpu.mig == "Disabled",
    )


def check_driver(found: GpuList, stack: Stack) -> Check:
    """Whether the driver's version is in the wanted range."""
    return _each(
        *("driver", found, stack, lambda gpu: gpu.driver_version, stack.driver_version or "any"),
        "install a driver of that range, or correct stack.driver_version",
        lambda gpu: in_range(str(gpu.driver_version), stack.driver_version) is True,
    )


def check_pcie_link(found: GpuList, stack: Stack) -> Check:
    """Generation and lanes: by the maximum, because a link rests at generation 1 when idle.

    ``links.at_work`` judges the links that are slow although their cards do not rest."""
    wanted = f"generation {stack.pcie_gen or 'any'}, {stack.pcie_width or 'any'} lanes, at least"
    check = _each(
        *("pcie_link", found, stack, _link, wanted),
        "reseat the card; see slot, riser and the BIOS setting of the link",
        lambda gpu: (
            (gpu.link_gen_max or 0) >= stack.pcie_gen and (gpu.link_width or 0) >= stack.pcie_width
        ),
    )
    slow = [gpu for gpu in found.gpus if is_slow_awake(gpu, stack.pcie_gen)]
    if check.status != "pass" or not slow:
        return check
    said = "; ".join(f"{gpu}: {_link(gpu)}" for gpu in slow)
    return Check("pcie_link", "warn", said, wanted, "read it again while the GPUs are at work")


def is_slow_awake(gpu: Gpu, gen: int) -> bool:
    """Whether the link is below ``gen`` although the card does not say that it rests."""
    return gpu.pstate not in _IDLE and (gpu.link_gen or 0) < gen


def _link(gpu: Gpu) -> str | None:
    if gpu.link_gen is None or gpu.link_gen_max is None or gpu.link_width is None:
        return None
    resting = gpu.link_gen < gpu.link_gen_max
    now = f", now {gpu.link_gen} ({gpu.pstate or 'state unknown'})" if resting else ""
    return f"generation {gpu.link_gen_max} x{gpu.link_width}{now}"


def check_persistence(found: GpuList, stack: Stack) -> Check:
    """Persistence mode: without it the driver forgets its state when nobody uses the card."""
    check = _each(
        *("persistence", found, stack, lambda gpu: gpu.persistence, "Enabled"),
        "systemctl enable --now nvidia-persistenced",
        lambda gpu: gpu.persistence == "Enabled",
    )
    return _at_most_warn(check)


def check_ecc(found: GpuList, stack: Stack) -> Check:
    """ECC alike on all cards."""
    fix = "sudo nvidia-smi -e 1 (or 0) on all cards, then reboot"
    check = _each("ecc", found, stack, lambda gpu: gpu.ecc, "alike on all", fix, lambda gpu: True)
    return _all_equal(check, found, lambda gpu: gpu.ecc)


def check_power(found: GpuList, stack: Stack) -> Check:
    """Power limits alike, and those the cards come with."""

    def limit(gpu: Gpu) -> str | None:
        known = None not in (gpu.power_limit_w, gpu.power_default_w)
        return f"{gpu.power_limit_w:g} W" if known else None

    check = _each(
        *("power", found, stack, limit, "the default, alike on all"),
        "sudo nvidia-smi -pl WATTS on all cards; a lowered limit changes every figure",
        lambda gpu: gpu.power_default_w == gpu.power_limit_w,
    )
    return _all_equal(_at_most_warn(check), found, limit)


GPU_CHECKS: dict[str, Callable[[GpuList, Stack], Check]] = {
    "gpus": check_gpus,
    "gpu_name": check_name,
    "gpu_memory": check_memory,
    "compute_cap": check_compute_cap,
    "mig": check_mig,
    "driver": check_driver,
    "pcie_link": check_pcie_link,
    "persistence": check_persistence,
    "ecc": check_ecc,
    "power": check_power,
}


def in_range(version: str, wanted: str) -> bool | None:
    """Whether ``version`` is in the range (empty: any), ``None`` when it is no version."""
    if not wanted:
        return True
    try:
        return SpecifierSet(wanted, prereleases=True).contains(Version(version))
    except InvalidVersion:
        return None


def _each(
    name: str,
    found: GpuList,
    stack: Stack,
    show: Callable[[Gpu], str | None],
    wanted: str,
    fix: str,
    good: Callable[[Gpu], bool],
) -> Check:
    """Judge every card: those that are bad are named, one that does not tell makes it unknown."""
    silent = [gpu for gpu in found.gpus if show(gpu) is None]
    bad = [gpu for gpu in found.gpus if gpu not in silent and not good(gpu)]
    if bad:
        return Check(name, "fail", "; ".join(f"{gpu}: {show(gpu)}" for gpu in bad), wanted, fix)
    if silent:
        said = ", ".join(map(str, silent))
        return Check(name, "unknown", f"{said}: the driver does not tell", wanted)
    if found.faults or len(found.gpus) < max(stack.gpus, 1):
        told = f"told of {len(found.gpus)} of {counted(stack.gpus, 'GPU')}"
        return Check(name, "unknown", told, wanted)
    return Check(name, "pass", _counted(map(show, found.gpus)), wanted)


def _all_equal(check: Check, found: GpuList, show: Callable[[Gpu], str | None]) -> Check:
    """Warn where a check passed but the cards differ."""
    values = Counter(show(gpu) for gpu in found.gpus)
    if check.status != "pass" or len(values) < 2:
        return check
    usual = values.most_common(1)[0][0]
    odd = "; ".join(f"{gpu}: {show(gpu)}" for gpu in found.gpus if show(gpu) != usual)
    return Check(check.name, "warn", f"{odd}; others: {usual}", check.wanted, "make them alike")


def _at_most_warn(check: Check) -> Check:
    if check.status != "fail":
        return check
    return Check(check.name, "warn", check.found, check.wanted, check.fix)


def _counted(values: Iterable[str | None]) -> str:
    return ", ".join(f"{count} x {value}" for value, count in Counter(values).items())


def _gib(mib: float | None) -> str | None:
    return None if mib is None else f"{mib / 1024:.1f} GiB"
