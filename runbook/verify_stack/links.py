"""How the cards reach one another: topology, P2P, and what of the machine stands between. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runbook.checks import Check, counted
from runbook.probe.topology import fingerprint, pairs, topology_class
from runbook.verify_stack.case import Answer, Machine, Missing
from runbook.verify_stack.gpu_checks import is_slow_awake

_IOMMU_OPTIONS = ("iommu", "iommu.passthrough", "amd_iommu", "intel_iommu")
_BUS_ID = r"[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,2}:[0-9A-Fa-f.]+"


def check_topology(machine: Machine) -> Answer:
    """Every pair told, of the class that the NCCL settings are for."""
    matrix, stack = machine.value("topology"), machine.stack
    links = stack.topology or "without NVLink, none across NUMA nodes"
    wanted = f"{counted(stack.gpus, 'GPU')}, {links}"
    faults = list(matrix["faults"])
    if len(matrix["gpus"]) != stack.gpus:
        faults.insert(0, counted(len(matrix["gpus"]), "GPU"))
    if faults:
        fix = "run nvidia-smi topo -m again; a card that is missing needs a reset or a reboot"
        return "fail", "; ".join(faults), wanted, fix
    kind = topology_class(matrix)
    if kind is None:
        raise Missing(f"links of no known kind: {_counted(matrix)}")
    found = f"{kind} ({_counted(matrix)}), fingerprint {fingerprint(matrix)}"
    if stack.topology:
        fix = f"tune the NCCL settings on this machine, then set stack.topology: {kind}"
        return ("pass" if kind == stack.topology else "fail"), found, wanted, fix
    if kind == "nvlink":
        fix = "this is not the PCIe-only machine the settings are for: see every NCCL variable"
        return "warn", found, wanted, fix
    if "system" in kind:
        fix = f"when the NCCL settings were tuned on such a machine, set stack.topology: {kind}"
        return "warn", found + _on_nodes(machine), wanted, fix
    return "pass", found, wanted, ""


def _on_nodes(machine: Machine) -> str:
    lscpu = machine.reading("lscpu").value
    if lscpu and lscpu["sockets"] and len(lscpu["nodes"]) > lscpu["sockets"]:
        said = f"; {len(lscpu['nodes'])} NUMA nodes on {lscpu['sockets']} sockets"
        return said + ": SYS does not mean the other socket"
    return ""


def _counted(matrix: Mapping[str, Any]) -> str:
    kinds = Counter(pairs(dict(matrix)).values())
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "no pair"


def check_p2p(machine: Machine) -> Answer:
    """What the driver says of reads between cards. OK does not yet mean that they come through."""
    return _check_peers(machine, "p2p", "reads")


def check_p2p_write(machine: Machine) -> Answer:
    """The same of writes, which have a matrix of their own."""
    return _check_peers(machine, "p2p_write", "writes")


def _check_peers(machine: Machine, fact: str, what: str) -> Answer:
    matrix, off = machine.value(fact), machine.p2p_is_off()
    names, wanted = matrix["gpus"], f"OK for every pair ({what})"
    bad = [
        f"{names[one]} from {names[other]}: {cell}"
        for one, row in enumerate(matrix["cells"])
        for other, cell in enumerate(row)
        if one != other and cell not in (None, "OK")
    ]
    asked = any(env.get("NCCL_P2P_LEVEL") for env in machine.variables().values())
    if bad:
        kinds = Counter(said.rpartition(" ")[2] for said in bad)
        counted = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
        found = f"{bad[0]} ({counted})" + (", and NCCL_P2P_DISABLE is set" if off else "")
        fix = "see ACS, IOMMU and the driver's options; or set NCCL_P2P_DISABLE=1 and measure"
        return ("fail" if asked and not off else "warn"), found, wanted, fix
    if matrix["faults"]:
        raise Missing("; ".join(matrix["faults"]))
    found = f"OK for all {len(pairs(matrix))} pairs: allowed, not yet seen to work"
    return "pass", found + (" (NCCL_P2P_DISABLE is set)" if off else ""), wanted, ""


def check_acs(machine: Machine) -> Answer:
    """Access control of the bridges above the cards sends their traffic over the root complex."""
    guest_of = _guest_of(machine)
    if guest_of:
        raise Missing(f"a guest of {guest_of}: its bridges are not those above the cards")
    above = [bridge for bridge in machine.value("acs") if _is_above(bridge, machine)]
    wanted = "ReqRedir- CmpltRedir- on every bridge above a GPU"
    if not above:
        raise Missing("no bridge above a GPU tells of it")
    on = [bridge["at"] or "a bridge that is not named" for bridge in above if bridge["redirects"]]
    if not on:
        _need_bridges(machine, above)
        return "pass", f"off on {len(above)} bridges", wanted, ""
    fix = (
        "switch ACS off in the BIOS, or with setpci after every boot: P2P hangs or is slow with it"
    )
    return ("warn" if machine.p2p_is_off() else "fail"), f"on: {', '.join(on)}", wanted, fix


def _need_bridges(machine: Machine, above: Sequence[Mapping[str, Any]]) -> None:
    """Raises ``Missing`` where one does not tell, or a card has none above it that does."""
    if any(bridge["redirects"] is None for bridge in above):
        raise Missing("what a bridge tells of it is cut off")
    if any(bridge["buses"] is None for bridge in above):
        return
    bare = [p for p in _places(machine) if not any(_holds(bridge, p) for bridge in above)]
    if bare:
        raise Missing(f"no bridge tells of it above {', '.join(map(':'.join, bare))}")


def _is_above(bridge: Mapping[str, Any], machine: Machine) -> bool:
    """Whether a card lies below ``bridge``; taken to be so where that cannot be told."""
    places = _places(machine)
    return bridge["buses"] is None or not places or any(_holds(bridge, one) for one in places)


def _places(machine: Machine) -> list[list[str]]:
    """Domain, bus and slot of the cards that tell theirs."""
    cards = (machine.reading("gpus").value or {"gpus": []})["gpus"]
    told = [card["bus_id"] for card in cards if re.fullmatch(_BUS_ID, card["bus_id"] or "")]
    return [place.split(":") for place in told]


def _holds(bridge: Mapping[str, Any], place: Sequence[str]) -> bool:
    domain = int(bridge["at"].split(":")[0], 16) if bridge["at"].count(":") == 2 else 0
    first, last = bridge["buses"]
    return int(place[0], 16) == domain and first <= int(place[1], 16) <= last


def check_iommu(machine: Machine) -> Answer:
    """Translation of addresses between cards costs their direct traffic."""
    words = machine.value("cmdline")
    said = [word for word in words if word.partition("=")[0] in _IOMMU_OPTIONS]
    wanted = "iommu=pt or off on the kernel's command line"
    settings = machine.reading("settings").value or {}
    groups = settings.get("/sys/kernel/iommu_groups", [None])[-1]
    passed, off = _iommu_asked(said)
    guest_of = _guest_of(machine)
    if guest_of and groups in (None, "0"):
        raise Missing(f"a guest of {guest_of}: the IOMMU that translates for it is the host's")
    if passed or (off and groups in (None, "0")):
        return "pass", " ".join(said), wanted, ""
    told = {None: "groups not known", "0": "no groups"}.get(groups, f"{groups} groups")
    strict = groups not in (None, "0") and not machine.p2p_is_off()
    fix = "add iommu=pt to GRUB_CMDLINE_LINUX, update-grub, reboot; then measure both ways"
    found = f"{' '.join(said) or 'not set'}; {told}"
    return ("fail" if strict else "warn"), found, wanted, fix


def _iommu_asked(words: Sequence[str]) -> tuple[bool, bool]:
    """Whether addresses pass untranslated, and whether it is off, as the kernel reads its command
    line: the last of several counts, and ``amd_iommu`` and ``intel_iommu`` know no ``pt``."""
    passed = off = False
    for word in words:
        name, _, values = word.partition("=")
        for value in values.split(","):
            if name == "iommu" and value in ("pt", "nopt"):
                passed = value == "pt"
            elif name == "iommu.passthrough":
                passed = value.lower() in ("1", "y", "on")
            elif value == "off":
                off = True
            elif (name, value) == ("intel_iommu", "on"):
                off = False
    return passed, off


def check_bar1(machine: Machine) -> Answer:
    """The window through which other devices reach a card's memory."""
    sizes = machine.value("bar1")
    memory = [gpu.memory_mib for gpu in machine.gpus().gpus]
    if None in sizes or None in memory or len(sizes) != len(memory):
        raise Missing(f"BAR1 of {len(sizes)} and memory of {len(memory)} cards, not all told")
    wanted = "as large as the card's memory"
    small = {at: size for at, size in enumerate(sizes) if size < memory[at]}
    if not small:
        return "pass", f"{min(sizes)} MiB", wanted, ""
    found = "; ".join(f"GPU {at}: {size} MiB" for at, size in small.items())
    closed = min(small.values()) <= machine.stack.small_bar_mib and not machine.p2p_is_off()
    fix = "switch on above-4G decoding and resizable BAR in the BIOS, NVreg_EnableResizableBar=1"
    return ("fail" if closed else "warn"), found, wanted, fix


