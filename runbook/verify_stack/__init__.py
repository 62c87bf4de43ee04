"""Stage 1: can these configurations exist on this stack? Facts, checks, one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runbook.checks import Check, Verdict, verdict_of
from runbook.engines import Engine
from runbook.hosts.base import Host
from runbook.launch.spec import LaunchSpec
from runbook.params import Params, Stack
from runbook.verify_stack import captured
from runbook.verify_stack.case import Case, Machine
from runbook.verify_stack.checks import CHECKS, at_levels, require_known_checks, run_checks
from runbook.verify_stack.facts import (
    StackFacts,
    gather,
    model_paths,
    questions_for,
    read_host,
)
from runbook.verify_stack.fingerprints import fingerprints
from runbook.verify_stack.shell import read_shell
from runbook.verify_stack.summary import summarize

__all__ = [
    "CHECKS",
    "StackFacts",
    "StackReport",
    "gather",
    "judge",
    "judge_machine",
    "read_again",
    "require_known_checks",
    "verify",
    "verify_captured",
    "verify_captured_machine",
    "verify_machine",
]


@dataclass(frozen=True)
class StackReport:
    """The answer of the stage: every fact, every check, the verdict; fingerprints by what they are
    of (``host``, ``topology``, ``model``, ``draft``), ``None`` where that is unknown."""

    facts: StackFacts
    checks: tuple[Check, ...]
    verdict: Verdict
    fingerprints: Mapping[str, str | None]

    def to_json(self) -> dict[str, Any]:
        """``stack.json``: ``facts`` in short for people, ``readings`` whole for machines."""
        return {
            "facts": summarize(self.facts),
            "checks": [asdict(check) for check in self.checks],
            "verdict": asdict(self.verdict),
            "fingerprints": dict(self.fingerprints),
            "readings": self.facts.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StackReport:
        """The report as ``to_json`` gave it, equal to the one that was written."""
        return cls(
            StackFacts.from_json(value["readings"]),
            tuple(Check(**check) for check in value["checks"]),
            Verdict(**value["verdict"]),
            value.get("fingerprints", {}),
        )


def verify(
    params: Params,
    host: Host,
    specs: Mapping[str, LaunchSpec],
    engine: Engine,
    capture: Path | None = None,
) -> StackReport:
    """Ask ``host`` and the interpreter of every launch, and check the answers.

    Nothing is changed there; ``capture`` is a folder of this machine that keeps what was told.
    Raises ``BadInput`` for an unknown name in ``stack.checks``, before anything is asked.
    """
    require_known_checks(params, engine.stack_checks)
    facts = gather(params, host, specs, engine, capture)
    facts = replace(facts, host={**facts.host, "shell": read_shell(host, specs)})
    if capture is not None:
        captured.write_serving(capture, facts)
    return judge(params, facts, specs, engine, _of_engine(params, facts, engine))


def _of_engine(params: Params, facts: StackFacts, engine: Engine) -> list[Check]:
    return engine.check_stack(params, facts.seen())


def read_again(
    params: Params, host: Host, specs: Mapping[str, LaunchSpec], engine: Engine
) -> dict[str, Any]:
    """The facts as they are now, in the form of ``stack.json`` and without a check; what takes long
    (an all-reduce, the server's own parser) is not asked."""
    off = dict.fromkeys(("collective", engine.argument_probe), "off")
    quick = params.stack.model_copy(update={"checks": {**params.stack.checks, **off}})
    facts = gather(params.model_copy(update={"stack": quick}), host, specs, engine)
    marks = fingerprints(facts, model_paths(params))
    return {"fingerprints": marks, "readings": facts.to_json()}


def verify_captured(
    params: Params, folder: Path, specs: Mapping[str, LaunchSpec], engine: Engine
) -> StackReport:
    """As ``verify``, on the facts that were captured in ``folder``. Raises ``BadInput``."""
    require_known_checks(params, engine.stack_checks)
    packages = questions_for(params, engine).packages
    facts = captured.read_folder(folder, list(specs), packages)
    try:
        report = judge(params, facts, specs, engine, _of_engine(params, facts, engine))
        report.to_json()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        fault = f"{captured.SERVING} holds facts of another form: {error}"
        facts = captured.read_folder(folder, list(specs), packages, fault)
        report = judge(params, facts, specs, engine, _of_engine(params, facts, engine))
    return report


def judge(
    params: Params,
    facts: StackFacts,
    specs: Mapping[str, LaunchSpec],
    engine: Engine,
    of_engine: Sequence[Check] = (),
) -> StackReport:
    """The report on facts that were gathered, and on what the engine said of them. Pure."""
    case = Case(facts, params.stack, specs, params, engine.distribution)
    checks = (*run_checks(case), *at_levels(of_engine, params))
    return _report(case, checks, model_paths(params))


def verify_machine(host: Host, capture: Path | None = None) -> StackReport:
    """What is wrong with the cards of ``host`` and what surrounds them, whoever will use them."""
    return judge_machine(StackFacts(read_host(host, None, capture), {}))


def verify_captured_machine(folder: Path) -> StackReport:
    """As ``verify_machine``, on the facts that were captured in ``folder``. Raises ``BadInput``."""
    return judge_machine(captured.read_folder(folder, (), ()))


def judge_machine(facts: StackFacts) -> StackReport:
    """The report on a machine of which nothing is required but what it has. Pure."""
    machine = Machine(facts, Stack(gpus=_cards_of(facts)), {})
    return _report(machine, tuple(run_checks(machine)), {})


def _cards_of(facts: StackFacts) -> int:
    """How many cards the machine should have by what it tells; one where it tells nothing."""
    gpus, matrix = facts.host["gpus"], facts.host["topology"].value
    if gpus.absent:
        return 0
    if gpus.value is None:
        return len(matrix["gpus"]) if matrix else 1
    return len(gpus.value["gpus"]) + len(gpus.value["faults"]) or 1


#: What a machine alone is not asked for.
_NOT_LOOKED_AT = (
    "without parameters only cards and what surrounds them are looked at: runbook facts PARAMS "
    "looks at interpreter, packages, model, limits, port and systemd too"
)


def _report(machine: Machine, checks: tuple[Check, ...], paths: Mapping[str, str]) -> StackReport:
    verdict = verdict_of(checks, "stack")
    said = [verdict.text]
    if all(check.status == "skipped" for check in checks):
        said = ["stack: nothing was checked"]
    if machine.stack.gpus == 0:
        why = "none are asked for" if isinstance(machine, Case) else "there are none"
        said.append(f"not verified for GPUs: {why}")
    if not isinstance(machine, Case):
        said.append(_NOT_LOOKED_AT)
    verdict = Verdict(verdict.ok, "; ".join(said))
    return StackReport(machine.facts, checks, verdict, fingerprints(machine.facts, paths))
