"""What is wrong with a unit before it is installed.

``systemd-analyze verify`` ends with 0 for most mistakes and only mutters on stderr, and says
nothing at all of ``$PATH`` in ``Environment=`` or of a user that does not exist: so stderr counts,
and there are rules of our own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from runbook.checks import Check, Status
from runbook.errors import BadInput
from runbook.hosts.base import Done, Host
from runbook.launch.quoting import split_words
from runbook.launch.unit_file import UnitFile, parse_unit
from runbook.redaction import names_secret

#: Highest exposure (``systemd-analyze security``, 0 to 10) that passes without a warning.
EXPOSURE_LIMIT = 7.0
#: The name of the check that tells it.
EXPOSURE = "unit: exposure"

_LOGIN_UIDS = (1000, 60000)

_VERIFY = """
command -v systemd-analyze >/dev/null || exit 127
d=$(mktemp -d) && trap 'rm -rf "$d"' EXIT && cat >"$d/$1" || exit 126
systemd-analyze "$2" "$3" "$d/$1"
"""


#: What to do about a unit that somebody wrote otherwise than the runbook would.
_REPLACE = "write it anew from the parameters: runbook service install PARAMS --overwrite-edits"


def lint(text: str, host: Host | None = None, name: str = "linted.service") -> list[Check]:
    """All checks of one unit; with ``host`` also those that ask the host the unit is for."""
    try:
        unit = parse_unit(text)
        checks = [*_own_rules(unit)]
    except BadInput as error:
        return [Check("unit: syntax", "fail", error.found, error.wanted, _REPLACE)]
    if host is not None:
        checks += [*_ask_host(unit, host), *_verify(text, host, name), _exposure(text, host, name)]
    return checks


def _own_rules(unit: UnitFile) -> Iterator[Check]:
    yield _command_rule(unit)
    faults = [fault for word in unit.assignments() for fault in _assignment_faults(word)]
    names = [word.partition("=")[0] for word in unit.assignments()]
    twice = sorted({name for name in names if names.count(name) > 1})
    faults += [f"{name} is set twice: one variable, one source" for name in twice]
    fix = "write each value in full, once: server.env, configurations[...].env"
    yield _check("unit: environment", faults, "whole values, each variable once", fix)
    argv = unit.command()
    options = (arg.partition("=")[0] for arg in argv)
    exposed = [one for one in options if one.startswith("-") and names_secret(one)] + [
        name
        for name, value in unit.environment().items()
        if names_secret(name) and not value.isdigit()
    ]
    yield _check(
        "unit: secrets",
        [f"{name} shows a secret to every user of the host" for name in exposed],
        "secrets as credentials",
        "put it into a file of mode 0600, alone: server.api_key.file",
    )


def _command_rule(unit: UnitFile) -> Check:
    faults: list[str] = []
    words = split_words(unit.value("Service", "ExecStart") or "")
    if not words:
        faults.append("no ExecStart")
    elif not words[0].lstrip("@-:+!").startswith("/"):
        faults.append(f"the program {words[0]} is no absolute path")
    if words and words[0].startswith("-"):
        faults.append("a leading - hides that the program fails")
    faults += [
        f"the argument {word} expands a variable"
        for word in words[1:]
        if re.search(r"(?<!\$)(\$\$)*\$(?!\$)[A-Za-z_{]", word)
    ]
    return _check("unit: command", faults, "an absolute program and literal arguments", _REPLACE)


def _assignment_faults(word: str) -> Iterator[str]:
    name, equals, value = word.partition("=")
    if not equals:
        yield f"{word!r} is no assignment (blanks need quotes, export is no word here)"
        return
    if re.search(r"\$\{?[A-Z_]", value):
        yield f"{name} holds {value!r}, in which systemd expands nothing"
    if name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH") and "" in value.split(":"):
        yield f"{name} has an empty element, which means the current directory"
    if name in ("CUDA_HOME", "CUDA_PATH") and ":" in value:
        yield f"{name} is one folder, and {value!r} is a list"


def _ask_host(unit: UnitFile, host: Host) -> Iterator[Check]:
    """What ``verify`` does not notice: users, directories and files that are not there."""
    user = unit.value("Service", "User")
    if user:
        yield _user_check(user, host)
    cwd = (unit.value("Service", "WorkingDirectory") or "/").replace("%%", "%")
    there = host.run("test", "-d", cwd, check=False).code == 0
    faults = [] if there else [f"{cwd} is no directory"]
    yield _check("unit: directory", faults, "a directory", f"mkdir -p {cwd}, or set server.cwd")
    credentials = [line.partition(":")[2] for line in unit.values("Service", "LoadCredential")]
    files = [path.replace("%%", "%") for path in credentials]
    files += unit.values("Service", "EnvironmentFile")
    absent = [path for path in files if host.run("test", "-r", path, check=False).code]
    faults = [f"{path} cannot be read" for path in absent]
    yield _check("unit: files", faults, "readable files", "make it: server.api_key.file names it")
    yield from (_key_check(path, host) for path in files if path not in absent)


def _key_check(path: str, host: Host) -> Check:
    mode = host.run("stat", "--dereference", "--format=%a", "--", path).out.strip()
    status: Status = "warn" if int(mode, 8) & 0o007 else "pass"
    do = f"unless its folder is closed to them: chmod 600 {shlex.quote(path)}"
    return Check("unit: key file", status, f"{path} has mode {mode}", "nothing for other users", do)


def _user_check(user: str, host: Host) -> Check:
    done = host.run("id", "-u", user, check=False)
    if done.code:
        return Check("unit: user", "fail", f"no user {user}", "a user", f"useradd --system {user}")
    if int(done.out) in range(*_LOGIN_UIDS):
        return Check(
            "unit: user",
            "warn",
            f"{user} is a login user: logind removes its shared memory when its last session ends",
            "a system user",
            "set RemoveIPC=no in logind.conf, or use a system user",
        )
    return Check("unit: user", "pass", user)


def _analyze(text: str, host: Host, name: str, *words: str) -> Done:
    return host.run("sh", "-c", _VERIFY, "sh", name, *words, stdin=text.encode(), check=False)


def _verify(text: str, host: Host, name: str) -> Iterator[Check]:
    done = _analyze(text, host, name, "verify", "--man=no")
    if done.code == 127:
        yield _no_systemd("unit: verify", "a unit that systemd has read")
        return
    said = [line for line in done.err.splitlines() if line.strip()]
    ours = [line for line in said if name in line]
    if done.code and not ours:
        ours = said or [f"ended with {done.code}"]
    do = f"read it there, correct what it names, then plan again: systemd-analyze verify {name}"
    yield _check("unit: verify", ours, "systemd-analyze verify without a word", do)
    others = [line for line in said if line not in ours]
    if others:
        found, do = "; ".join(others)[:500], "correct those units, or leave them: they are not ours"
        yield Check("unit: verify, other units", "warn", found, "a silent host", do)


def _exposure(text: str, host: Host, name: str) -> Check:
    done = _analyze(text, host, name, "security", "--offline=yes")
    score = re.search(r"Overall exposure level for .*?: ([0-9.]+)", done.out)
    if not score:
        return _no_systemd(EXPOSURE, "a score")
    status: Status = "pass" if float(score[1]) <= EXPOSURE_LIMIT else "warn"
    do = f"see what makes it: systemd-analyze security {name}"
    return Check(EXPOSURE, status, score[1], f"at most {EXPOSURE_LIMIT} of 10", do)


def _no_systemd(name: str, wanted: str) -> Check:
    do = "apt-get install systemd"
    return Check(name, "skipped", "systemd-analyze of the host tells nothing", wanted, do)


def _check(name: str, faults: list[str], wanted: str, fix: str) -> Check:
    found = "; ".join(faults) or "as wanted"
    return Check(name, "fail" if faults else "pass", found, wanted, fix)
