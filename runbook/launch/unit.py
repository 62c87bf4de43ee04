"""A systemd unit rendered from a ``LaunchSpec``: the same renderer for the runtime unit that is
measured and for the unit that is installed, so that both are equal by construction."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from runbook.errors import BadInput
from runbook.launch.quoting import exec_line, plain_path, quote_assignment
from runbook.launch.spec import LaunchSpec

_HEADER = "# Managed by golive-runbook. A change by hand is shown as drift and never overwritten."
_HASH = re.compile(r"# content-sha256: ([0-9a-f]{64})")

#: Variables that systemd adds by itself. Where the spec does not name them they are taken out
#: again: the environment of a launch is whole.
_MANAGER_ADDS = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER")

#: Sandboxing: (option, value or ``None`` for "left off", why). What a GPU server stands.
SANDBOX: tuple[tuple[str, str | None, str], ...] = (
    ("NoNewPrivileges", "yes", "a server never gains rights; device nodes are made before it"),
    ("ProtectSystem", "full", "/usr, /boot and /etc read-only; caches lie elsewhere"),
    ("ProtectControlGroups", "yes", "no server writes cgroups"),
    ("ProtectKernelLogs", "yes", "no server reads the kernel log"),
    ("ProtectHostname", "yes", "no server renames the host"),
    ("LockPersonality", "yes", "no foreign execution domain"),
    ("RestrictSUIDSGID", "yes", "no setuid files"),
    ("RestrictRealtime", "yes", "no realtime scheduling"),
    ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK", "NCCL asks by netlink"),
    ("SystemCallArchitectures", "native", "no 32-bit calls"),
    (
        "SystemCallFilter",
        "~@clock @cpu-emulation @mount @obsolete @raw-io @reboot @swap",
        "leaves what CUDA and torch need: pidfd_getfd, memory policy, ptrace for profilers",
    ),
    ("SystemCallErrorNumber", "EPERM", "a refused call is an error, not the end of the server"),
    ("ProtectKernelModules", "yes", "the driver's modules are loaded before the server starts"),
    (
        "CapabilityBoundingSet",
        "~CAP_SYS_BOOT CAP_SYS_MODULE CAP_NET_ADMIN",
        "no server reboots the host, loads modules or sets up networks",
    ),
    ("MemoryDenyWriteExecute", None, "CUDA, Triton and FlashInfer compile at run time"),
    ("PrivateTmp", None, "the launch that was measured shared /tmp"),
    ("PrivateDevices", None, "hides /dev/nvidia*"),
    ("ProtectClock", None, "sets a device allow-list, which hides /dev/nvidia*"),
    ("DevicePolicy", None, "as above"),
    ("PrivateIPC", None, "NCCL and the workers share /dev/shm"),
    ("ProtectHome", None, "models and caches may lie below /root or /home"),
    ("ProtectKernelTunables", None, "NCCL and the topology probe read /sys and /proc whole"),
    ("ProcSubset", None, "as above"),
    ("RestrictNamespaces", None, "some workers isolate their compilers"),
)


#: What of ``LaunchSpec.process`` is which setting of a unit.
PROCESS_SETTINGS = {
    "cpus": "CPUAffinity",
    "numa_policy": "NUMAPolicy",
    "numa_nodes": "NUMAMask",
    "nice": "Nice",
    "io_class": "IOSchedulingClass",
    "io_priority": "IOSchedulingPriority",
    "cpu_policy": "CPUSchedulingPolicy",
    "cpu_priority": "CPUSchedulingPriority",
    "oom_score_adjust": "OOMScoreAdjust",
    "umask": "UMask",
}

#: The last step of a start. systemd counts every start against ``StartLimitBurst``, good ones too;
#: here, where a completion was served, its count begins anew, so that only failed starts are left.
FORGET_TRIES = "+-/usr/bin/systemctl reset-failed %n"

#: A section of a unit: its name, and keys with their values.
Section = tuple[str, Iterable[tuple[str, str]]]


@dataclass(frozen=True)
class UnitSettings:
    """What a unit adds to its ``LaunchSpec``. Times in seconds.

    ``restart_s``: pause before a restart, ``None`` for no restart at all. ``start_timeout_s``:
    from start to the end of the gate. ``gate``: the command that ends when the server has served,
    empty for none. ``guard``: the command that must end well before a start, empty for none.
    ``wanted_by``: the target that starts it at boot, ``None`` for a runtime unit. ``mounts``: paths
    whose file systems must be there. ``gpus``: cards whose driver is loaded and whose device nodes
    are made before the start, which a server without rights cannot; 0 for none. ``also``: units
    that are enabled and disabled with it. ``stopped``: the command that follows each stop, as
    root. ``document``: the path of what ``systemctl status`` shall point to, empty for none.
    """

    description: str
    start_timeout_s: float
    stop_timeout_s: float
    restart_s: float | None = None
    start_limit_burst: int = 3
    gate: tuple[str, ...] = ()
    wanted_by: str | None = None
    mounts: tuple[str, ...] = ()
    gpus: int = 0
    guard: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    document: str = ""

    @property
    def start_limit_interval_s(self) -> float:
        """Long enough that ``start_limit_burst`` starts fit in even if each one takes all its
        time; a shorter interval would never be used up, and a broken server restarted for ever."""
        one_start_s = self.start_timeout_s + self.stop_timeout_s + (self.restart_s or 0)
        return self.start_limit_burst * one_start_s + 60


def render_unit(spec: LaunchSpec, settings: UnitSettings) -> str:
    """The unit file as text, with a header that carries the hash of all below it.

    Raises ``BadInput`` for what systemd could not carry unchanged.
    """
    sections: list[Section] = [
        ("Unit", _unit_lines(settings)),
        ("Service", _service_lines(spec, settings)),
    ]
    if settings.wanted_by:
        install = [("WantedBy", settings.wanted_by), *(("Also", one) for one in settings.also)]
        sections.append(("Install", install))
    return _render(sections)


def render_boot_unit(unit: str, command: tuple[str, ...], wanted_by: str, writes: str) -> str:
    """A unit that runs ``command`` once at each boot, when the boot is over and the start of
    ``unit`` has ended in whatever way; it may write below ``writes``.

    Without default dependencies, so that ``wanted_by`` does not wait for it.
    """
    about = [
        ("Description", f"How {_one_line(unit)} came back at this boot"),
        ("DefaultDependencies", "no"),
        ("After", f"sysinit.target {wanted_by} {unit}"),
        ("Conflicts", "shutdown.target"),
        ("Before", "shutdown.target"),
    ]
    service = [
        ("Type", "oneshot"),
        ("RemainAfterExit", "yes"),
        ("ExecStart", exec_line(command)),
        ("ProtectSystem", "strict"),
        ("ReadWritePaths", writes),
        ("NoNewPrivileges", "yes"),
    ]
    install = [("WantedBy", wanted_by)]
    return _render([("Unit", about), ("Service", service), ("Install", install)])


def _render(sections: Iterable[Section]) -> str:
    body = "\n".join(
        f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in lines)
        for name, lines in sections
    )
    return f"{_HEADER}\n# content-sha256: {_digest(body)}\n\n{body}"


def is_managed(text: str) -> bool:
    """Whether the runbook wrote this unit, whatever was changed in it since."""
    header, _, rest = text.partition("\n")
    return header == _HEADER and _HASH.match(rest) is not None


def is_untouched(text: str) -> bool:
    """Whether the runbook wrote this unit and nobody has changed it since."""
    if not is_managed(text):
        return False
    _, hash_line, _, body = text.split("\n", 3)
    return hash_line.endswith(_digest(body))


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _unit_lines(settings: UnitSettings) -> Iterator[tuple[str, str]]:
    yield "Description", _one_line(settings.description)
    if settings.document:
        yield "Documentation", "file://" + quote(settings.document).replace("%", "%%")
    persistence = " nvidia-persistenced.service"
    yield "Wants", "network-online.target" + (persistence if settings.gpus else "")
    yield "After", "network-online.target" + persistence
    for path in settings.mounts:
        escaped = plain_path(path, "a mount path").replace("\\", "\\\\").replace('"', '\\"')
        yield "RequiresMountsFor", f'"{escaped}"'
    if settings.restart_s is not None:
        yield "StartLimitIntervalSec", _seconds(settings.start_limit_interval_s)
        yield "StartLimitBurst", str(settings.start_limit_burst)


def _service_lines(spec: LaunchSpec, settings: UnitSettings) -> Iterator[tuple[str, str]]:
    yield "Type", "exec"
    if spec.user:
        yield "User", spec.user
    yield "WorkingDirectory", plain_path(spec.cwd, "the working directory")
    for name, value in sorted(spec.env.items()):
        yield "Environment", quote_assignment(name, value)
    added = [name for name in _MANAGER_ADDS if name not in spec.env]
    if added:
        yield "UnsetEnvironment", " ".join(added)
    for name, path in sorted(spec.credentials.items()):
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or ":" in path:
            raise BadInput(
                f"the credential {name}:{path} cannot stand in a unit",
                "a simple name, and a path without a colon",
                "correct server.api_key.file",
            )
        yield "LoadCredential", f"{name}:{plain_path(path, 'a credential')}"
    yield from _driver_lines(settings.gpus)
    if settings.guard:
        yield "ExecStartPre", exec_line(settings.guard)
    yield "ExecStart", exec_line(spec.argv)
    if settings.gate:
        yield "ExecStartPost", exec_line(settings.gate)
        if settings.restart_s is not None:
            yield "ExecStartPost", FORGET_TRIES
    if settings.stopped:
        yield "ExecStopPost", "+-" + exec_line(settings.stopped)
    yield from _life_lines(settings)
    yield "LimitNOFILE", "infinity" if spec.nofile is None else str(spec.nofile)
    yield "LimitMEMLOCK", "infinity" if spec.memlock is None else str(spec.memlock)
    for name, limit in sorted({"core": 0, **spec.limits}.items()):
        yield f"Limit{name.upper()}", "infinity" if limit is None else str(limit)
    process = {"oom_score_adjust": -500, **spec.process}
    for name, value in process.items():
        yield PROCESS_SETTINGS[name], str(value)
    yield "SyslogIdentifier", "%N"
    yield "LogRateLimitIntervalSec", "0"
    for option, sandbox, _why in SANDBOX:
        if sandbox is not None:
            yield option, sandbox


def _driver_lines(gpus: int) -> Iterator[tuple[str, str]]:
    """Load the driver and make the node of each card (255: ``nvidiactl``), then those of unified
    memory. With ``-u`` the numbers are of ``nvidia-uvm``, and no card gets its node."""
    if gpus:
        minors = "".join(f" -c={minor}" for minor in (*range(gpus), 255))
        yield "ExecStartPre", f"+-/usr/bin/nvidia-modprobe{minors}"
        yield "ExecStartPre", "+-/usr/bin/nvidia-modprobe -u -c=0"


def _life_lines(settings: UnitSettings) -> Iterator[tuple[str, str]]:
    """Start, stop and restart. ``mixed``: SIGTERM goes to the main process alone, so that it can
    drain; what is left of its children is killed after it."""
    yield "TimeoutStartSec", _seconds(settings.start_timeout_s)
    yield "TimeoutStopSec", _seconds(settings.stop_timeout_s)
    yield "KillMode", "mixed"
    if settings.restart_s is None:
        yield "Restart", "no"
    else:
        yield "Restart", "always"
        yield "RestartSec", _seconds(settings.restart_s)


def _seconds(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "s"


def _one_line(text: str) -> str:
    """A description: one line, no specifiers, no continuation."""
    return " ".join(text.split()).replace("%", "%%").rstrip("\\")
