"""Each stage, done in its run: what the notebooks call, a line a cell.

The rooms do the work and know nothing of one another; here they are given the run's parameters
and artefacts, and what they answer becomes the next artefact.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from runbook import benchmark as benchmark_room
from runbook import choose as choose_room
from runbook import install_service as service_room
from runbook import progress
from runbook import verify_stack as stack_room
from runbook.cells import Cell
from runbook.checks import Verdict
from runbook.engines import engine_for
from runbook.errors import Blocked, NotChosen, NotHere, RunbookError
from runbook.launch.resting import resting, see
from runbook.notebook import Work
from runbook.publish import document, plan_document
from runbook.publish.tables import Markdown, fence
from runbook.run import NOT_APPLIED
from runbook.verbs.choosing import UNNAMED

_PROOFS, _APPLIED = "service/proofs.json", "service/applied.json"
_BOOT_PROOFS = ("back after reboot", "back after sudden death")

# --- 01 verify_stack


def verify_stack(work: Work) -> stack_room.StackReport:
    """Facts and checks of the stack; leaves ``stack.json``."""
    work.begin("verify_stack")
    if work.params.host.kind == "box" and (reason := work.host.why_no_systemd()) is not None:
        print(f"no throw-away systemd: {reason}; the service will only be verified statically")
    work.engine.prepare(work.params, lambda text: print(text, flush=True))
    report = stack_room.verify(work.params, work.host, work.specs(), work.engine)
    work.run.write_json("stack.json", report.to_json())
    return report


def show_launch(work: Work) -> Markdown:
    """The baseline's launch as a command to paste."""
    return Markdown(fence(work.specs()["baseline"].shell_command(), "sh"))


# --- 02 benchmark


def cost(work: Work) -> Markdown:
    """What the benchmark will cost in time, and what that estimate assumes."""
    if work.kind == "alone":
        return Markdown("One short block at the lowest concurrency: under a minute.")
    if benchmark_room.is_given(work.run):
        return Markdown(
            "The figures were measured elsewhere. One server is started, once, and one short cell "
            "is compared with them."
        )
    rests = work.params.service.replaces
    said = [f"It {benchmark_room.estimate(work.params).sentence}."]
    if rests:
        said.append(f"While it measures, {', '.join(rests)} rests (with `--apply` only).")
    asked = benchmark_room.workload_of(work.params.workload).prompts
    said += [f"Known before: {one}." for one in benchmark_room.foresee(work.params, asked)]
    return Markdown("\n\n".join(said))


def benchmark(work: Work) -> benchmark_room.Measurements:
    """Measure what is not measured yet, on the stack that was verified; leaves requests, cells and
    launches. Raises ``Blocked`` where that is not what is here now."""
    work.begin("benchmark")
    if work.launcher.kind != work.params.benchmark.launch:
        print(f"launched as processes, not as units: {work.host.why_no_systemd()}")
    report = progress.report()
    if work.kind == "alone":
        return benchmark_room.measure_briefly(
            work.params, work.launcher, work.engine, work.folder, report
        )
    names = [one.name for one in work.params.configurations]

    def enough(cells: Sequence[Cell]) -> bool:
        return choose_room.ask(cells, work.params.choose, names).status == "chosen"

    stack = _stack_as_verified(work)
    with _others_resting(work):
        if benchmark_room.is_given(work.run):
            to_start = _to_confirm(work)
            return benchmark_room.confirm(
                work.run, to_start, work.launcher, work.engine, report, stack
            )
        return benchmark_room.measure(work.run, work.launcher, work.engine, report, enough, stack)


def _to_confirm(work: Work) -> str:
    """The configuration that is to be installed, of a run whose figures were given. Raises
    ``NotHere`` where nobody has accepted it."""
    if (override := work.params.choose.override) is None:
        raise NotHere(
            "the figures of this run were measured elsewhere, and nobody has accepted a choice",
            "a choice with a reason and a name",
            "-p 'choose.override={choose: NAME, reason: WHY, by: WHO}'",
        )
    return override.choose


def _stack_as_verified(work: Work) -> Mapping[str, Any]:
    """What surrounds the servers now. Raises ``Blocked`` where another was verified."""
    now = stack_room.read_again(work.params, work.host, work.specs(), work.engine)
    verified = work.run.read_json("stack.json")
    pairs = [
        [benchmark_room.surroundings_of(stack, one.name) for stack in (verified or now, now)]
        for one in work.params.configurations
    ]
    changed = dict.fromkeys(said for pair in pairs for said in benchmark_room.changes(*pair))
    if not changed:
        return now
    raise Blocked(
        f"the stack is not the one that was verified: {'; '.join(changed)}",
        "what is measured to be measured on what was verified",
        "put that back; or verify what is here now and measure again what was measured before: "
        f"runbook run PARAMS --from verify_stack --out {shlex.quote(str(work.folder))}",
    )


