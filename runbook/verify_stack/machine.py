"""The machine around the cards: driver, compiler, processors, kernel, other processes. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from runbook.checks import Status
from runbook.verify_stack.case import Answer, Machine, Missing
from runbook.verify_stack.commands import IOMMU_GROUPS
from runbook.verify_stack.gpu_checks import in_range

_FLASHINFER = "flashinfer-python"
_OPTION = re.compile(r"options\s+(nvidia\S*)\s+(.*)")


def check_kernel_driver(machine: Machine) -> Answer:
    """The driver that is loaded is the one whose tools answer."""
    lines = _lines(machine, "/proc/driver/nvidia/version")
    match = re.search(r"(?<![\d.])(\d{3,}\.\d+(?:\.\d+)*)", lines[0])
    if not match:
        raise Missing(f"/proc/driver/nvidia/version says: {lines[0][:100]}")
    tools = {gpu.driver_version for gpu in machine.gpus().gpus if gpu.driver_version}
    kind = "open kernel module" if "Open Kernel" in lines[0] else "proprietary kernel module"
    found = f"{match[1]}, {kind}; nvidia-smi: {', '.join(sorted(tools)) or 'unknown'}"
    wanted = "one version"
    if not tools:
        raise Missing(found)
    fix = "an update waits for its modules to be loaded: reboot"
    return ("pass" if tools == {match[1]} else "fail"), found, wanted, fix


def check_nvcc(machine: Machine) -> Answer:
    """The compiler that kernels are built with at the first start."""
    reading, wanted = machine.reading("nvcc"), machine.stack.nvcc
    needed = f"{wanted or 'any version'}, as torch's CUDA"
    fix = "install that CUDA toolkit and put its bin folder on server.env.PATH"
    if reading.absent:
        return "warn", f"{reading.reason}; kernels cannot be compiled at start", needed, fix
    nvcc = machine.value("nvcc")
    packages = machine.facts.versions()
    if in_range(nvcc["version"], wanted) is not True:
        spared = _FLASHINFER in packages and packages[_FLASHINFER] is None
        return ("warn" if spared else "fail"), nvcc["version"], needed, fix
    torch = {(one.facts.get("torch") or {}).get("cuda") for one in machine.facts.serving.values()}
    other = sorted(cuda for cuda in torch if cuda and cuda != nvcc["release"])
    if other:
        found = f"{nvcc['version']}, but torch is built for {', '.join(other)}"
        return "warn", found, needed, "compiler and headers of different CUDA releases may not fit"
    return "pass", nvcc["version"], needed, ""


def check_driver_options(machine: Machine) -> Answer:
    """Options in modprobe.d act only after the module was loaded again."""
    params = dict(_option(line) for line in _lines(machine, "/proc/driver/nvidia/params"))
    settings = _whole_settings(machine)
    hmm = settings.get("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
    asked = _modprobe_options(settings)
    different = []
    for (module, name), value in asked.items():
        known = params.get(name.removeprefix("NVreg_")) if module == "nvidia" else None
        if module == "nvidia_uvm" and name == "uvm_disable_hmm" and hmm:
            known = {"Y": "1", "N": "0"}.get(hmm[0], hmm[0])
        if known is not None and _number(known) != _number(value):
            different.append(f"{name}={value} in modprobe.d, but {known} is loaded")
    wanted = "what modprobe.d asks for is loaded"
    if different:
        fix = "load the module again (reboot), or take the option out of modprobe.d"
        return "warn", "; ".join(different), wanted, fix
    dwords = params.get("RegistryDwords") or "none"
    return "pass", f"{len(asked)} options; RegistryDwords: {dwords}", wanted, ""


def _modprobe_options(settings: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    """Option by module and name, from every file of modprobe.d; the last one counts."""
    found = {}
    for path, lines in settings.items():
        if not path.startswith("/etc/modprobe.d/"):
            continue
        whole = re.sub(r"\\\n", " ", "\n".join(lines)).splitlines()
        for match in filter(None, map(_OPTION.match, whole)):
            for word in _words(match[2]):
                name, equals, value = word.partition("=")
                if equals:
                    found[match[1].replace("-", "_"), name] = value
    return found


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _option(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip().strip('"')


def _number(text: str) -> int | str:
    try:
        return int(text, 0)
    except ValueError:
        return text


def check_numa(machine: Machine) -> Answer:
    """Processors by node, and each card's own; one that is off line is said, not mended."""
    lscpu, matrix = machine.value("lscpu"), machine.value("topology")
    said = f"{lscpu['sockets'] or 'unknown'} sockets, {len(lscpu['nodes'])} NUMA nodes"
    odd = [f"off line: {lscpu['offline']}"] if lscpu["offline"] else []
    cards = list(zip(matrix["gpus"], matrix["cpus"], matrix["numa"], strict=True))
    for name, cpus, node in cards:
        of_node = lscpu["nodes"].get(f"node{node}")
        if cpus and of_node and processors(cpus) != processors(of_node):
            odd.append(f"{name}: {cpus}, but node {node} has {of_node}")
    silent = [name for name, cpus, _ in cards if cpus is None and any(matrix["cpus"])]
    if not odd and (silent or not lscpu["nodes"] or matrix["faults"]):
        untold = [f"the processors of {', '.join(silent)}"] if silent else matrix["faults"]
        raise Missing("; ".join(["not told", *(untold or ["the NUMA nodes"])]))
    wanted = "all processors on line, each card's own those of its node"
    fix = "echo 1 > /sys/devices/system/cpu/cpuN/online, or correct the BIOS setting"
    return ("warn" if odd else "pass"), "; ".join([said, *odd]), wanted, fix


