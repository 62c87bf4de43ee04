"""Facts of the host and of the interpreter that will serve.

A fact is a command and a pure parser. What could not be read is a ``Reading`` without a value and
with a reason; what is certainly not there (no driver) is ``absent``. Facts are plain JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runbook import atomic
from runbook.engines import Engine, Seen
from runbook.errors import HostFailed
from runbook.hosts import box_needs
from runbook.hosts.base import Done, Host
from runbook.launch.spec import LaunchSpec
from runbook.launch.systemd import UnitLauncher
from runbook.params import Params
from runbook.probe.ask import Questions, ServingFacts, ask_serving, interpreter_words
from runbook.probe.topology import topology_class
from runbook.rehearsal.model import resolve_model
from runbook.run import outputs_root
from runbook.verify_stack.commands import NO_DRIVER, Fact, host_facts

#: Packages with kernels for GPUs, which must fit one another.
GPU_PACKAGES = (
    *("torch", "triton", "transformers", "sglang-kernel", "sgl-kernel"),
    *("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache"),
)
#: What Triton looks for on PATH where CC does not name one.
C_COMPILERS = ("gcc", "clang")
NOT_FOUND = 127
#: As shells, ``env`` and Ubuntu say it.
_NOT_THERE = (
    r"(?i)\b{0}['\u2019]?: ((command )?not found|no such file|not available)"
    r"|command '{0}' not found|(command not found|unknown command): {0}\b"
)


@dataclass(frozen=True)
class Reading:
    """One fact of the host: its value, or why there is none."""

    value: Any = None
    reason: str = ""
    absent: bool = False
    asked: bool = True  # False: nobody asked, a captured copy is not there


@dataclass(frozen=True)
class StackFacts:
    """All facts: ``host`` by name, ``serving`` by configuration. Equal after a JSON round trip."""

    host: Mapping[str, Reading]
    serving: Mapping[str, ServingFacts]

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``stack.json``."""
        return {
            "host": {name: asdict(reading) for name, reading in self.host.items()},
            "serving": {name: asdict(facts) for name, facts in self.serving.items()},
        }

    def versions(self) -> dict[str, str | None]:
        """Versions of the packages that the serving interpreters find."""
        return {
            name: version
            for serving in self.serving.values()
            for name, version in (serving.facts.get("packages") or {}).items()
        }

    def seen(self) -> Seen:
        """What the engine judges its configurations by."""
        matrix = self.host["topology"].value if "topology" in self.host else None
        told = {name: serving.facts for name, serving in self.serving.items()}
        return Seen(self.versions(), told, topology_class(matrix) if matrix else None)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StackFacts:
        """``StackFacts`` from plain data as ``to_json`` gives it."""
        return cls(
            {name: Reading(**reading) for name, reading in value["host"].items()},
            {name: ServingFacts(**facts) for name, facts in value["serving"].items()},
        )


def reading_of(fact: Fact, done: Done) -> Reading:
    """What ``done`` tells. A program that is not there is ``absent``, also as a shell says it."""
    missing = re.search(_NOT_THERE.format(re.escape(fact.program)), done.out)
    if done.code == NOT_FOUND or missing:
        what = NO_DRIVER if fact.program == "nvidia-smi" else f"{fact.program} is not there"
        return Reading(reason=what, absent=True)
    try:
        return Reading(fact.parse(done.out or done.err))
    except ValueError as error:
        ended = f" ended with {done.code}" if done.code else ""
        return Reading(reason=f"{fact.file.rpartition('.')[0]}{ended}: {error}")


def read_fact(host: Host, fact: Fact, capture: Path | None = None) -> Reading:
    """Ask ``host`` for one fact; a command that does not end leaves it unknown."""
    try:
        done = host.run(*fact.argv, check=False)
    except HostFailed as error:
        return Reading(reason=error.found)
    if capture is not None:
        gone = f"{fact.program}: command not found\n"
        text = gone if done.code == NOT_FOUND else done.out or done.err
        atomic.write(capture / fact.file, text, 0o644)
    return reading_of(fact, done)


def read_host(
    host: Host, path: str | None = None, capture: Path | None = None
) -> dict[str, Reading]:
    """What ``host`` tells of itself; ``path``: where the server will look for its compiler.

    ``capture``: a folder that keeps what each command printed.
    """
    return {fact.name: read_fact(host, fact, capture) for fact in host_facts(path)}


def gather(
    params: Params,
    host: Host,
    specs: Mapping[str, LaunchSpec],
    engine: Engine,
    capture: Path | None = None,
) -> StackFacts:
    """All facts of ``host``, and of each launch as it would be run there.

    ``capture``: a folder that keeps what each command printed.
    """
    paths = {spec.env.get("PATH") for spec in specs.values()}
    readings = read_host(host, next(iter(paths), None), capture)
    readings["systemd"] = _read_systemd(params, host)
    readings["port"] = _read_ports(host, params.server.port, engine.ports(params))
    questions = questions_for(params, engine)
    answers = _ask_launches(host, specs, questions)
    if questions.gpus > 1:
        answers = _ask_collective(host, specs, questions, answers, readings["gpu_processes"])
    if engine.argument_probe and params.stack.checks.get(engine.argument_probe) != "off":
        answers = _ask_arguments(host, specs, engine.argument_probe, answers)
    return StackFacts(readings, answers)


