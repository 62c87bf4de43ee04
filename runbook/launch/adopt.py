"""A server that somebody started by hand, read back as a ``LaunchSpec``. It is left alone.

Secrets among its arguments and variables are left out: they are named, their values never kept.
What it has besides them (processors, memory nodes, priorities, umask, limits) is carried where it
is another than a service has by itself, and named where no unit can carry it. A process of a
container is refused: its paths, users and devices are not this machine's.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook.errors import BadInput, NotHere
from runbook.launch.ports import unit_of
from runbook.launch.spec import KERNEL_NAMES, MANAGER_SETS, LaunchSpec
from runbook.probe.attributes import (
    CPU_POLICIES,
    NUMA_POLICIES,
    apart_in,
    numbers_in,
    read_attributes,
)
from runbook.probe.look import limits, look_at
from runbook.redaction import is_secret

#: Variables of a login session; a service has none of them.
_SESSION = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM|COLORTERM|COLUMNS|LINES|PS\d|PROMPT_COMMAND|LS_COLORS|LESS.*|MAIL"
    r"|EDITOR|VISUAL|PAGER|HIST\w+|DISPLAY|XAUTHORITY|WINDOWID|STY|TMUX.*|LOGNAME|USER|USERNAME"
    r"|SHELL|HOSTNAME|(?:SSH|SUDO|XDG_SESSION|VSCODE|TERM|GNOME|VTE)_.*|XDG_RUNTIME_DIR"
    r"|DBUS_SESSION_BUS_ADDRESS|MOTD_SHOWN"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Files of a control group, and what stands in them where nothing is limited.
_GROUP_LIMITS = {
    **{"cpu.max": r"max \d+", "cpu.weight": "100", "io.max": "", "io.weight": "default 100"},
    **{"memory.max": "max", "memory.high": "max", "memory.swap.max": "max"},
}
_OWN_PARAMETER = ("nofile", "memlock")
#: What a service has where its unit names nothing else; processors and memory nodes are those of
#: process 1.
_OF_A_SERVICE = {"nice": 0, "cpu_policy": "other", "oom_score_adjust": 0, "umask": "0022"}
#: Control groups of containers: kind, and the name or number of one.
_CONTAINERS = (
    ("kubernetes", r"kubepods.*?(?:cri-containerd-|crio-|docker-|/)([0-9a-f]{12,64})"),
    ("podman", r"libpod(?:-conmon)?-([0-9a-f]{12,64})"),
    ("docker", r"docker[-/]([0-9a-f]{12,64})"),
    ("lxc", r"lxc(?:\.payload\.|/)([^/\s]+)"),
    ("systemd-nspawn", r"systemd-nspawn@([^/\s]+)\.service"),
    ("containerd", r"(?:^|/)(?:default|moby|buildkit)/([0-9a-z]{12,64})"),
)
_LOOK_INSIDE = {
    "docker": "docker inspect {} shows its arguments, variables and mounts",
    "podman": "podman inspect {} shows its arguments, variables and mounts",
    "kubernetes": "kubectl get pod -o yaml, or crictl inspect {}, shows them",
    "containerd": "ctr container info {} shows its arguments, variables and mounts",
    "lxc": "lxc exec {} -- runbook adopt ... inside it, if it is to stay there",
    "systemd-nspawn": "machinectl shell {}: runbook adopt ... inside it, if it is to stay there",
}
#: Programs that only talk to a container, by their names.
_CLIENTS = ("docker", "podman", "nerdctl", "kubectl", "apptainer", "singularity", "ctr", "lxc")


@dataclass(frozen=True)
class Seen:
    """A process: ``argv`` and ``environ`` are ``None`` where it hides or overwrote them.

    ``program``: its absolute path as it was started; ``unit``: the service it belongs to.
    ``started``: when, in seconds of the epoch. ``attributes``: as ``probe.attributes`` reads them;
    ``plain``: those of process 1, with its ``limits``: what a service has by itself.
    """

    pid: int
    argv: tuple[str, ...] | None
    environ: Mapping[str, str] | None
    cwd: str | None
    program: str
    user: str
    limits: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None
    notes: tuple[str, ...] = ()
    started: float | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    plain: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Adopted:
    """``secrets`` and ``session``: names of what was left out; ``notes``: what is not known."""

    spec: LaunchSpec
    secrets: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def adopt_launch(seen: Seen) -> Adopted:
    """The launch of a process, without secrets. Pure. Raises ``BadInput`` without arguments."""
    if seen.argv is None:
        raise BadInput(
            f"process {seen.pid} hides or overwrote its command line",
            "the launcher of the server, not one of its workers",
            f"name its parent: ps -o ppid= -p {seen.pid}",
        )
    if any(re.search(r"[\ud800-\udfff]", word) for word in seen.argv):
        raise BadInput(
            f"an argument of process {seen.pid} is no UTF-8 text", "text", "write the file by hand"
        )
    secret = _secret_values(seen)
    argv, secret_options = _without_secrets(seen.argv[1:], secret)
    env, secret_names, session, notes = _split_environment(seen.environ, secret)
    found_limits, unread = _limits(seen.limits)
    process, uncarried = carry_attributes(seen.attributes, seen.plain)
    spec = LaunchSpec(
        argv=(seen.program, *argv),
        env=env,
        cwd=seen.cwd or "/",
        user="" if seen.user == "root" else seen.user,
        limits=_further_limits(seen.limits, seen.plain.get("limits") or {}),
        process=process,
        **found_limits,
    )
    if seen.cwd is None:
        notes.append("its working directory cannot be read: / stands for it")
    return Adopted(
        spec,
        (*secret_options, *secret_names),
        tuple(session),
        (*seen.notes, *notes, *unread, *uncarried),
    )


def _without_secrets(words: Sequence[str], secret: set[str]) -> tuple[list[str], list[str]]:
    """The words without secrets, and the options that carried them."""
    kept: list[str] = []
    named: list[str] = []
    for option, value, of_option in _options(words):
        if is_secret(option, value) or any(one in value or one in option for one in secret):
            named.append(option.partition("=")[0] if option.startswith("-") else "an argument")
        else:
            kept += of_option
    return kept, named


def _options(words: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Each option with its value and its words; a word that belongs to none by itself."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if not word.startswith("--"):
            yield word, "", [word]
        elif equals or not rest or rest[0].startswith("--"):
            yield option, value, [word]
        else:
            following = rest.pop(0)
            yield option, following, [word, following]


def _split_environment(
    environ: Mapping[str, str] | None, secret: set[str]
) -> tuple[dict[str, str], list[str], list[str], list[str]]:
    """What a service gets, names of secrets, of what belongs to a session, and notes."""
    if environ is None:
        return {}, [], [], ["its environment cannot be read: write server.env by hand"]
    kept: dict[str, str] = {}
    secrets, session, notes = [], [], []
    for name, value in sorted(environ.items()):
        if is_secret(name, value) or any(one in value for one in secret):
            secrets.append(name)
        elif _SESSION.fullmatch(name) or name in MANAGER_SETS or name.startswith("RUNBOOK_"):
            session.append(name)
        elif not _NAME.fullmatch(name) or not _carried(value):
            notes.append(f"the variable {name} cannot stand in a unit and is left out")
        else:
            kept[name] = value
    return kept, secrets, session, notes


def _carried(value: str) -> bool:
    return not re.search(r"[\x00\n\r\ud800-\udfff]", value)


def _secret_values(seen: Seen) -> set[str]:
    """The secrets themselves: one may stand elsewhere under a harmless name."""
    pairs = [(option, value) for option, value, _ in _options((seen.argv or ())[1:])]
    pairs += (seen.environ or {}).items()
    return {value for name, value in pairs if len(value) >= 8 and is_secret(name, value)}


def _limits(found: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    limits: dict[str, Any] = {}
    unread = []
    for name in _OWN_PARAMETER:
        text = found.get(KERNEL_NAMES[name], "")
        if text == "unlimited" or text.isdigit():
            limits[name] = None if text == "unlimited" else int(text)
        else:
            unread.append(f"its limit {name} cannot be read: the default stands for it")
    return limits, unread


def _further_limits(found: Mapping[str, str], plain: Mapping[str, str]) -> dict[str, int | None]:
    """The other limits that are not those of a service here."""
    further: dict[str, int | None] = {}
    for name, kernel_name in KERNEL_NAMES.items():
        text, usual = found.get(kernel_name, ""), plain.get(kernel_name)
        known = text == "unlimited" or text.isdigit()
        if name not in _OWN_PARAMETER and known and usual is not None and text != usual:
            further[name] = None if text == "unlimited" else int(text)
    return further


def carry_attributes(
    found: Mapping[str, Any], plain: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """What differs from a service's, by the names of ``server.process``, and notes on what no unit
    can carry or nobody could see. Pure."""
    if not found:
        return {}, []
    carried: dict[str, Any] = {}
    notes = []
    cpus, usual = found.get("cpus"), plain.get("cpus")
    if cpus and usual and numbers_in(cpus) != numbers_in(usual):
        carried["cpus"] = cpus
    for name, value in _OF_A_SERVICE.items():
        if found.get(name) not in (None, value):
            carried[name] = found[name]
    if not _follows_nice(found):
        carried["io_class"] = found["io_class"]
        if found.get("io_priority") is not None:
            carried["io_priority"] = found["io_priority"]
    policy = carried.get("cpu_policy")
    if policy in ("fifo", "rr"):
        carried["cpu_priority"] = found.get("cpu_priority") or 1
    elif policy is not None and policy not in CPU_POLICIES.values():
        del carried["cpu_policy"]
        notes.append(f"its scheduling policy ({policy}) has no setting in a unit and is left out")
    unseen = [name for name in ("cpus", *_OF_A_SERVICE, "io_class") if found.get(name) is None]
    if unseen:
        notes.append(f"could not be seen, and is as in any service: {', '.join(unseen)}")
    numa, said = _memory(found, plain)
    return {**carried, **numa}, [*notes, *said]


def _follows_nice(found: Mapping[str, Any]) -> bool:
    """Whether its class at the disk is that of its nice value: some kernels tell that one where
    none was set."""
    io_class, nice = found.get("io_class"), found.get("nice") or 0
    follows = ("best-effort", (nice + 20) // 5)
    return io_class in (None, "none") or (io_class, found.get("io_priority")) == follows


def _memory(found: Mapping[str, Any], plain: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Where its memory lies: by the policy that the kernel shows with its stack, or by its cpuset,
    which a unit can only carry as a policy."""
    policy, nodes = found.get("numa_policy"), found.get("numa_nodes") or ""
    mems, usual = found.get("mems"), plain.get("mems")
    if policy == "local" or (policy in NUMA_POLICIES and policy != "default" and nodes):
        return {"numa_policy": policy, **({"numa_nodes": nodes} if nodes else {})}, []
    if policy not in (None, "default"):
        said = f"its memory policy ({policy}) has no setting in a unit and is left out"
        return {}, [said]
    if mems and usual and numbers_in(mems) != numbers_in(usual):
        said = f"its cpuset leaves it the memory nodes {mems}: carried as numa_policy: bind"
        return {"numa_policy": "bind", "numa_nodes": mems}, [said]
    if policy is None and len(numbers_in(usual or "")) > 1:
        said = (
            "a memory policy (numactl) cannot be seen here: look at it as root, numa_maps shows it"
        )
        return {}, [said]
    return {}, []


