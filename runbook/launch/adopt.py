"""A server that somebody started by hand, read back as a ``LaunchSpec``. It is left alone.

Secrets among its arguments and variables are left out: they are named, their values never kept.
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
from runbook.launch.spec import MANAGER_SETS, LaunchSpec
from runbook.probe.look import look_at
from runbook.redaction import is_secret

#: Variables of a login session; a service has none of them.
_SESSION = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM|COLORTERM|COLUMNS|LINES|PS\d|PROMPT_COMMAND|LS_COLORS|LESS.*|MAIL"
    r"|EDITOR|VISUAL|PAGER|HIST\w+|DISPLAY|XAUTHORITY|WINDOWID|STY|TMUX.*|LOGNAME|USER|USERNAME"
    r"|SHELL|HOSTNAME|(?:SSH|SUDO|XDG_SESSION|VSCODE|TERM|GNOME|VTE)_.*|XDG_RUNTIME_DIR"
    r"|DBUS_SESSION_BUS_ADDRESS|MOTD_SHOWN"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIMITS = {"nofile": "Max open files", "memlock": "Max locked memory"}


@dataclass(frozen=True)
class Seen:
    """A process: ``argv`` and ``environ`` are ``None`` where it hides or overwrote them.

    ``program``: its absolute path as it was started; ``unit``: the service it belongs to.
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
    limits, unread = _limits(seen.limits)
    spec = LaunchSpec(
        argv=(seen.program, *argv),
        env=env,
        cwd=seen.cwd or "/",
        user="" if seen.user == "root" else seen.user,
        **limits,
    )
    if seen.cwd is None:
        notes.append("its working directory cannot be read: / stands for it")
    return Adopted(
        spec,
        (*secret_options, *secret_names),
        tuple(session),
        (*seen.notes, *notes, *unread),
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
    for name, kernel_name in _LIMITS.items():
        text = found.get(kernel_name, "")
        if text == "unlimited" or text.isdigit():
            limits[name] = None if text == "unlimited" else int(text)
        else:
            unread.append(f"its limit {name} cannot be read: the default stands for it")
    return limits, unread


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
        (*notes, *(_GONE[name].format(found[name]) for name in gone)),
    )


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
