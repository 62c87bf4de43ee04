"""Stage 1: can these configurations exist on this stack? Facts, checks, one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runbook.checks import Check, Verdict, verdict_of
from runbook.engines import Engine
from runbook.hosts.base import Host
from runbook.launch.spec import LaunchSpec
from runbook.params import Params
from runbook.verify_stack.case import Case
from runbook.verify_stack.checks import CHECKS, at_levels, require_known_checks, run_checks
from runbook.verify_stack.facts import StackFacts, gather
from runbook.verify_stack.summary import summarize

__all__ = [
    "CHECKS",
    "StackFacts",
    "StackReport",
    "gather",
    "judge",
    "require_known_checks",
    "verify",
]


@dataclass(frozen=True)
class StackReport:
    """The answer of the stage: every fact, every check, the verdict."""

    facts: StackFacts
    checks: tuple[Check, ...]
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """``stack.json``: ``facts`` in short for people, ``readings`` whole for machines."""
        return {
            "facts": summarize(self.facts),
            "checks": [asdict(check) for check in self.checks],
            "verdict": asdict(self.verdict),
            "readings": self.facts.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StackReport:
        """The report as ``to_json`` gave it, equal to the one that was written."""
        return cls(
            StackFacts.from_json(value["readings"]),
            tuple(Check(**check) for check in value["checks"]),
            Verdict(**value["verdict"]),
        )


def verify(
    params: Params, host: Host, specs: Mapping[str, LaunchSpec], engine: Engine
) -> StackReport:
    """Ask ``host`` and the interpreter of every launch, and check the answers.

    Nothing is changed. Raises ``BadInput`` for an unknown name in ``stack.checks``, before
    anything is asked.
    """
    require_known_checks(params, engine.stack_checks)
    facts = gather(params, host, specs, engine)
    return judge(params, facts, specs, engine, engine.check_stack(params, facts.versions()))


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
    verdict = verdict_of(checks, "stack")
    if params.stack.gpus == 0:
        verdict = Verdict(verdict.ok, f"{verdict.text}; not verified for GPUs: none are asked for")
    return StackReport(facts, checks, verdict)