def _ask_arguments(
    host: Host, specs: Mapping[str, LaunchSpec], probe: str, answers: Mapping[str, ServingFacts]
) -> dict[str, ServingFacts]:
    """What the server's own parser makes of every launch; asked once for all in the same
    environment, since it takes seconds to import."""
    groups: dict[Any, dict[str, LaunchSpec]] = {}
    for name, spec in specs.items():
        same = (tuple(interpreter_words(spec.argv)), tuple(sorted(spec.env.items())), spec.user)
        groups.setdefault(same, {})[name] = spec
    found = {}
    for group in groups.values():
        questions = Questions(launches={name: spec.argv for name, spec in group.items()})
        told = ask_serving(host, next(iter(group.values())), questions, probe)
        for name in group:
            parsed = (told.facts.get("arguments") or {}).get(name)
            own = {"arguments": parsed or {"unknown": told.why_unknown("arguments")}}
            found[name] = answers[name].joined(ServingFacts(own, {}))
    return found


def _ask_collective(
    host: Host,
    specs: Mapping[str, LaunchSpec],
    questions: Questions,
    answers: Mapping[str, ServingFacts],
    processes: Reading,
) -> dict[str, ServingFacts]:
    """An all-reduce once for every set of NCCL's variables, where nobody is on the cards."""
    if processes.value != []:
        why = processes.reason or "not tried: the cards are in use (check idle)"
        busy = ServingFacts({}, {"collective": why})
        return {name: answer.joined(busy) for name, answer in answers.items()}
    tried: dict[Any, ServingFacts] = {}
    found = {}
    for name, spec in specs.items():
        variables = tuple(sorted(one for one in spec.env.items() if one[0].startswith("NCCL_")))
        if variables not in tried and answers[name].facts.get("torch"):
            tried[variables] = ask_serving(host, spec, questions, "collective")
        silent = ServingFacts({}, {"collective": "not tried: torch cannot be imported"})
        found[name] = answers[name].joined(tried.get(variables, silent))
    return found


def _ask_launches(
    host: Host, specs: Mapping[str, LaunchSpec], questions: Questions
) -> dict[str, ServingFacts]:
    """Every launch asked; large files are hashed for the first one that can read them."""
    answers: dict[str, ServingFacts] = {}
    hashed: dict[Any, str] = {}
    for name, spec in specs.items():
        accelerator = ask_serving(host, spec, questions, "accelerator")
        answers[name] = ask_serving(host, spec, questions).joined(accelerator)
        for file in (answers[name].facts.get("files") or {}).values():
            if file.get("sha256"):
                hashed[_identity(file)] = file["sha256"]
            elif file.get("readable") and _identity(file) in hashed:
                file["sha256"] = hashed[_identity(file)]
        if hashed:
            questions = replace(questions, hash_up_to_bytes=0)
    return answers


def _identity(file: Mapping[str, Any]) -> tuple[Any, ...]:
    """What only the same content has: place, size and time of the last change."""
    return file["realpath"], file["size_bytes"], file["mtime_ns"]


def questions_for(params: Params, engine: Engine) -> Questions:
    """What the probe of a launch is asked for these parameters."""
    stack = params.stack
    accelerated = GPU_PACKAGES if stack.gpus else ()
    return Questions(
        packages=_distinct([engine.distribution, *stack.packages, *accelerated]),
        requires_of=engine.distribution,
        files=_distinct(model_paths(params).values()),
        hash_up_to_bytes=int(stack.hash_up_to_gib * 2**30),
        disks=_distinct([params.server.cwd, *model_paths(params).values()]),
        tools=_distinct(wanted_tools(params)),
        torch=stack.gpus > 0,
        gpus=stack.gpus if stack.checks.get("collective") != "off" else 0,
        limit_s=stack.collective_s,
        busy_percent=stack.busy_percent,
    )


def wanted_tools(params: Params) -> list[str]:
    """The programs that are looked for: those of ``stack.tools``, and on GPUs, where kernels are
    compiled at a start, C compilers."""
    if not params.stack.gpus:
        return params.stack.tools
    environments = [params.server.env, *(one.env for one in params.configurations)]
    named = [env["CC"] for env in environments if env.get("CC")]
    return [*params.stack.tools, *C_COMPILERS, "cc", *named]


def model_paths(params: Params) -> dict[str, str]:
    """Paths of ``model`` and, where there is one, ``draft``."""
    named = {"model": params.server.model, "draft": params.server.draft}
    return {role: resolve_model(path) for role, path in named.items() if path}


def _read_ports(host: Host, port: int, others: Mapping[int, str]) -> Reading:
    """Who holds the port of the server, and those it opens besides."""
    holder = UnitLauncher(host).port_holder
    try:
        besides = [{"port": one, "use": use, "holder": holder(one)} for one, use in others.items()]
        return Reading({"port": port, "holder": holder(port), "others": besides})
    except HostFailed as error:
        return Reading(reason=error.found)


def _read_systemd(params: Params, host: Host) -> Reading:
    """Whether a systemd takes orders there: its absence is a known fact, with the reason.

    Where a box is wanted and another host is asked, the reason is why no box can be made.
    """
    try:
        why_not = host.why_no_systemd()
    except HostFailed as error:
        return Reading(reason=error.found)
    if params.host.kind == "box" != host.kind:
        why_no_box = box_needs.why_no_box(outputs_root())
        why_not = f"no box can be made: {why_no_box}" if why_no_box else why_not
    return Reading({"kind": host.kind, "why_not": why_not})


def _distinct(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in words if word))
