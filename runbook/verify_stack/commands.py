"""The facts of a host: a command, a pure parser of what it prints, a file that may hold that.

Parsers take any text (ANSI escapes, CRLF, cut off) and give plain JSON; ``ValueError`` says why a
text tells nothing. What a parser gives is described at each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from runbook.hosts.base import COMMAND_ENV
from runbook.launch.ports import unit_in
from runbook.probe.topology import parse_matrix
from runbook.verify_stack import gpus
from runbook.verify_stack.gpus import plain, rows_of

_OF_PROCESSES = ("gpu_uuid", "pid", "process_name", "used_mib")
_OF_TOPOLOGY = ("cpus", "numa")
_UNIT = re.compile(r"(?<=\d) (%|MiB|MHz)$")
NO_DRIVER = "no NVIDIA driver on this host (nvidia-smi is not there)"

#: Maker and product of the machine, as its firmware names them.
DMI = ("/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name")
SETTINGS = (
    *DMI,
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/vm/swappiness",
    "/proc/meminfo",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/etc/modprobe.d/*.conf",
    "/etc/nccl.conf",
    "~root/.nccl.conf",
)
IOMMU_GROUPS = "/sys/kernel/iommu_groups"

_READ_SETTINGS = (
    f'grep -sH "" {" ".join(SETTINGS)}; '
    f"echo {IOMMU_GROUPS}:$(ls {IOMMU_GROUPS} 2>/dev/null | wc -l)"
)
#: The control group of each process that holds a card, as ``grep -H`` prints it.
_READ_UNITS = (
    "command -v nvidia-smi >/dev/null || exit 127; "
    "for pid in $(nvidia-smi --query-compute-apps=pid --format=csv,noheader,nounits | sort -u); "
    'do grep -sH "" /proc/$pid/cgroup; done; echo /proc/end:'
)
_READ_ACS = (
    "command -v lspci >/dev/null || exit 127; "
    "lspci -Dvv | grep -E '^[0-9a-f]|Bus: primary|ACSCtl|access denied'"
)
#: The kernel's first line is taken along: it shows that its log could be read at all. A link that
#: goes on correcting errors must not crowd out what is worse.
_READ_KERNEL_LOG = (
    "{ journalctl -kb --no-pager -o short-iso 2>/dev/null || dmesg; } | awk "
    "'/Linux version|NVRM: Xid/ || (/AER: |PCIe Bus Error/ && (/ncorrect|[Ff]atal/ || n++ < 500))' "
    "| tail -n 2000 "
    '| awk \'{l[NR] = $0} END {if (NR) print "# lines of the kernel log: " NR; '
    "for (i = 1; i <= NR; i++) print l[i]}'"
)
#: What stands before the lines of a kernel log: one that ends at a line's end looks whole.
_COUNTED = re.compile(r"# lines of the kernel log: (\d+)$")
#: Every port says once, at boot, that its AER is enabled.
_FAULT = r"NVRM: Xid|AER: (?!enabled with IRQ)|PCIe Bus Error"


@dataclass(frozen=True)
class Fact:
    """A command of the host, the parser of what it prints, and the file that holds a captured copy.

    ``program``: what is missing when the command is not there. A parser takes text that ends
    anywhere: what is not there whole is not told.
    """

    name: str
    file: str
    program: str
    argv: tuple[str, ...]
    parse: Callable[[str], Any]


def parse_gpu_list(text: str) -> dict[str, Any]:
    """``GpuList`` as plain data. No card and no fault is a list too: of none."""
    found = gpus.parse_gpus(text)
    return {"gpus": [asdict(gpu) for gpu in found.gpus], "faults": list(found.faults)}


def parse_gpu_states(text: str) -> list[dict[str, str | None]]:
    """A dict a card by the names of ``gpus.STATE_QUERY``."""
    names = gpus.STATE_QUERY.split(",")
    told = [row for row in rows_of(text) if len(row) == len(names) and row[0] != "index"]
    rows = [row for row in told if all(row)]  # an empty field is one that was cut off
    rows = [[_UNIT.sub("", field) for field in row] for row in rows]
    if not rows:
        raise ValueError(_said(text))
    return [dict(zip(names, map(gpus.value_of, row), strict=True)) for row in rows]


def parse_processes(text: str) -> list[dict[str, str | None]]:
    """Processes that hold a card: ``gpu_uuid``, ``pid``, ``process_name``, ``used_mib``."""
    found = []
    for row in rows_of(text):
        if row[0].startswith(("GPU-", "MIG-")):
            uuid, pid, *name, used = row + [""] * (4 - len(row))
            values = (uuid, gpus.value_of(pid), ",".join(name), gpus.value_of(used))
            found.append(dict(zip(_OF_PROCESSES, values, strict=True)))
        elif row[0] != "gpu_uuid" and not row[0].startswith("No running"):
            raise ValueError(_said(text))
    if not found and not any(map(str.strip, _whole_lines(text))):
        raise ValueError(_said(text))  # not even a whole heading
    return found


def parse_units(text: str) -> dict[str, str]:
    """Innermost unit of each process that holds a card, by its number."""
    told = {path: unit_in("\n".join(lines)) for path, lines in parse_settings(text).items()}
    return {"".join(re.findall(r"\d+", path)[:1]): unit for path, unit in told.items() if unit}


def parse_bar1(text: str) -> list[int | None]:
    """BAR1 of each card in MiB, in the order of ``nvidia-smi -q -d MEMORY``."""
    found = re.findall(r"BAR1 Memory Usage\s+Total\s*:\s*([^\r\n]+)", plain(text))
    if not found:
        raise ValueError(_said(text))
    whole = [re.fullmatch(r"(\d+) MiB\s*", one) for one in found]
    return [int(match[1]) if match else None for match in whole]


def parse_pairs(text: str) -> dict[str, Any]:
    """The matrix of ``nvidia-smi topo``, as ``probe.topology.parse_matrix`` gives it."""
    found = parse_matrix(text)
    if not found["gpus"]:
        raise ValueError(_said(text))
    return found


def parse_peers(text: str) -> dict[str, Any]:
    """The matrix of ``nvidia-smi topo -p2p``, which has no column on processors or nodes."""
    return {name: value for name, value in parse_pairs(text).items() if name not in _OF_TOPOLOGY}


def parse_nvcc(text: str) -> dict[str, str]:
    """``release`` ("13.0") and ``version`` ("13.0.88", or the release again)."""
    match = re.search(r"release\s+(\d+\.\d+)(?=[,\s])(?:,\s*V(\d[\d.]*\d)(?=\s))?", plain(text))
    if not match:
        raise ValueError(_said(text))
    return {"release": match[1], "version": match[2] or match[1]}


def parse_words(text: str) -> list[str]:
    """The words of one line."""
    if not text.strip():
        raise ValueError("it is empty")
    return plain(text).split()


def parse_acs(text: str) -> list[dict[str, Any]]:
    """Bridges that tell their access control: ``at`` (empty where the excerpt does not say),
    ``buses`` below (first and last, ``None`` likewise), ``redirects`` (``None`` where the line is
    cut off)."""
    found: list[dict[str, Any]] = []
    at, bridge, buses, denied = "", True, None, False
    for line in plain(text).splitlines():
        head = re.match(r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)", line)
        below = re.search(r"secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})", line)
        if head:
            at, bridge, buses = head[1], "PCI bridge" in head[2], None
        elif below:
            buses = [int(below[1], 16), int(below[2], 16)]
        elif "ACSCtl" in line and bridge:
            told = re.findall(r"(?:Req|Cmplt)Redir([+-])", line)
            redirects = True if "+" in told else False if len(told) == 2 else None
            found.append({"at": at, "buses": buses, "redirects": redirects})
        denied = denied or "access denied" in line
    if not found:
        why = "lspci shows it to root alone" if denied else "no bridge tells of it"
        raise ValueError(f"{why}: {_said(text)}")
    return found


def parse_settings(text: str) -> dict[str, list[str]]:
    """Lines by path, as ``grep -H`` prints them."""
    found: dict[str, list[str]] = {}
    for line in _whole_lines(text):
        path, colon, value = line.partition(":")
        if colon and path.startswith("/"):
            found.setdefault(path, []).append(value.strip())
    if not found:
        raise ValueError(_said(text))
    return found


def parse_lscpu(text: str) -> dict[str, Any]:
    """``model``, ``sockets``, ``nodes`` (name -> list of processors), ``offline``,
    ``hypervisor`` (empty where it names none)."""
    fields = {}
    for line in _whole_lines(text):
        key, colon, value = line.partition(":")
        if colon:
            fields[key.strip()] = value.strip()
    if "Socket(s)" not in fields and "Model name" not in fields:
        raise ValueError(_said(text))
    sockets = fields.get("Socket(s)", "")
    nodes = {
        key.split()[1]: value for key, value in fields.items() if re.match(r"NUMA node\d", key)
    }
    count = fields.get("NUMA node(s)", "")
    if count.isdecimal() and int(count) > len(nodes):
        raise ValueError(f"it is cut off: {len(nodes)} of {count} NUMA nodes")
    return {
        "model": fields.get("Model name"),
        "sockets": int(sockets) if sockets.isdecimal() else None,
        "nodes": nodes,
        "offline": fields.get("Off-line CPU(s) list") or fields.get("Offline CPU(s) list") or "",
        "hypervisor": fields.get("Hypervisor vendor", ""),
    }


def parse_kernel_log(text: str) -> list[str]:
    """Lines on faults of GPUs and of PCIe since boot; the log must have been readable.

    Where their number stands before them, as ``--capture`` writes it, fewer are a log cut off.
    """
    lines = [line.strip() for line in plain(text).splitlines() if line.strip()]
    if not lines or re.search(r"permission|not permitted|No journal files", text):
        raise ValueError(_said(text))
    faults = [line[:300] for line in lines if re.search(_FAULT, line)]
    told = _COUNTED.match(lines[0])
    is_short = told is not None and len(lines) - 1 < int(told[1])
    if not faults and (is_short or not text.endswith("\n")):
        raise ValueError("it is cut off")
    return faults


def parse_systemd_version(text: str) -> int:
    """The number in ``systemd 252 (252.38-1~deb12u1)``."""
    match = re.match(r"systemd (\d+)\s", plain(text))
    if not match:
        raise ValueError(_said(text))
    return int(match[1])


def parse_state(text: str) -> str:
    """One word, as ``systemctl is-system-running`` and ``systemd-detect-virt`` say it."""
    words = plain(text).split()
    if len(words) != 1:
        raise ValueError(_said(text))
    return words[0]


def _said(text: str) -> str:
    return f"it says: {' '.join(plain(text).split())[:200]}" if text.strip() else "it says nothing"


def _whole_lines(text: str) -> list[str]:
    """The lines that have an end: the last one may be cut off where it has none."""
    return [line.rstrip("\r\n") for line in plain(text).splitlines(True) if line.endswith("\n")]


def _smi(*words: str) -> tuple[str, ...]:
    return ("nvidia-smi", *words)


def host_facts(path: str | None = None) -> tuple[Fact, ...]:
    """Every fact of a host; ``path``: the PATH on which the server will look for its compiler."""
    nvcc_path = path or COMMAND_ENV["PATH"] + ":/usr/local/cuda/bin"
    apps = "--query-compute-apps=gpu_uuid,pid,process_name,used_gpu_memory"
    smi, shell = "nvidia-smi", ("sh", "-c")
    nvcc = (*shell, 'PATH="$1" exec nvcc --version', "sh", nvcc_path)
    return (
        Fact("gpus", "nvidia-smi-query.csv", smi, gpus.COMMAND, parse_gpu_list),
        Fact("gpu_states", "nvidia-smi-state.csv", smi, gpus.STATE_COMMAND, parse_gpu_states),
        Fact(
            *("gpu_processes", "nvidia-smi-compute-apps.csv", smi),
            *(_smi(apps, "--format=csv,nounits"), parse_processes),
        ),
        Fact(
            *("gpu_units", "nvidia-smi-compute-apps-cgroups.txt", smi),
            *((*shell, _READ_UNITS), parse_units),
        ),
        Fact("bar1", "nvidia-smi-q-memory.txt", smi, _smi("-q", "-d", "MEMORY"), parse_bar1),
        Fact("topology", "nvidia-smi-topo-m.txt", smi, _smi("topo", "-m"), parse_pairs),
        Fact("p2p", "nvidia-smi-topo-p2p-r.txt", smi, _smi("topo", "-p2p", "r"), parse_peers),
        Fact("p2p_write", "nvidia-smi-topo-p2p-w.txt", smi, _smi("topo", "-p2p", "w"), parse_peers),
        Fact("nvcc", "nvcc-version.txt", "nvcc", nvcc, parse_nvcc),
        Fact("cmdline", "proc-cmdline.txt", "cat", ("cat", "/proc/cmdline"), parse_words),
        Fact("acs", "lspci-acs.txt", "lspci", (*shell, _READ_ACS), parse_acs),
        Fact("settings", "settings.txt", "grep", (*shell, _READ_SETTINGS), parse_settings),
        Fact("lscpu", "lscpu.txt", "lscpu", ("lscpu",), parse_lscpu),
        Fact(
            *("virtual_machine", "systemd-detect-virt.txt", "systemd-detect-virt"),
            *(("systemd-detect-virt", "--vm"), parse_state),
        ),
        Fact(
            *("kernel_log", "kernel-log.txt", "dmesg", (*shell, _READ_KERNEL_LOG)),
            parse_kernel_log,
        ),
        Fact(
            *("systemd_version", "systemctl-version.txt", "systemctl"),
            *(("systemctl", "--version"), parse_systemd_version),
        ),
        Fact(
            *("systemd_state", "systemctl-is-system-running.txt", "systemctl"),
            *(("systemctl", "is-system-running"), parse_state),
        ),
    )
