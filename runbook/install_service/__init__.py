"""From a measured launch to a proved service: facts, plan, diff, apply, proofs, and back.

measured = measured_in(run, "ngram-lean")
plan = plan_service(host, params, "ngram-lean", measured, run.path.name)
print(plan.describe())
install(host, plan, run)
proofs = prove(host, params, plan.target, run)
print(verdict(proofs, params.service.unproved, params.service.unit))
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from runbook import probe
from runbook.engines import Engine, engine_for
from runbook.errors import BadInput, HostFailed, NotHere
from runbook.hosts.base import Host
from runbook.install_service.apply import Applied, Step, apply, plan_uninstall, uninstall
from runbook.install_service.facts import HostFacts, not_installed, read_facts, require_systemd
from runbook.install_service.observe import set_by_server
from runbook.install_service.places import JOURNAL_LINES, Target
from runbook.install_service.plan import Measured, Plan, make_plan, make_target
from runbook.install_service.proofs import Proof, to_json, verdict
from runbook.install_service.service import Service, info_from, spec_from
from runbook.install_service.trials import prove_service
from runbook.launch import systemd
from runbook.launch.lint import lint
from runbook.launch.unit_file import parse_unit
from runbook.params import Params
from runbook.run import Run

__all__ = [
    "Applied",
    "Measured",
    "Plan",
    "Proof",
    "Status",
    "Target",
    "install",
    "installed",
    "logs",
    "measured_in",
    "plan_rollback",
    "plan_service",
    "plan_uninstall",
    "prove",
    "record_plan",
    "status",
    "target_of",
    "uninstall",
    "unmeasured",
    "verdict",
]


def measured_in(run: Run, configuration: str) -> Measured:
    """The launch of a configuration as the benchmark recorded it. Raises ``NotHere``."""
    launches = run.read_json("launches.json") or {}
    if configuration not in launches:
        known = ", ".join(launches) or "none"
        raise NotHere(
            f"{configuration} was not measured in this run",
            f"a measured configuration (here: {known})",
            "runbook run PARAMS --from benchmark, or give a reason: "
            "runbook service install PARAMS --unmeasured REASON",
        )
    launch = launches[configuration]
    try:
        return Measured(
            spec_from(launch["spec"]),
            tuple(launch.get("load_s") or ()),
            info_from(launch.get("info")),
            launch.get("launch", "unknown"),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise BadInput(
            f"launches.json of this run does not describe the launch of {configuration}: {error!r}",
            "launches.json as the benchmark of this release writes it",
            "measure again: runbook run PARAMS --from benchmark",
        ) from None


def unmeasured(params: Params, configuration: str) -> Measured:
    """The launch as it would be measured: for a look at the unit, or an install with a reason."""
    spec = engine_for(params.server).launch_spec(params, params.configuration(configuration))
    return Measured(spec)


def plan_service(
    host: Host, params: Params, configuration: str, measured: Measured, run: str = ""
) -> Plan:
    """Read the host, check the unit there and plan. Changes nothing.

    Raises ``Blocked`` for a foreign unit.
    """
    target = target_of(host.python, params, configuration, measured, run)
    plan = make_plan(target, read_facts(host, target.unit))
    return replace(plan, checks=tuple(lint(target.unit_text, host, target.unit)))


def target_of(
    python: str, params: Params, configuration: str, measured: Measured, run: str = ""
) -> Target:
    """What would be installed, without asking any host (``runbook unit``)."""
    program = measured.spec.interpreter.rpartition("/")[2]
    interpreter = measured.spec.interpreter if program.startswith("python") else python
    return make_target(params, configuration, measured, probe.source("gate"), interpreter, run)


def plan_rollback(host: Host, unit: str, to: int | None = None) -> Plan:
    """The plan that brings a kept generation back; by default the one before the current.

    Raises ``BadInput`` when there is none, ``NotHere`` without systemd, ``Blocked`` for a foreign
    unit.
    """
    require_systemd(host)
    facts = read_facts(host, unit)
    earlier = [n for n in facts.generations if facts.current is None or n < facts.current]
    number = to if to is not None else max(earlier, default=None)
    if number is None or number not in facts.generations:
        kept = ", ".join(map(str, facts.generations)) or "none"
        raise BadInput(
            f"{unit} has no {'earlier generation' if to is None else f'generation {to}'}",
            f"a generation that has served (kept: {kept}; current: {facts.current})",
            "install a measured configuration: runbook service plan PARAMS",
        )
    return make_plan(facts.generation(number), facts, number)


def install(
    host: Host,
    plan: Plan,
    run: Run | None = None,
    overwrite_edits: bool = False,
    step: Step = lambda name: None,
) -> Applied:
    """Apply a plan, of ``plan_service`` or of ``plan_rollback``; a second time changes nothing.

    With ``run``, unit, environment, manifest, diff and journal are kept below ``service/``.
    Raises as ``apply``.
    """
    if run is not None:
        record_plan(run, plan)
    try:
        return apply(host, plan, keep_edits=not overwrite_edits, step=step)
    finally:
        _record_journal(run, host, plan.target.unit)


def record_plan(run: Run, plan: Plan) -> None:
    """Write unit, environment, manifest and diff of a plan into the run folder."""
    target = plan.target
    environment = parse_unit(target.unit_text).environment()
    run.write("service/" + target.unit, target.unit_text)
    run.write("service/gate.py", target.gate_text)
    run.write("service/environment", "".join(f"{k}={v}\n" for k, v in environment.items()))
    run.write("service/manifest.json", json.dumps(dict(target.manifest), indent=1) + "\n")
    run.write("service/diff.txt", plan.describe())


def prove(
    host: Host,
    params: Params,
    target: Target,
    run: Run | None = None,
    tell: Callable[[Proof], None] = lambda proof: None,
    engine: Engine | None = None,
) -> list[Proof]:
    """Prove the service: it is killed, and a box is rebooted and cut. Never raises for a proof.

    With ``run``, ``service/proofs.json``, ``service/journal.txt`` and, of a service that runs,
    ``service/set_by_server.json`` are written.
    """
    service = Service(host, params, target, engine or engine_for(params.server))
    proofs = prove_service(service, tell)
    if run is not None:
        run.write("service/proofs.json", to_json(proofs))
        _record_set_by_server(run, service)
    _record_journal(run, host, target.unit)
    return proofs


def installed(host: Host, unit: str) -> Target:
    """The generation that is installed. Raises ``NotHere`` without one."""
    facts = read_facts(host, unit)
    if facts.current is None:
        raise not_installed(unit)
    return facts.generation(facts.current)


@dataclass(frozen=True)
class Status:
    """What is installed and how it is; ``drift``: what somebody else changed."""

    unit: str
    facts: HostFacts
    drift: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether it is active, starts at boot and is as installed."""
        return self.facts.active and self.facts.enabled and not self.drift

    def rows(self) -> list[tuple[str, str]]:
        """For a table: what, and how it is."""
        manifest = self.facts.current_manifest
        wanted = ("ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "Result")
        rows = [(name, self.facts.state[name]) for name in wanted if self.facts.state.get(name)]
        rows.append(("generation", str(self.facts.current or "none")))
        rows += [
            (k, str(manifest[k])) for k in ("configuration", "run", "written") if k in manifest
        ]
        rows += [("drift", text) for text in self.drift]
        if self.facts.why_no_systemd:
            rows.append(("systemd", self.facts.why_no_systemd))
        return rows


def status(host: Host, unit: str) -> Status:
    """Look at a service; changes nothing. Raises ``Blocked`` for a foreign unit."""
    facts = read_facts(host, unit)
    if facts.current is None:
        return Status(unit, facts, ())
    plan = make_plan(facts.generation(facts.current), facts, facts.current)
    changed = [f"{c.path} is not as installed" for c in plan.files if not c.same]
    return Status(unit, facts, (*plan.drift, *changed))


def logs(host: Host, unit: str, lines: int | None = 200) -> str:
    """The end of the unit's journal, ``None`` for all. Raises ``NotHere`` without systemd."""
    require_systemd(host)
    return systemd.journal(host, unit, lines=lines)


def _record_set_by_server(run: Run, service: Service) -> None:
    if service.host.why_no_systemd() is not None:
        return
    with contextlib.suppress(HostFailed):
        found = set_by_server(service)
        run.write("service/set_by_server.json", json.dumps(found, indent=1) + "\n")


def _record_journal(run: Run | None, host: Host, unit: str) -> None:
    """A host that gives no journal must not hide what went wrong before."""
    if run is None or host.why_no_systemd() is not None:
        return
    try:
        text = systemd.journal(host, unit, lines=JOURNAL_LINES)
    except HostFailed as error:
        text = f"the journal cannot be read: {error}\n"
    run.write("service/journal.txt", text)