@contextmanager
def _others_resting(work: Work) -> Iterator[None]:
    """What serves on the host now rests while it is measured there. Raises ``Blocked`` where that
    would stop something without ``apply``."""
    service = work.params.service
    units = [service.unit, *service.replaces]
    if work.host.why_no_systemd() is not None:
        yield
        return
    running = [unit for unit in units if see(work.host, unit).active]
    if running and not work.apply:
        estimate = progress.clock(benchmark_room.estimate(work.params).seconds)
        raise Blocked(
            f"{', '.join(running)} serves on this host and holds what the benchmark needs",
            f"leave to stop it for about {estimate}; it is brought back, whatever happens",
            "runbook run PARAMS --apply",
        )
    with resting(work.host, units, lambda text: print(text, flush=True)):
        yield


def measured_verdict(measured: benchmark_room.Measurements) -> Verdict:
    """The verdict of the benchmark."""
    return benchmark_room.verdict(measured)


# --- 03 choose


def choose(work: Work) -> choose_room.Decision:
    """Decide by the rule of the parameters, and say what to do where no choice is clear; leaves
    ``decision.json``. Raises ``NotHere``."""
    work.begin("choose")
    measured = benchmark_room.load_measurements(work.folder)
    _refuse_unconfirmed(work)
    if not measured.cells:
        raise NotHere(
            f"{work.folder} holds no measured cell",
            "a benchmark",
            "runbook run PARAMS --from benchmark",
        )
    names = [one.name for one in work.params.configurations]
    decision = choose_room.decide(measured.cells, work.params.choose, names)
    launches = {name: one.get("fingerprint", name) for name, one in measured.launches.items()}
    decision = choose_room.with_controls(decision, launches)
    if work.kind == "results":  # how other tools define what was decided by
        decision = replace(decision, notes=(*decision.notes, *measured.notes))
    work.run.write("decision.json", decision.to_json())
    for advice in decision.advice if work.params.choose.override is None else ():
        print(f"next: {advice}")
    return decision


def _refuse_unconfirmed(work: Work) -> None:
    """Raise ``NotChosen`` where figures were given that the confirming cell did not agree with."""
    if not benchmark_room.is_given(work.run):
        return
    if not benchmark_room.is_confirmed(work.run, name := _to_confirm(work)):
        raise NotChosen(
            f"{name} was not confirmed: its one cell here does not agree with the figures, or was "
            "not measured",
            "a confirming cell within choose.figures_bound",
            "runbook run PARAMS --from benchmark",
        )


def chosen_verdict(work: Work, decision: choose_room.Decision) -> Verdict:
    """Negative when no choice is clear, or when it is not the expected one."""
    return choose_room.verdict(decision, work.params.choose, to_install=work.kind != "results")


def write_draft(work: Work, decision: choose_room.Decision) -> Markdown:
    """The findings as ``production_v2.md`` in the run folder, before the service is touched."""
    if work.kind not in ("run", "results"):
        return Markdown(f"`{document.NAME}` of the example run lies in `docs/example-run`.")
    if work.kind == "results" and work.params.name == UNNAMED:
        return Markdown(
            "No record: figures alone say nothing of server and model. Give parameters."
        )
    work.end("choose", chosen_verdict(work, decision))
    work.begin("draft")
    path = document.export_all(work.folder)[0]
    work.end("draft", Verdict(True, path.name))
    return Markdown(f"Written: `{path}`")


# --- 04 install_service


def final_choice(work: Work) -> str:
    """The configuration to install: measured or by override. Raises ``NotChosen``."""
    text = work.run.path / "decision.json"
    decision = choose_room.from_json(text.read_bytes()) if text.exists() else None
    override = work.params.choose.override
    choice = choose_room.final_choice(decision, work.params.choose) if decision else None
    if choice is None:
        choice = override.choose if override else None
    if choice is None and decision is None:
        step = work.run.step("benchmark")
        raise NotChosen(
            f"nothing was chosen yet with these parameters (benchmark: {step.status})",
            "a measured choice",
            "runbook run PARAMS --to choose; in an emergency, with the record showing why: "
            "runbook service install PARAMS --unmeasured 'WHY'",
        )
    if choice is None:
        raise NotChosen(
            f"{work.folder} holds no choice that may be installed",
            "a clear choice, the expected one where one is expected",
            "measure afresh with more blocks, or set choose.override with reason and name: "
            "runbook run PARAMS --from choose",
        )
    return choice


def plan_service(work: Work) -> service_room.Plan | None:
    """The plan, recorded below ``service/``; nothing is changed. ``None`` for the example."""
    if work.kind == "example":
        return None
    choice = final_choice(work)
    measured = service_room.measured_in(work.run, choice)
    plan = service_room.plan_service(work.host, work.params, choice, measured, work.folder.name)
    service_room.record_plan(work.run, plan)
    service_room.record_monitoring(work.run, work.params, plan.target)
    return plan


def install_service(work: Work, plan: service_room.Plan | None) -> None:
    """Apply the plan where ``apply`` is set and a systemd runs; says what it did or why not."""
    if plan is None:
        print("nothing is changed: this is the example run")
    elif not work.apply:
        print("nothing is changed: apply is false, the plan above is what would be done")
        for step in ("install_service", "boot"):
            work.skip(step, f"{NOT_APPLIED}: only planned")
    elif (reason := work.host.why_no_systemd()) is not None:
        print(f"nothing is installed: {reason}")
        work.skip("install_service", f"not installed: {reason}")
    else:
        work.begin("install_service")
        engine = engine_for(work.params.server)
        print(installed_line(plan, service_room.install(work.host, plan, work.run, engine=engine)))


