"""Asks the serving interpreter of a launch what it finds around it (``serving.py``,
``accelerator.py``, ``collective.py``, ``guard.py``; entered by ``enter.py``).

This side runs with the runbook. Verification asks before the benchmark, drift asks again later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from runbook import probe
from runbook.errors import HostFailed
from runbook.hosts.base import Done, Host
from runbook.launch.spec import LaunchSpec

TIMEOUT_S = 600.0

#: Options of CPython that take their value as the next word.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
#: What ends the options of CPython: a module, a command, a program on stdin.
_PROGRAM = ("-m", "-c", "-")


@dataclass(frozen=True)
class Questions:
    """What a probe is asked beyond what it always tells; paths are absolute.

    ``packages``: distributions whose versions matter. ``requires_of``: the one whose own
    requirements of them matter. ``files``: hashed up to
    ``hash_up_to_bytes``. ``disks``: paths whose free room matters. ``tools``: programs on PATH.
    ``torch``: import it and tell, which takes seconds. ``gpus``, ``limit_s``, ``busy_percent``:
    of an all-reduce. ``launches``: name -> argv, for a probe that reads what the server is given.
    """

    packages: Sequence[str] = ()
    files: Sequence[str] = ()
    hash_up_to_bytes: int = 0
    disks: Sequence[str] = ()
    tools: Sequence[str] = ()
    torch: bool = False
    gpus: int = 0
    limit_s: float = 60.0
    busy_percent: float = 95.0
    launches: Mapping[str, Sequence[str]] = field(default_factory=dict)
    requires_of: str = ""


@dataclass(frozen=True)
class ServingFacts:
    """The probe's answer; ``facts`` is empty and ``reason`` set when there was none.

    A fact is ``None`` when it could not be read, with its cause in ``reasons``; ``otherwise`` is
    why it may be missing altogether.
    """

    facts: dict[str, Any]
    reasons: dict[str, str]
    reason: str = ""
    otherwise: str = "the probe does not tell"

    def joined(self, more: ServingFacts) -> ServingFacts:
        """These facts and those of another probe of the same launch."""
        reasons = {**more.reasons, **self.reasons}
        return ServingFacts({**more.facts, **self.facts}, reasons, self.reason or more.reason)

    def why_unknown(self, name: str) -> str:
        """Why the fact ``name`` is missing, in words."""
        return self.reason or self.reasons.get(name) or self.otherwise


def ask_serving(
    host: Host, spec: LaunchSpec, questions: Questions, name: str = "serving"
) -> ServingFacts:
    """Run a probe as ``spec`` would be run on ``host``; it never raises for what it finds."""
    try:
        done = _run_as(host, spec, probe.source(name), json.dumps(asdict(questions)))
    except HostFailed as error:
        return ServingFacts({}, {}, error.found)
    return read_answer(done, name)


def ask_guard(
    host: Host, spec: LaunchSpec, expected: Mapping[str, Any]
) -> tuple[list[dict[str, str]], str]:
    """The guard's findings as they are on ``host`` now, and why there are none."""
    try:
        done = _run_as(host, spec, probe.guard_program(), "drift", json.dumps(expected))
    except HostFailed as error:
        return [], error.found
    found = next(filter(None, (_answer(line, "guard") for line in done.out.splitlines())), None)
    if found is None:
        return [], _why_no_answer(done)
    return list(found["findings"]), ""


def _run_as(host: Host, spec: LaunchSpec, program: str, *arguments: str) -> Done:
    """Run a Python program as ``spec`` would be run: interpreter, flags, user, environment."""
    argv = [*interpreter_words(spec.argv), "-", *arguments]
    launch = {
        "argv": argv,
        "env": dict(spec.env),
        "cwd": spec.cwd,
        "user": spec.user,
        "nofile": spec.nofile,
        "memlock": spec.memlock,
        "limits": dict(spec.limits),
        "process": dict(spec.process),
        "stdin": program,
    }
    enter = [host.python, "-I", "-S", "-c", probe.source("enter")]
    return host.run(*enter, stdin=json.dumps(launch).encode(), timeout_s=TIMEOUT_S, check=False)


def interpreter_words(argv: Sequence[str]) -> list[str]:
    """The interpreter of a launch and the options that it would be started with."""
    words = list(argv[:1])
    rest = iter(argv[1:])
    for word in rest:
        if word in _PROGRAM or not word.startswith("-") or word.startswith(("-m", "-c")):
            break
        words.append(word)
        if word in _WITH_VALUE:
            words += [value for value in [next(rest, None)] if value is not None]
    return words


def read_answer(done: Done, name: str = "serving") -> ServingFacts:
    """The facts in what the probe ``name`` printed, among whatever else was printed."""
    for line in reversed(done.out.splitlines()):
        answer = _answer(line, name) or {}
        facts, reasons = answer.get("facts"), answer.get("reasons")
        if isinstance(facts, dict) and isinstance(reasons, dict):
            return ServingFacts(facts, reasons)
    return ServingFacts({}, {}, _why_no_answer(done))


def _why_no_answer(done: Done) -> str:
    said = _last_lines(done.err or done.out)
    return f"the probe ended with {done.code}: {said or 'no answer'}"


def _answer(line: str, name: str) -> dict[str, Any] | None:
    if not line.startswith(f'{{"probe": "{name}"'):
        return None
    try:
        value: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return value


def _last_lines(text: str, lines: int = 3) -> str:
    return " ".join(" ".join(text.strip().splitlines()[-lines:]).split())[:300]