def check_virtual_machine(machine: Machine) -> Answer:
    """A guest shows bridges, links and topology as its hypervisor makes them."""
    guest_of, wanted = machine.hypervisor(), "no hypervisor between the cards and this system"
    if not guest_of:
        return "pass", "none", wanted, ""
    fix = (
        "look at acs, iommu and the links on the hypervisor; let it show the guest sockets, NUMA "
        "nodes and root ports as they are; trust collective alone for what passes between cards"
    )
    return "warn", f"a guest of {guest_of}, its cards are passed through", wanted, fix


def _guest_of(machine: Machine) -> str:
    """The hypervisor; empty for none, and where nothing tells."""
    try:
        return machine.hypervisor()
    except Missing:
        return ""


#: What to do in a virtual machine, where it is something else, by the name of the check.
_IN_A_GUEST = {
    "pcie_link": "look at the card's own link on the hypervisor: lspci -vv -s BUS (LnkSta); a "
    "guest may show that of a virtual port",
    "topology": "let the hypervisor show sockets and root ports as they are (QEMU: a pxb-pcie a "
    "node), or tune NCCL for what is shown and set stack.topology to it",
    "p2p": "the hypervisor decides on it (QEMU: x-nv-gpudirect-clique, one number for all cards "
    "that reach one another); or set NCCL_P2P_DISABLE=1 and measure",
    "acs": "on the hypervisor, as root: lspci -vv; redirects that are off there also take away "
    "what keeps guests apart",
    "iommu": "on the hypervisor: it has to translate for a guest; a virtual IOMMU in the guest "
    "is not needed for the cards",
    "bar1": "above-4G decoding and resizable BAR in the BIOS of the hypervisor, and a 64-bit "
    "window of the guest that holds the BARs of all cards (QEMU with OVMF: X-PciMmio64Mb)",
    "numa": "let the hypervisor pin processors and memory of the guest to the nodes of its cards, "
    "and show it the same nodes",
    "cpu_settings": "the governor is that of the hypervisor; here: sysctl "
    "kernel.numa_balancing=0 vm.swappiness=10",
}
_IN_A_GUEST["p2p_write"] = _IN_A_GUEST["p2p"]


