"""What a check may look at, and how it answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runbook.checks import Check, Status
from runbook.launch.spec import LaunchSpec
from runbook.params import Params, Stack
from runbook.probe.ask import ServingFacts
from runbook.verify_stack.commands import DMI
from runbook.verify_stack.facts import Reading, StackFacts
from runbook.verify_stack.gpus import GpuList, gpus_from

Answer = tuple[Status, str, str, str]  # status, found, wanted, fix


class Missing(Exception):
    """A fact is missing; the text says why."""


@dataclass(frozen=True)
class Machine:
    """The facts of a host, what is required of it, and the launches that will run there."""

    facts: StackFacts
    stack: Stack
    specs: Mapping[str, LaunchSpec]

    def reading(self, name: str) -> Reading:
        """The reading of a fact, also of one that an older record does not have."""
        return self.facts.host.get(name, Reading(reason="it was not asked", asked=False))

    def value(self, name: str) -> Any:
        """The value of a fact of the host. Raises ``Missing``."""
        reading = self.reading(name)
        if reading.value is None:
            raise Missing(reading.reason)
        return reading.value

    def gpus(self) -> GpuList:
        """The cards. Raises ``Missing``."""
        return gpus_from(self.value("gpus"))

    def variables(self) -> dict[str, dict[str, str]]:
        """Of each configuration the variables it gets, and those set at the start of Python."""
        seen = self.facts.seen()
        return {name: {**spec.env, **seen.variables(name)} for name, spec in self.specs.items()}

    def p2p_is_off(self) -> bool:
        """Whether every configuration forbids NCCL to let cards talk to one another."""
        told = self.variables().values()
        return bool(told) and all(
            env.get("NCCL_P2P_DISABLE", "") not in ("", "0") or env.get("NCCL_P2P_LEVEL") == "LOC"
            for env in told
        )

    def hypervisor(self) -> str:
        """What this machine is a guest of, empty for none. Raises ``Missing`` where nothing tells.

        ``systemd-detect-virt --vm`` first, which knows a host that runs guests itself; then the
        processor's own word, which stands before the NUMA nodes in what lscpu prints.
        """
        detected = self.reading("virtual_machine").value
        if detected is not None:
            return "" if detected == "none" else str(detected)
        settings = self.reading("settings").value or {}
        product = " ".join(line for path in DMI for line in settings.get(path, []))
        if _VIRTUAL.search(product):
            return product
        lscpu = self.value("lscpu")
        if lscpu.get("hypervisor"):
            return str(lscpu["hypervisor"])
        if not lscpu["nodes"]:
            raise Missing("lscpu was cut off before it tells of a hypervisor")
        return ""


#: Makers and products of virtual machines, as their firmware names them.
_VIRTUAL = re.compile(
    r"\b(QEMU|KVM|VMware|VirtualBox|Virtual Machine|Xen|Bochs|BHYVE|OpenStack|Nutanix|oVirt|RHEV"
    r"|Google Compute Engine|Parallels)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Case(Machine):
    """A machine and the deployment that is wanted there."""

    params: Params
    distribution: str


@dataclass(frozen=True)
class Launch:
    """One configuration's launch, what its interpreter told, and the case it belongs to."""

    name: str
    spec: LaunchSpec
    serving: ServingFacts
    case: Case

    def need(self, name: str) -> Any:
        """A fact that the interpreter told. Raises ``Missing``."""
        value = self.serving.facts.get(name)
        if value is None:
            raise Missing(self.serving.why_unknown(name))
        return value


def ask_machine(name: str, judge: Callable[[Machine], Answer], machine: Machine) -> Check:
    """The check ``name`` as ``judge`` answers it; a missing fact makes it unknown."""
    try:
        status, found, wanted, fix = judge(machine)
    except Missing as error:
        return Check(name, "unknown", str(error))
    return Check(name, status, found, wanted, "" if status == "pass" else fix)