def container_in(cgroups: str) -> tuple[str, str] | None:
    """Kind and name of the container that a process belongs to by its control groups. Pure."""
    for kind, pattern in _CONTAINERS:
        match = re.search(pattern, cgroups, re.MULTILINE)
        if match:
            return kind, match[1]
    return None


def refuse_container(
    pid: int, apart: Sequence[str], cgroups: str, same_program: bool | None
) -> None:
    """Raise ``BadInput`` for a process whose paths, users, ports or processes are not those of this
    machine. A unit of its own may have mounts of its own too (PrivateTmp), but the same program.
    """
    foreign = {"pid", "net", "user", "root"} & set(apart)
    if not foreign and not ("mnt" in apart and same_program is False):
        return
    kind, name = container_in(cgroups) or ("", "")
    what = f"a {kind} container ({name[:12]})" if kind else "a container or namespaces of its own"
    inside = _LOOK_INSIDE.get(kind, "nsenter --target {pid} --all shows it from inside").format(
        name[:12], pid=pid
    )
    raise BadInput(
        f"process {pid} runs in {what}, apart in {', '.join(apart)}: its paths, users and ports "
        "are not those of this machine, and a unit made of them would start something else",
        "a server that runs on the machine itself",
        f"{inside}; write the parameters by hand, with the paths of this machine, or start it "
        "outside and adopt that",
    )


