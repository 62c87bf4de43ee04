"""The verbs of ``runbook service``: the same rooms as notebook 04, one step at a time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from runbook import install_service as room
from runbook import stages
from runbook.errors import BadInput, NotHere
from runbook.notebook import Work
from runbook.params import Params
from runbook.run import Run

Say = Callable[[str], None]


def unit_text(parameters: Params, name: str | None) -> str:
    """The unit of one configuration, by default the override's or the expected one."""
    choice = parameters.configuration(name).name if name else _planned(parameters)
    measured = room.unmeasured(parameters, choice)
    return room.target_of(sys.executable, parameters, choice, measured).unit_text


def _planned(parameters: Params) -> str:
    rule = parameters.choose
    choice = rule.override.choose if rule.override else rule.expected
    if choice is None:
        names = ", ".join(one.name for one in parameters.configurations)
        raise BadInput(
            "the parameters name no choice", "choose.expected or choose.override", f"one of {names}"
        )
    return choice


@contextmanager
def opened(parameters: Params, folder: Path | None, unmeasured: str | None) -> Iterator[Desk]:
    """The desk of a run: the one given, else the newest of these parameters.

    Raises ``NotHere`` without one, unless a reason to install unmeasured is given.
    """
    if folder is not None:
        run = Run.open(folder)
        run.take_over(parameters)
    else:
        try:
            run = Run.newest(parameters)
        except NotHere:
            if unmeasured is None and parameters.host.kind == "box":
                raise
            run = Run.create(parameters)
    with ExitStack() as scratch, run.locked():
        work = Work("install_service", run, "run", True, scratch)
        try:
            yield Desk(work, unmeasured)
        finally:
            work.close()


class Desk:
    """One run at work with its host; each verb answers the exit code."""

    def __init__(self, work: Work, unmeasured: str | None) -> None:
        self.work = work
        self.unmeasured = unmeasured
        self.service = work.params.service

    def _plan(self) -> room.Plan:
        if self.unmeasured is None:
            plan = stages.plan_service(self.work)
            assert plan is not None
            return plan
        choice = _planned(self.work.params)
        measured = room.unmeasured(self.work.params, choice)
        label = f"unmeasured: {self.unmeasured}"
        plan = room.plan_service(self.work.host, self.work.params, choice, measured, label)
        room.record_plan(self.work.run, plan)
        return plan

    def plan(self, say: Say, as_json: bool, overwrite_edits: bool) -> int:
        """Print the plan."""
        plan = self._plan()
        say(_as_json(plan) if as_json else plan.describe())
        return 0

    def install(self, say: Say, as_json: bool, overwrite_edits: bool) -> int:
        """Print the plan, then apply it."""
        plan = self._plan()
        say(_as_json(plan) if as_json else plan.describe())
        return self._apply(plan, say, overwrite_edits)

    def _apply(self, plan: room.Plan, say: Say, overwrite_edits: bool) -> int:
        applied = room.install(self.work.host, plan, self.work.run, overwrite_edits)
        took = f", served after {applied.served_s:.1f} s" if applied.served_s else ""
        say(
            f"{self.service.unit}: generation {applied.generation}"
            + (took if applied.changed else ", nothing changed")
        )
        return 0

    def verify(self, say: Say, as_json: bool, overwrite_edits: bool) -> int:
        """Prove what is installed."""
        target = room.installed(self.work.host, self.service.unit)
        proofs = room.prove(self.work.host, self.work.params, target, self.work.run)
        if as_json:
            say(json.dumps([asdict(proof) for proof in proofs], indent=1))
        else:
            for proof in proofs:
                say(f"{proof.name}: {proof.status} ({proof.evidence})")
        verdict = room.verdict(proofs, self.service.unproved, self.service.unit)
        say(str(verdict))
        return 0 if verdict.ok else 1

    def rollback(self, say: Say, as_json: bool, overwrite_edits: bool) -> int:
        """Bring the last good generation back."""
        plan = room.plan_rollback(self.work.host, self.service.unit)
        say(_as_json(plan) if as_json else plan.describe())
        return self._apply(plan, say, overwrite_edits)

    def status(self, say: Say, as_json: bool, overwrite_edits: bool) -> int:
        """Print what is installed and how it is."""
        found = room.status(self.work.host, self.service.unit)
        if as_json:
            say(json.dumps(dict(found.rows()), indent=1))
        else:
            for name, value in found.rows():
                say(f"{name:<16} {value}")
        return 0 if found.ok else 1

    def logs(self, say: Say, as_json: bool, overwrite_edits: bool) -> int:
        """Print the end of the journal."""
        say(room.logs(self.work.host, self.service.unit).rstrip())
        return 0

    def uninstall(self, say: Say, as_json: bool, overwrite_edits: bool) -> int:
        """Say what will be removed, then remove it."""
        say(f"{self.service.unit}: will be stopped, disabled and removed with all its generations")
        room.uninstall(self.work.host, self.service.unit, not overwrite_edits)
        say(f"{self.service.unit}: removed")
        return 0


def _as_json(plan: room.Plan) -> str:
    return json.dumps(
        {
            "unit": plan.target.unit,
            "generation": plan.generation,
            "unchanged": plan.unchanged,
            "actions": list(plan.actions),
            "meaning": plan.meaning,
            "diff": plan.diff,
        },
        indent=1,
    )
