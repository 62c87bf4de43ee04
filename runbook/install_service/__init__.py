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
from dataclasses import asdict, dataclass, replace

from runbook import probe
from runbook.engines import Engine, engine_for
from runbook.errors import BadInput, HostFailed
from runbook.hosts.base import Host
from runbook.install_service import guard
from runbook.install_service.after_boot import prove_after_boot
from runbook.install_service.apply import Applied, Step, apply
from runbook.install_service.cold import NAME as COLD
from runbook.install_service.cold import RECORD as COLD_RECORD
from runbook.install_service.cold import announce, as_text, prove_cold_start
from runbook.install_service.drift import drifted, read_drift
from runbook.install_service.facts import HostFacts, not_installed, read_facts, require_systemd
from runbook.install_service.measured import (
    Measured,
    info_from,
    measured_in,
    measured_speeds,
    spec_from,
    unmeasured,
)
from runbook.install_service.monitoring import (
    install_monitoring,
    monitoring_files,
    record_monitoring,
)
from runbook.install_service.observe import set_by_server
from runbook.install_service.places import JOURNAL_LINES, Target
from runbook.install_service.plan import Plan, make_plan, make_target
from runbook.install_service.proofs import Proof, to_json, verdict
from runbook.install_service.service import Service
from runbook.install_service.trials import prove_service
from runbook.install_service.undo import Explain, plan_uninstall, take_back, uninstall
from runbook.launch import systemd
from runbook.launch.lint import lint
from runbook.launch.resting import see
from runbook.launch.unit_file import parse_unit
from runbook.params import Params
from runbook.run import Run

__all__ = [
    "Applied",
    "Measured",
    "Plan",
    "Proof",
    "Service",
    "Status",
    "Target",
    "drifted",
    "install",
    "installed",
    "logs",
    "measured_in",
    "monitor",
    "plan_rollback",
    "plan_service",
    "plan_uninstall",
    "prove",
    "prove_boot",
    "prove_cold",
    "read_drift",
    "record_monitoring",
    "record_plan",
    "status",
    "take_back",
    "target_of",
    "uninstall",
    "unmeasured",
    "verdict",
]


def plan_service(
    host: Host, params: Params, configuration: str, measured: Measured, run: str = ""
) -> Plan:
    """Read the host, check the unit there and plan. Changes nothing.

    Raises ``Blocked`` for a foreign unit.
    """
    target = target_of(host.python, params, configuration, measured, run)
    plan = make_plan(target, read_facts(host, target.unit))
    others = params.service.replaces if host.why_no_systemd() is None else []
    return replace(
        plan,
        checks=tuple(lint(target.unit_text, host, target.unit)),
        replaces=tuple(see(host, unit) for unit in others),
    )


def target_of(
    python: str, params: Params, configuration: str, measured: Measured, run: str = ""
) -> Target:
    """What would be installed, without asking any host (``runbook unit``)."""
    program = measured.spec.interpreter.rpartition("/")[2]
    interpreter = measured.spec.interpreter if program.startswith("python") else python
    return make_target(params, configuration, measured, probe.guard_program(), interpreter, run)


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
    engine: Engine | None = None,
) -> Applied:
    """Apply a plan, of ``plan_service`` or of ``plan_rollback``; a second time changes nothing.

    With ``run``, unit, environment, manifest, diff and journal are kept below ``service/``, and
    ``applied.json``: how long it took and how long nobody answered. ``engine``: explains
    why a server did not come up.
    Raises as ``apply``.
    """
    if run is not None:
        record_plan(run, plan)
    try:
        explain = _explained(engine, plan) if engine is not None else _unexplained
        applied = apply(host, plan, not overwrite_edits, step, explain)
        if run is not None and applied.changed:
            run.write("service/applied.json", json.dumps(asdict(applied), indent=1) + "\n")
        return applied
    finally:
        _record_journal(run, host, plan.target.unit)


def _explained(engine: Engine, plan: Plan) -> Explain:
    """Explains the log of a server by what its manifest says of its launch."""
    spec = spec_from(plan.target.manifest["spec"])
    return lambda log: engine.explain_log(log, spec)


def _unexplained(log: str) -> str:
    return ""


def record_plan(run: Run, plan: Plan) -> None:
    """Write units, guard, environment, manifest and diff of a plan into the run folder."""
    target = plan.target
    environment = parse_unit(target.unit_text).environment()
    run.write(f"service/{target.unit}", target.unit_text)
    run.write(f"service/{target.places.boot_unit}", target.boot_text)
    for name, text in target.kept.items():
        if name.startswith("guard"):
            run.write(f"service/{name}", text)
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
    speed: Callable[[str, int], float | None] | None = None,
) -> list[Proof]:
    """Prove the service: it is stopped under load, killed, and a box is rebooted and cut. Never
    raises for a proof.

    With ``run``, ``service/proofs.json``, ``service/journal.txt`` and, of a service that runs,
    ``service/set_by_server.json`` are written. ``speed``: output tokens a second that it gives
    now, by the id of its model and a concurrency.
    """
    service = Service(host, params, target, engine or engine_for(params.server))
    info = info_from(target.manifest.get("info"))
    if run is not None and speed is not None and info is not None:
        ask, model_id = speed, info.model_id
        service = replace(
            service,
            speeds=measured_speeds(run, target.manifest["configuration"]),
            speed=lambda concurrency: ask(model_id, concurrency),
        )
    proofs = prove_service(service, tell)
    if run is not None:
        run.write("service/proofs.json", to_json(proofs))
        _record_set_by_server(run, service)
    _record_journal(run, host, target.unit)
    return proofs