# --- looking at this machine ---------------------------------------------------------------


#: How the kernel marks what a process still has and nobody else finds any more.
_DELETED = " (deleted)"
_GONE = {
    "cwd": "its working directory {} was removed since it started: make it, or set server.cwd",
    "exe": "its program {} was replaced since it started: what is there now may be another release",
}


def see(pid: int) -> Seen:
    """A process of this machine. Raises ``NotHere`` when there is none of that number."""
    found = look_at(str(pid))
    if found is None:
        raise NotHere(f"there is no process {pid}", "a server that runs", "ps aux lists them")
    apart = apart_in(str(pid))
    refuse_container(pid, apart or (), _cgroups(pid), _same_program(pid, found["exe"]))
    gone = [name for name in ("cwd", "exe") if (found[name] or "").endswith(_DELETED)]
    found.update({name: found[name].removesuffix(_DELETED) for name in gone})
    environ = found["environ"]
    variables = None if environ is None else dict(word.split("=", 1) for word in environ)
    argv = None if found["argv"] is None else tuple(found["argv"])
    program, notes = find_program(argv or ("",), variables or {}, found["cwd"], found["exe"])
    return Seen(
        pid,
        argv,
        variables,
        found["cwd"],
        program,
        _name_of(found["uid"]),
        found["limits"] or {},
        unit_of(pid),
        (
            *notes,
            *(_GONE[name].format(found[name]) for name in gone),
            *_of_mounts(apart),
            *_of_group(found["cgroup"]),
        ),
        found["started"],
        found["attributes"],
        {**read_attributes("1"), "limits": limits(Path("/proc/1/limits"))},
    )