def in_a_guest(check: Check, machine: Machine) -> Check:
    """The check with the advice that fits, where the machine is a virtual one."""
    guest_of, fix = _guest_of(machine), _IN_A_GUEST.get(check.name)
    if not guest_of or fix is None or check.status in ("pass", "skipped"):
        return check
    told = "" if guest_of in check.found else f"; as a guest of {guest_of} sees it"
    return replace(check, found=check.found + told, fix=fix)


def at_work(check: Check, machine: Machine) -> Check:
    """``pcie_link``: a link that was slow while its card was busy has that speed at work."""
    gen = machine.stack.pcie_gen
    slow = [gpu for gpu in machine.gpus().gpus if is_slow_awake(gpu, gen)]
    states = machine.reading("gpu_states").value or []
    use = {state["index"]: state["utilization.gpu"] or "" for state in states}
    told = {gpu: use.get(str(gpu.index), "") for gpu in slow}
    least = machine.stack.busy_percent
    busy = [gpu for gpu, percent in told.items() if percent.isdecimal() and int(percent) >= least]
    if check.status != "warn" or not busy:
        return check
    said = ", ".join(f"{gpu} is {told[gpu]} % busy" for gpu in busy)
    fix = (
        "this is its speed at work: reset or reseat the card; see slot, riser, the BIOS setting of "
        "the link, and whether speed changes are switched off"
    )
    return replace(check, status="fail", found=f"{check.found}; {said}", fix=fix)


LINK_CHECKS: dict[str, Callable[[Machine], Answer]] = {
    "virtual_machine": check_virtual_machine,
    "topology": check_topology,
    "p2p": check_p2p,
    "p2p_write": check_p2p_write,
    "acs": check_acs,
    "iommu": check_iommu,
    "bar1": check_bar1,
}