def processors(text: str) -> frozenset[int]:
    """The numbers in a list like ``0-3,8``; what is no number is left out."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", part)
        if match:
            found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def check_cpu_settings(machine: Machine) -> Answer:
    """Settings of the kernel that make figures scatter."""
    settings, stack = machine.value("settings"), machine.stack
    governors = Counter(
        lines[0] for path, lines in settings.items() if path.endswith("/scaling_governor")
    )
    balancing = settings.get("/proc/sys/kernel/numa_balancing", [None])[0]
    swappiness = settings.get("/proc/sys/vm/swappiness", [None])[0]
    good = (
        not set(governors) - {stack.governor}
        and balancing in (None, "0")
        and (not swappiness or _is_at_most(swappiness, stack.max_swappiness))
    )
    told = {"governor": governors, "numa_balancing": balancing, "swappiness": swappiness}
    silent = [name for name, value in told.items() if not value]
    if silent and good:
        raise Missing(f"could not be read: {', '.join(silent)}")
    shown = ", ".join(f"{count} x {name}" for name, count in governors.items())
    found = (
        f"governor {shown or 'none'}, numa_balancing {balancing or 'unknown'}, "
        f"swappiness {swappiness or 'unknown'}"
    )
    wanted = f"{stack.governor}, 0, {stack.max_swappiness} or less"
    fix = "cpupower frequency-set -g performance; sysctl kernel.numa_balancing=0 vm.swappiness=10"
    return ("pass" if good else "warn"), found, wanted, fix


def _is_at_most(text: str, most: int) -> bool:
    return text.isdecimal() and int(text) <= most


def check_huge_pages(machine: Machine) -> Answer:
    """Noted for the record: nothing is asked of them."""
    pages = [line for line in _lines(machine, "/proc/meminfo") if line.startswith("HugePages_T")]
    transparent = machine.value("settings").get("/sys/kernel/mm/transparent_hugepage/enabled")
    kind = re.search(r"\[(\w+)\]", (transparent or [""])[0])
    if not pages or not kind:
        raise Missing("could not be read whole")
    return "pass", f"transparent {kind[1]}, {pages[0].split()[-1]} reserved", "noted", ""


def check_kernel_log(machine: Machine) -> Answer:
    """Faults of cards and links since boot."""
    lines = machine.value("kernel_log")
    faults = [line for line in lines if "NVRM: Xid" in line]
    links = [line for line in lines if line not in faults]
    severe = [line for line in links if re.search(r"[Uu]ncorrect|[Ff]atal", line)]
    status: Status = "fail" if faults or severe else "warn" if links else "pass"
    shown = (faults or severe or links)[-1:]
    found = f"{len(faults)} Xid, {len(links)} PCIe errors" + "".join(f"; last: {x}" for x in shown)
    fix = "look the Xid up in NVIDIA's list; reseat or replace the card, riser or cable"
    return status, found, "no Xid and no PCIe error since boot", fix


def check_ecc_errors(machine: Machine) -> Answer:
    """Memory errors that could not be corrected, since the driver was loaded."""
    key = "ecc.errors.uncorrected.volatile.total"
    counts = {f"GPU {state['index']}": state[key] for state in machine.value("gpu_states")}
    bad = [f"{gpu}: {count}" for gpu, count in counts.items() if count not in (None, "0")]
    silent = [gpu for gpu, count in counts.items() if count is None]
    if silent and not bad:
        raise Missing(f"{', '.join(silent)}: the driver does not tell")
    if not bad:
        _need_all(machine)
    fix = "nvidia-smi -q -d ECC,ROW_REMAPPER; reset or replace the card"
    return ("fail" if bad else "pass"), "; ".join(bad) or "none", "none on every card", fix


def check_clocks(machine: Machine) -> Answer:
    """A card that is slowed down by its hardware, or has other clocks than the others."""
    states = machine.value("gpu_states")
    slowed = [
        f"GPU {state['index']}: {name.rpartition('.')[2]}"
        for state in states
        for name, value in state.items()
        if name.startswith("clocks_event_reasons.") and value == "Active"
    ]
    told = [
        [value for name, value in state.items() if name.startswith("clocks_event_reasons.")]
        for state in states
    ]
    wanted = "alike, none slowed down"
    if slowed:
        return "fail", "; ".join(slowed), wanted, "see power supply and cooling: nvidia-smi -q"
    _need_all(machine)
    clocks = Counter(state["clocks.max.sm"] for state in states)
    cut = any(word not in (None, "Active", "Not Active") for reasons in told for word in reasons)
    if None in clocks or cut or any(reasons and not any(reasons) for reasons in told):
        raise Missing("the driver does not tell the clocks of every card, or what slows it down")
    found = ", ".join(f"{count} x {clock} MHz" for clock, count in clocks.items())
    return ("pass" if len(clocks) == 1 else "warn"), found, wanted, "nvidia-smi -rgc on all cards"


def check_idle(machine: Machine) -> Answer:
    """Nobody else on the cards, and no card that is busy without a process."""
    processes = machine.value("gpu_processes")
    wanted = "no process on the cards, and none of them busy or full"
    if processes:
        units = machine.reading("gpu_units").value or {}
        held = [_holder(one, units.get(one["pid"], "")) for one in processes]
        ours = dict.fromkeys(filter(None, (units.get(one["pid"]) for one in processes)))
        stop = f"systemctl stop {' '.join(ours)}" if ours else "systemctl status PID names its unit"
        fix = f"stop it yourself, nothing is ended for you: {stop}"
        return "fail", "; ".join(held[:8]), wanted, fix
    use, memory = _numbers(machine, "utilization.gpu"), _numbers(machine, "memory.used")
    busy = [
        f"{gpu}: {percent} % without a process"
        for gpu, percent in use.items()
        if percent is not None and percent >= machine.stack.busy_percent
    ]
    busy += [
        f"{gpu}: {mib} MiB held without a process"
        for gpu, mib in memory.items()
        if mib is not None and mib > machine.stack.gpu_used_mib
    ]
    if not busy:
        if None in (*use.values(), *memory.values()):
            raise Missing("the driver does not tell how busy and how full every card is")
        _need_all(machine)
    fix = (
        "a card that hangs after a failed start: nvidia-smi --gpu-reset -i N, else reboot; from "
        "inside a container no process is seen: look on its host"
    )
    return ("fail" if busy else "pass"), "; ".join(busy) or "idle", wanted, fix


def _numbers(machine: Machine, field: str) -> dict[str, int | None]:
    """A field of every card's state, ``None`` where it is no number."""
    told = {f"GPU {one['index']}": one[field] or "" for one in machine.value("gpu_states")}
    return {gpu: int(text) if text.isdecimal() else None for gpu, text in told.items()}