def group_limits(folder: Path) -> list[str]:
    """What the control group of a process limits (cgroup 2), each as its file and value."""
    found = []
    for name, usual in _GROUP_LIMITS.items():
        try:
            value = " ".join((folder / name).read_text().split())
        except OSError:
            continue
        if not re.fullmatch(usual, value):
            found.append(f"{name} {value}")
    return found


def _of_group(group: str | None) -> list[str]:
    limited = group_limits(Path(f"/sys/fs/cgroup{group}")) if group not in (None, "/") else []
    said = "its control group limits it, which no parameter carries"
    return [f"{said}: {', '.join(limited)}"] if limited else []


def _of_mounts(apart: Sequence[str] | None) -> list[str]:
    if apart is None:
        return ["whether it runs in a container cannot be seen: look as root"]
    if "mnt" in apart:
        return [
            "it has mounts of its own (PrivateTmp, ProtectSystem): files of it may lie elsewhere"
        ]
    return []


def _cgroups(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""


def _same_program(pid: int, exe: str | None) -> bool | None:
    """Whether its program is the file that lies here under that name; ``None`` where unseen."""
    if exe is None:
        return None
    try:
        return Path(f"/proc/{pid}/exe").samefile(exe)
    except FileNotFoundError:
        return None if exe.endswith(_DELETED) else False
    except OSError:
        return None


def find_program(
    argv: Sequence[str], environ: Mapping[str, str], cwd: str | None, exe: str | None
) -> tuple[str, tuple[str, ...]]:
    """The program as it was called: a virtual environment is known by that path alone."""
    if exe is None:
        raise NotHere("the program of the process cannot be seen", "its rights", "run this as root")
    called = argv[0]
    folders = [""] if "/" in called else environ.get("PATH", "").split(":")
    for folder in folders:
        path = os.path.normpath(os.path.join(cwd or "/", folder, called))  # noqa: PTH118
        if called and os.path.realpath(path) == exe:
            return path, ()
    return exe, (f"{called or 'its program'} is not found again as it was called: {exe} stands",)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise BadInput(
            f"user {uid} of the process has no name",
            "a user of this machine",
            f"give it one: useradd --uid {uid} NAME",
        ) from None


def find_server(pid: int, is_server: Callable[[Sequence[str]], bool]) -> Seen:
    """The first process from ``pid`` downwards that ``is_server``: a wrapper's is below it.

    Raises ``BadInput`` when there is none.
    """
    first = see(pid)
    for number in _downwards(pid):
        found = look_at(str(number))
        if found and found["argv"] and is_server(found["argv"]):
            return see(number)
    said = " ".join(first.argv or ("overwritten",))[:160]
    client = next((one for one in (first.argv or ())[:3] if Path(one).name in _CLIENTS), None)
    if client is not None:
        raise BadInput(
            f"process {pid} only talks to a container ({said}): the server runs in that",
            "a server that runs on the machine itself",
            f"write the parameters by hand from what {Path(client).name} shows of it",
        )
    raise BadInput(
        f"process {pid} is no server that the runbook knows, nor is one below it ({said})",
        "the launcher of SGLang, or of the rehearsal's llama.cpp",
        "name the process that was started by hand",
    )


def _downwards(pid: int) -> Iterator[int]:
    yield pid
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return
    for child in " ".join(lists).split():
        yield from _downwards(int(child))