def prove_boot(host: Host, params: Params, target: Target, run: Run) -> Proof:
    """How the service came back at the last boot of its host; nothing is disturbed. The run's
    proof of it is replaced."""
    proof = prove_after_boot(Service(host, params, target, engine_for(params.server)))
    _replace_proof(run, proof)
    return proof


def prove_cold(
    host: Host, params: Params, target: Target, run: Run, tell: Callable[[str], None]
) -> Proof:
    """How long a cold start takes: the service is stopped for it, which ``tell`` is told before.

    The run keeps it in ``service/cold_start.json``, and as one of its proofs.
    """
    service = Service(host, params, target, engine_for(params.server))
    tell(announce(service))
    try:
        proof, found = prove_cold_start(service)
    except HostFailed as error:
        proof, found = Proof(COLD, "refuted", error.found), None
    if found is not None:
        run.write(COLD_RECORD, as_text(found))
    _replace_proof(run, proof)
    return proof


def _replace_proof(run: Run, proof: Proof) -> None:
    others = [Proof(**one) for one in run.read_json("service/proofs.json", list) or []]
    kept = [one if one.name != proof.name else proof for one in others]
    run.write("service/proofs.json", to_json(kept if proof in kept else [*kept, proof]))


def installed(host: Host, unit: str) -> Target:
    """The generation that is installed. Raises ``NotHere`` without one."""
    if not host.is_there:
        require_systemd(host)
    facts = read_facts(host, unit)
    if facts.current is None:
        raise not_installed(unit)
    return facts.generation(facts.current)


def monitor(host: Host, params: Params, run: Run, prometheus: str | None = None) -> list[str]:
    """Install what watches over the service that is installed; a line for each change.

    ``prometheus``: the folder on the host that its rules and its scrape go to. Raises ``NotHere``
    without a service, ``Blocked`` for files of somebody else.
    """
    target = installed(host, params.service.unit)
    require_systemd(host)
    files = monitoring_files(run, params, target, prometheus)
    return install_monitoring(host, target.places, files)


@dataclass(frozen=True)
class Status:
    """What is installed and how it is; ``drift``: what somebody else changed; ``guard``: what the
    guard said before the last start."""

    unit: str
    facts: HostFacts
    drift: tuple[str, ...]
    guard: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it is active, starts at boot and is as installed."""
        return self.facts.active and self.facts.enabled and not self.drift

    def rows(self) -> list[tuple[str, str]]:
        """For a table: what, and how it is."""
        if self.facts.current is None:
            return self._absent()
        manifest = self.facts.current_manifest
        wanted = ("ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "Result")
        rows = [(name, self.facts.state[name]) for name in wanted if self.facts.state.get(name)]
        rows.append(("generation", str(self.facts.current)))
        rows += [
            (k, str(manifest[k])) for k in ("configuration", "run", "written") if k in manifest
        ]
        rows += [("gave way", one.unit) for one in self.facts.replaced]
        rows += [("guard", text) for text in self.guard]
        rows += [("drift", text) for text in self.drift]
        return rows + self._no_systemd()

    def _absent(self) -> list[tuple[str, str]]:
        """There may be a unit of that name, and the rest of an install that did not serve."""
        do = "once a run has chosen: runbook service install PARAMS"
        rows = [(self.unit, "not installed"), ("next", do)]
        if self.facts.fragment:
            state = self.facts.state.get("ActiveState", "unknown")
            rows.insert(1, ("found", f"{self.facts.fragment}, {state}"))
        return rows + self._no_systemd()

    def _no_systemd(self) -> list[tuple[str, str]]:
        reason = self.facts.why_no_systemd
        return [("systemd", reason)] if reason else []


def status(host: Host, unit: str) -> Status:
    """Look at a service; changes nothing. Raises ``Blocked`` for a foreign unit."""
    facts = read_facts(host, unit)
    if facts.current is None:
        return Status(unit, facts, ())
    plan = make_plan(facts.generation(facts.current), facts, facts.current)
    changed = [f"{c.path} is not as installed" for c in plan.files if not c.same]
    if not facts.is_recorded:
        changed.append(f"{facts.places.boot_unit} is not enabled: no boot is recorded")
    said = [] if facts.why_no_systemd else guard.said_last(host, unit)
    return Status(unit, facts, (*plan.drift, *changed), tuple(said))


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
        said = guard.said_last(host, unit)
        run.write("service/guard_said.json", json.dumps(said, indent=1) + "\n")
    except HostFailed as error:
        text = f"the journal cannot be read: {error}\n"
    run.write("service/journal.txt", text)