def _holder(process: Mapping[str, str | None], unit: str) -> str:
    who = f"pid {process['pid'] or 'unknown'} ({process['process_name'] or 'unknown'})"
    held = f"{process['used_mib'] or 'unknown'} MiB on {process['gpu_uuid']}"
    return ", ".join([who, *([f"unit {unit}"] if unit else []), held])


def _need_all(machine: Machine) -> None:
    """Raises ``Missing`` where the state of a card was cut off: the others do not speak for it."""
    told, cards = len(machine.value("gpu_states")), len(machine.gpus().gpus)
    if told < cards:
        raise Missing(f"the driver told the state of {told} of {cards} cards")


def _whole_settings(machine: Machine) -> dict[str, list[str]]:
    """The settings, which end with the IOMMU's. Raises ``Missing`` where they were cut off."""
    settings: dict[str, list[str]] = machine.value("settings")
    if IOMMU_GROUPS not in settings:
        raise Missing("settings are cut off")
    return settings


def _lines(machine: Machine, path: str) -> list[str]:
    lines: list[str] | None = machine.value("settings").get(path)
    if not lines:
        raise Missing(f"{path} could not be read")
    return lines


MACHINE_CHECKS: dict[str, Callable[[Machine], Answer]] = {
    "kernel_driver": check_kernel_driver,
    "nvcc": check_nvcc,
    "driver_options": check_driver_options,
    "numa": check_numa,
    "cpu_settings": check_cpu_settings,
    "huge_pages": check_huge_pages,
    "kernel_log": check_kernel_log,
    "ecc_errors": check_ecc_errors,
    "clocks": check_clocks,
    "idle": check_idle,
}