def installed_line(plan: service_room.Plan, applied: service_room.Applied) -> str:
    """One line: what an install did."""
    took = f", served after {applied.served_s:.1f} s" if applied.served_s else ""
    took += f", nobody answered for {applied.downtime_s:.1f} s" if applied.downtime_s else ""
    done = "installed" if applied.changed else "installed already, nothing changed"
    return f"{plan.target.unit}: {done} (generation {applied.generation}{took})"


def prove_service(work: Work, plan: service_room.Plan | None) -> list[service_room.Proof]:
    """Prove the installed service: compared, killed, rebooted, cut. Leaves ``proofs.json``. What a
    refuted one takes back, ``applied.json`` tells."""
    proved_before = work.run.read_json(_PROOFS, list) or []
    if plan is None or not work.apply:
        return [service_room.Proof(**one) for one in proved_before]
    proofs = service_room.prove(
        work.host,
        work.params,
        plan.target,
        work.run,
        lambda proof: print(f"{proof.name}: {proof.status}", flush=True),
        work.engine,
        speed_of(work),
    )
    note_boot(work, proofs)
    refuted = any(proof.status == "refuted" for proof in proofs)
    if refuted and work.params.service.rollback and not (plan.unchanged and proved_before):
        _take_back(work)
    return proofs


def _take_back(work: Work) -> None:
    unit = work.params.service.unit
    try:
        done = service_room.take_back(work.host, unit) or "nothing served before, so it stays"
    except RunbookError as error:
        done = f"what served before could NOT be brought back: {error.found}"
    applied = work.run.read_json(_APPLIED) or {}
    work.run.write_json(_APPLIED, {**applied, "taken_back": done})
    print(f"{unit}: {done}", flush=True)


def speed_of(work: Work) -> Callable[[str, int], float | None]:
    """Measures what the service gives now, by the id of its model and a concurrency."""
    return lambda model, at: benchmark_room.measure_again(work.params, model, at)


def note_boot(work: Work, proofs: list[service_room.Proof]) -> None:
    """The step ``boot`` of the to-do list is what the proofs of coming back say."""
    back = [proof for proof in proofs if proof.name in _BOOT_PROOFS]
    work.begin("boot")
    refuted = [proof.name for proof in back if proof.status == "refuted"]
    proved = [proof.name for proof in back if proof.status == "proved"]
    if refuted or proved:
        work.end("boot", Verdict(not refuted, ", ".join(refuted or proved)))
    else:
        work.skip("boot", f"not provable here: {back[0].evidence}" if back else "not proved")


def proved_verdict(work: Work, proofs: list[service_room.Proof]) -> Verdict:
    """Negative when a proof was refuted, or unprovable and the parameters want it proved."""
    service = work.params.service
    if not work.apply and work.kind == "run":
        return Verdict(True, f"{service.unit}: planned, not installed (apply is false)")
    verdict = service_room.verdict(proofs, service.unproved, service.unit)
    taken_back = (work.run.read_json(_APPLIED) or {}).get("taken_back")
    if work.kind == "run" and not verdict.ok and taken_back:
        return Verdict(False, f"{verdict.text}; {taken_back}")
    return verdict


# --- 05 publish


def write_record(work: Work) -> None:
    """The record to its place on the target, then the block in the operator's plan document."""
    work.begin("publish")
    record = work.params.record
    if work.kind == "run":
        print(f"record: {document.export_all(work.folder)[0]}")
    reason = _why_not_written(work, record.document)
    if reason is None:
        print(document.write_on(work.host, work.folder, _on_target(work, record.document)))
    else:
        print(f"{document.NAME} stays in the run folder, none on the target: {reason}")
    reason = _why_not_written(work, record.plan)
    if reason is not None:
        print(f"no plan document is changed: {reason}")
        work.skip("plan_document", reason)
        return
    work.begin("plan_document")
    block = plan_document.block(work.folder, datetime.now(UTC).date())
    said = plan_document.update_on(work.host, _on_target(work, record.plan), block)
    work.end("plan_document", Verdict(True, said))
    print(said)


def published_verdict(work: Work) -> Verdict:
    """Positive: the record can be exported."""
    return Verdict(True, f"recorded in {document.NAME}")


def _on_target(work: Work, path: str | None) -> str:
    return posixpath.normpath(posixpath.join(work.params.server.cwd, path or ""))


def _why_not_written(work: Work, path: str | None) -> str | None:
    """Why a file on the target is not written; ``None`` where it may be."""
    if work.kind == "example":
        return "this is the example run"
    if path is None:
        return "the parameters name no such file"
    if not work.apply:
        return NOT_APPLIED
    if work.run.step("install_service").status != "completed":
        return "the service is not installed"
    return work.host.why_no_systemd()
