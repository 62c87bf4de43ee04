"""The verbs of ``runbook service``: the same rooms as notebook 04, one step at a time."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from runbook import install_service as room
from runbook import stages
from runbook.checks import Verdict
from runbook.engines import engine_for
from runbook.errors import BadInput, Blocked, NotProved
from runbook.notebook import Work
from runbook.params import Override, Params
from runbook.publish import document
from runbook.run import STAGES, Run, outputs_root, run_of_service

_CHANGE = ("install", "rollback", "verify", "uninstall")


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
def opened(
    verb: str, parameters: Params, folder: Path | None, unmeasured: str | None, as_json: bool
) -> Iterator[Desk]:
    """The desk of a run: the one given, else the newest of these parameters.

    A verb that only looks takes no lock, writes nothing into the run and needs none on a host of
    its own. Raises ``NotHere`` without a run, ``BadInput`` for parameters that are not the run's.
    """
    if unmeasured is not None and not unmeasured.strip():
        raise BadInput(
            "--unmeasured without a reason",
            "the reason, which the record shows",
            "--unmeasured 'WHY'",
        )
    changes = verb in _CHANGE
    with ExitStack() as scratch:
        run = _find_run(parameters, folder, unmeasured if changes else None, scratch)
        if changes:
            scratch.enter_context(run.locked())
            _take_over(run, verb, parameters, unmeasured)
        elif parameters.identity() == run.params.identity():
            run.params = parameters
        work = Work("install_service", run, "run" if changes else "alone", changes, scratch)
        scratch.callback(work.close)
        yield Desk(work, unmeasured, as_json)


def _take_over(run: Run, verb: str, parameters: Params, unmeasured: str | None) -> None:
    """What was verified and chosen stays as it was: a verb that operates what is installed needs
    nothing of it, and an install of another choice begins with choosing."""
    if verb == "install":
        run.take_over(parameters, STAGES[0] if unmeasured else "install_service")
        return
    kept = {"stack": run.params.stack, "choose": run.params.choose}
    run.take_over(parameters.model_copy(update=kept))


def _find_run(
    parameters: Params, folder: Path | None, unmeasured: str | None, scratch: ExitStack
) -> Run:
    if folder is not None:
        return Run.open(folder)
    run = run_of_service(parameters, scratch, keep=unmeasured is not None)
    if run.path.parent == outputs_root():
        click.echo(f"run folder: {run.path}", err=True)
    return run


def switched(
    parameters: Params, configuration: str, reason: str, by: str, folder: Path | None
) -> tuple[Run, Params]:
    """The run to work in, and its parameters with ``configuration`` as the operator's choice.

    What was verified and the rule of the choice stay those of the run. Raises ``BadInput`` for a
    name that the parameters do not have, ``NotHere`` for one that the run did not measure.
    """
    parameters.configuration(configuration)
    run = Run.open(folder) if folder else Run.newest(parameters, holding="decision.json")
    room.measured_in(run, configuration)
    override = Override(choose=configuration, reason=reason, by=by)
    rule = run.params.choose.model_copy(update={"override": override})
    return run, parameters.model_copy(update={"stack": run.params.stack, "choose": rule})


class Desk:
    """One run at work with its host; each verb answers the exit code."""

    def __init__(self, work: Work, unmeasured: str | None, as_json: bool) -> None:
        self.work = work
        self.unmeasured = unmeasured
        self.as_json = as_json
        self.service = work.params.service

    def _plan(self) -> room.Plan:
        if self.unmeasured is None:
            choice = stages.final_choice(self.work)
            measured, label = room.measured_in(self.work.run, choice), self.work.folder.name
        else:
            choice = _planned(self.work.params)
            measured = room.unmeasured(self.work.params, choice)
            label = f"unmeasured: {self.unmeasured}"
        return room.plan_service(self.work.host, self.work.params, choice, measured, label)

    def _show(self, plan: room.Plan) -> None:
        click.echo(_as_json(plan) if self.as_json else plan.describe())

    def _tell(self, text: str) -> None:
        """What is said beside JSON goes to the other stream."""
        click.echo(text, err=self.as_json)

    def plan(self) -> int:
        """Print the plan; negative where a failed check would stop an install."""
        plan = self._plan()
        self._show(plan)
        return 1 if any(check.status == "fail" for check in plan.checks) else 0

    def install(self, overwrite_edits: bool) -> int:
        """Print the plan, then apply it."""
        return self._apply(self._plan(), overwrite_edits)

    def rollback(self, overwrite_edits: bool) -> int:
        """Print the plan that brings the last good generation back, then apply it."""
        return self._apply(room.plan_rollback(self.work.host, self.service.unit), overwrite_edits)

    def _apply(self, plan: room.Plan, overwrite_edits: bool) -> int:
        self._show(plan)
        before = self.work.run.step("install_service")
        self.work.begin("install_service")
        try:
            engine = engine_for(self.work.params.server)
            applied = room.install(
                self.work.host, plan, self.work.run, overwrite_edits, engine=engine
            )
        except (BadInput, Blocked):
            self.work.run.restore(before)
            raise
        except BaseException as error:
            self.work.fail(error)
            raise
        said = stages.installed_line(plan, applied)
        if applied.changed:
            by = f"{said}; by the service verbs, not proved"
            self.work.end("install_service", Verdict(True, by))
        else:
            self.work.run.restore(before)
        room.record_monitoring(self.work.run, self.work.params, plan.target)
        self._tell(said)
        self._record()
        return 0

    def verify(self, after_boot: bool, cold: bool) -> int:
        """Prove what is installed; or only how it came back at the last boot, or a cold start."""
        if after_boot and cold:
            raise BadInput(
                "--after-boot and --cold at once",
                "one of them: the first disturbs nobody, the second stops the service",
                "runbook service verify PARAMS --cold",
            )
        target = room.installed(self.work.host, self.service.unit)
        if after_boot:
            return self._verify_boot(target)
        if cold:
            return self._verify_cold(target)
        self.work.begin("install_service")
        proofs = room.prove(
            self.work.host,
            self.work.params,
            target,
            self.work.run,
            speed=stages.speed_of(self.work),
        )
        self._show_proofs(proofs)
        verdict = room.verdict(proofs, self.service.unproved, self.service.unit)
        self.work.end("install_service", verdict)
        stages.note_boot(self.work, proofs)
        self._tell(str(verdict))
        self._record()
        return 0 if verdict.ok else 1

    def _verify_boot(self, target: room.Target) -> int:
        proof = room.prove_boot(self.work.host, self.work.params, target, self.work.run)
        self._show_proofs([proof])
        stages.note_boot(self.work, [proof])
        verdict = room.verdict([proof], self.service.unproved, self.service.unit)
        self._tell(str(verdict))
        self._record()
        return 0 if verdict.ok else 1

    def _verify_cold(self, target: room.Target) -> int:
        host, params = self.work.host, self.work.params
        proof = room.prove_cold(host, params, target, self.work.run, self._tell)
        self._show_proofs([proof])
        verdict = room.verdict([proof], self.service.unproved, self.service.unit)
        self._tell(str(verdict))
        self._record()
        return 0 if verdict.ok else 1

    def _show_proofs(self, proofs: list[room.Proof]) -> None:
        if self.as_json:
            click.echo(json.dumps([asdict(proof) for proof in proofs], indent=1))
            return
        for proof in proofs:
            click.echo(f"{proof.name}: {proof.status} ({proof.evidence})")

    def status(self) -> int:
        """Print what is installed and how it is."""
        found = room.status(self.work.host, self.service.unit)
        if self.as_json:
            click.echo(json.dumps(dict(found.rows()), indent=1))
        else:
            for name, value in found.rows():
                click.echo(f"{name:<16} {value}")
        return 0 if found.ok else 1

    def logs(self) -> int:
        """Print the end of the journal."""
        text = room.logs(self.work.host, self.service.unit).rstrip()
        if not text:
            said = f"{self.service.unit}: no line in the journal; runbook service status PARAMS"
            click.echo(f"{said} tells whether it is installed", err=True)
        click.echo(json.dumps(text.splitlines(), indent=1) if self.as_json else text)
        return 0

    def monitoring(self, prometheus: str | None) -> int:
        """Install what watches over the service."""
        if prometheus is not None and not prometheus.startswith("/"):
            raise BadInput(
                f"--prometheus {prometheus!r}",
                "an absolute path of a folder on the host",
                "runbook service monitoring PARAMS --prometheus /etc/prometheus/rules.d",
            )
        done = room.monitor(self.work.host, self.work.params, self.work.run, prometheus)
        lines = done or ["installed already, nothing changed"]
        if prometheus and done:
            lines.append(
                f"Prometheus reads {prometheus} once its configuration names it: reload it"
            )
        click.echo(json.dumps(lines, indent=1) if self.as_json else "\n".join(lines))
        return 0

    def uninstall(self, overwrite_edits: bool) -> int:
        """Print what will be removed, then remove it."""
        for line in room.plan_uninstall(self.work.host, self.service.unit):
            self._tell(line)
        try:
            room.uninstall(self.work.host, self.service.unit, not overwrite_edits)
        except NotProved:
            self._removed()
            raise
        self._removed()
        return 0

    def _removed(self) -> None:
        for step in ("install_service", "boot"):
            self.work.run.finish(step, "skipped", "uninstalled by the service verbs")
        self._tell(f"{self.service.unit}: removed")
        self._record()

    def _record(self) -> None:
        document.export_all(self.work.folder)


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
