"""Bringing a host to a plan, step by step, so that sudden death after any step leaves a service
that boots: the older one or the newer one, each with its own gate."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from runbook.atomic import SUFFIX
from runbook.errors import Blocked, HostFailed, NotProved
from runbook.hosts.base import Host
from runbook.install_service.facts import (
    HostFacts,
    not_installed,
    read_facts,
    read_state,
    require_systemd,
)
from runbook.install_service.lock import locked
from runbook.install_service.places import KEPT, LOCKS, STATE, UNITS, Places, digest
from runbook.install_service.plan import WANTED_BY, Plan, refuse_foreign
from runbook.launch import systemd
from runbook.launch.resting import PATIENCE_S, bring_back
from runbook.launch.systemd import watched
from runbook.launch.unit import is_untouched
from runbook.launch.unit_file import parse_unit
from runbook.run import now

#: Told of each step when it is done; tests cut the power here.
Step = Callable[[str], None]


@dataclass(frozen=True)
class Applied:
    """What was done. ``served_s``: seconds from the order to start to the end of the gate;
    ``None`` when nothing had to be started. ``downtime_s``: those in which nobody answered, where
    a service ran before."""

    generation: int
    changed: bool
    served_s: float | None = None
    downtime_s: float | None = None


def apply(
    host: Host, plan: Plan, keep_edits: bool = True, step: Step = lambda name: None
) -> Applied:
    """Do what the plan says; a second time it changes nothing.

    ``keep_edits``: refuse where somebody changed unit or gate by hand; else they are kept as a
    backup and replaced. Raises ``Blocked`` for drift, a faulty unit, a stale plan or
    another who is at it, ``NotHere`` without systemd, ``NotProved`` when the new service did not
    serve and what was there before was brought back.
    """
    require_systemd(host)
    with locked(host, plan.target.unit):
        _refuse_stale(host, plan)
        if plan.unchanged:
            return Applied(plan.generation, changed=False)
        _refuse_drift(plan, keep_edits)
        _refuse_faults(plan)
        _backup_edits(host, plan)
        try:
            _write_files(host, plan, step)
            served_s, downtime_s = _switch(host, plan, step)
        except HostFailed as error:
            raise _brought_back(host, plan, error) from error
        except BaseException:
            _bring_back(host, plan)
            raise
        places = plan.target.places
        host.write(f"{places.generation(plan.generation)}/served", now() + "\n")
        host.write(places.current, f"{plan.generation}\n")
        step("current")
        _prune(host, plan.target.unit)
        step("prune")
        return Applied(plan.generation, True, served_s, downtime_s)


def _refuse_stale(host: Host, plan: Plan) -> None:
    """What the plan was made from must still be so."""
    found = read_facts(host, plan.target.unit)
    if (found.unit_text, found.drop_ins, found.current) != (
        plan.facts.unit_text,
        plan.facts.drop_ins,
        plan.facts.current,
    ):
        raise Blocked(
            f"{plan.target.unit} has changed since the plan was made",
            "the host as it was planned for",
            "look at it again: runbook service plan PARAMS",
        )


def _refuse_drift(plan: Plan, keep_edits: bool) -> None:
    if plan.drift and (keep_edits or plan.facts.drop_ins):
        raise Blocked(
            "; ".join(plan.drift),
            "the unit as the runbook wrote it, without drop-ins",
            "move the change into the parameters and measure again, or replace an edited unit "
            "(a backup is kept): runbook service install PARAMS --overwrite-edits",
        )


def _refuse_faults(plan: Plan) -> None:
    failed = [check for check in plan.checks if check.status == "fail"]
    if failed:
        raise Blocked(
            "; ".join(f"{check.name}: {check.found}" for check in failed),
            failed[0].wanted,
            failed[0].fix or "correct the parameters, then: runbook service plan PARAMS",
        )


def _backup_edits(host: Host, plan: Plan) -> None:
    text = plan.facts.unit_text
    if text is not None and not is_untouched(text):
        root = plan.target.places.root
        host.make_dir(root)
        host.write(f"{root}/edited-{digest(text)[:12]}.service", text)


def _write_files(host: Host, plan: Plan, step: Step) -> None:
    """Generation first, then gate and guard, then the unit that needs them."""
    target, places = plan.target, plan.target.places
    if plan.is_new:
        folder = places.generation(plan.generation)
        host.make_dir(folder)
        for name, text in target.kept.items():
            host.write(f"{folder}/{name}", text)
        manifest = {**target.manifest, "generation": plan.generation, "written": now()}
        host.write(f"{folder}/manifest.json", json.dumps(manifest, indent=1) + "\n", mode=0o600)
        step("generation")
    for change in plan.files:
        if not change.same and change.new is not None:
            host.write(change.path, change.new, change.mode)
            step(f"write {change.path.rpartition('/')[2]}")


def _switch(host: Host, plan: Plan, step: Step) -> tuple[float | None, float | None]:
    """Let systemd take over what was written; seconds until the gate ended, and without a service.

    What gives way is stopped last and disabled when this one has served; a watch on the host
    starts it again when the runner is killed in between and this one does not come to serve.
    """
    served_s = down_since = None
    with watched(host, "handover", _hand_back(plan)) if plan.giving_way else nullcontext():
        for action in plan.actions:
            if action in ("start", "restart"):
                down_since = time.monotonic() if _was_served(plan) else None
                _stop_others(host, plan, step)
            began = time.monotonic()
            if action == "daemon-reload":
                systemd.daemon_reload(host)
            elif action == "enable":
                systemd.enable(host, plan.target.unit)
            else:
                _start(host, plan.target.unit, plan.target.unit_text, action)
                served_s = time.monotonic() - began
            step(action)
        downtime_s = None if down_since is None else time.monotonic() - down_since
        if served_s is None:
            _stop_others(host, plan, step)
        for one in plan.giving_way:
            if one.enabled:
                systemd.disable(host, one.unit)
                step(f"disable {one.unit}")
    return served_s, downtime_s


def _was_served(plan: Plan) -> bool:
    return plan.facts.active or any(one.active for one in plan.giving_way)


def _stop_others(host: Host, plan: Plan, step: Step) -> None:
    for one in plan.giving_way:
        if one.active:
            host.run("systemctl", "stop", "--", one.unit, timeout_s=PATIENCE_S)
            step(f"stop {one.unit}")


def _hand_back(plan: Plan) -> list[list[str]]:
    """What is to be done when the runner is killed in the middle of a hand-over."""
    unit = shlex.quote(plan.target.unit)
    wait = f"while systemctl show -P ActiveState -- {unit} | grep -q ^activating; do sleep 1; done"
    others = shlex.join(one.unit for one in plan.giving_way if one.active)
    start = f"systemctl is-active --quiet -- {unit} || systemctl start -- {others}"
    return [["sh", "-c", f"{wait}; {start}"]] if others else []


def _start(host: Host, unit: str, text: str, verb: str) -> None:
    """Start and wait for the gate. ``reset-failed`` gives it all its tries."""
    host.run("systemctl", "reset-failed", unit, check=False)
    host.run("systemctl", verb, unit, timeout_s=_patience_s(text))


def _patience_s(text: str) -> float:
    """How long systemd itself may take to stop a unit and start it again, and some more."""
    unit = parse_unit(text)
    keys = ("TimeoutStartSec", "TimeoutStopSec")
    return 2 * sum(_seconds(unit.value("Service", key)) for key in keys) + 30


def _seconds(text: str | None) -> float:
    return float((text or "0").removesuffix("s"))


# --- when it did not serve -----------------------------------------------------------------


def _brought_back(host: Host, plan: Plan, error: HostFailed) -> NotProved:
    """Undo, and say what happened in one error."""
    result = read_state(host, plan.target.unit).get("Result", "unknown")
    tail = systemd.journal(host, plan.target.unit, lines=25)
    outcome = _bring_back(host, plan)
    return NotProved(
        f"{plan.target.unit} does not serve {plan.target.manifest.get('configuration')} "
        f"(result {result}): {error.found.splitlines()[0]}\n  {outcome}",
        "a completion within the time of a start",
        "see what it said, correct the configuration, then: runbook run PARAMS --apply\n"
        f"its journal ends:\n{tail}",
    )


def _bring_back(host: Host, plan: Plan) -> str:
    """Put back what was there before, as it was; says what was done."""
    outcome = _bring_own_back(host, plan)
    for one in plan.giving_way:
        if one.enabled:
            systemd.enable(host, one.unit)
        if one.active:
            try:
                bring_back(host, [one])
                outcome += f"; {one.unit} was brought back and answers"
            except NotProved as error:
                outcome += f"; {error.found}"
    return outcome


def _bring_own_back(host: Host, plan: Plan) -> str:
    facts, unit = plan.facts, plan.target.unit
    if not plan.is_new and facts.current == plan.generation:
        return "its files are those that served before, so there is nothing to bring back"
    if facts.unit_text is None:
        _clear(host, facts.places)
        return "there was no earlier generation: it was stopped, disabled and removed"
    served = facts.generation(facts.current) if facts.current in facts.generations else None
    name = f"generation {facts.current}" if served else "the unit as it was"
    text = served.unit_text if served else facts.unit_text
    found = read_facts(host, unit)
    if (found.unit_text, found.active, found.needs_reload) == (text, facts.active, False):
        return f"{name} was not touched"
    if served:
        for path, beside in served.beside.items():
            host.write(path, beside)
    host.write(facts.places.unit_file, text)
    systemd.daemon_reload(host)
    if served:
        _prune(host, unit)
    if not facts.enabled:
        systemd.disable(host, unit)
    return f"{name} {_start_again(host, unit, text, facts.active)}"


def _start_again(host: Host, unit: str, text: str, was_active: bool) -> str:
    try:
        if not was_active:
            host.run("systemctl", "stop", unit, timeout_s=_patience_s(text))
            host.run("systemctl", "reset-failed", unit, check=False)
            return "was put back; as before, it does not run"
        _start(host, unit, text, "restart")
    except HostFailed as error:
        return f"was put back and does NOT serve either: {error.found}"
    return "was brought back and serves"


def _prune(host: Host, unit: str) -> None:
    """Drop generations that are old or never served, and gates and guards that no unit names."""
    for path in [*prunable(read_facts(host, unit)), *_half_written(host, unit)]:
        host.remove(path)


def _half_written(host: Host, unit: str) -> list[str]:
    """What a writer that was killed has left beside the unit."""
    names = host.list(UNITS) or []
    left = [name for name in names if name.startswith(f".{unit}.") and name.endswith(SUFFIX)]
    return [f"{UNITS}/{name}" for name in left]


def prunable(facts: HostFacts) -> list[str]:
    """The paths that a finished apply leaves behind. Pure."""
    served = [number for number in facts.generations if number != facts.current]
    kept = [*served[-KEPT:], *([facts.current] if facts.current is not None else [])]
    needed = {path for number in kept for path in facts.manifest(number).get("files", {})}
    old = [facts.places.generation(number) for number in facts.folders if number not in kept]
    return old + [path for path in facts.beside if path not in needed]


def plan_uninstall(host: Host, unit: str) -> list[str]:
    """What ``uninstall`` does, a line for each file and folder that it removes. Changes nothing.

    Raises ``NotHere`` without systemd and where nothing is installed, ``Blocked`` for a unit that
    is not the runbook's.
    """
    require_systemd(host)
    places = Places(unit)
    refuse_foreign(places, read_facts(host, unit))
    link = f"{UNITS}/{WANTED_BY}.wants/{unit}"
    found = [path for path in (places.unit_file, link, places.root) if host.exists(path)]
    if not found:
        raise not_installed(unit)
    found += [STATE] if host.list(STATE) == [unit] else []
    return [f"stop and disable {unit}", *(f"remove {path}" for path in found)]


def uninstall(host: Host, unit: str, keep_edits: bool = True) -> None:
    """Stop, disable and remove the unit and all that belongs to it; only its journal stays.

    Raises as ``plan_uninstall``, and ``Blocked`` when the unit was changed by hand.
    """
    plan_uninstall(host, unit)
    places = Places(unit)
    text = read_facts(host, unit).unit_text
    if text is not None and keep_edits and not is_untouched(text):
        raise Blocked(
            f"{places.unit_file} was changed by hand",
            "the unit as it was written",
            "save what you need, then: runbook service uninstall PARAMS --overwrite-edits",
        )
    with locked(host, unit):
        _clear(host, places)
    if host.list(LOCKS) == ["guard"]:
        host.remove(LOCKS)


def _clear(host: Host, places: Places) -> None:
    if host.why_no_systemd() is None:
        host.run("systemctl", "disable", "--now", places.unit, check=False, timeout_s=600)
    for path in (places.unit_file, places.root, *_half_written(host, places.unit)):
        host.remove(path)
    if host.list(STATE) == []:
        host.remove(STATE)
    if host.why_no_systemd() is None:
        systemd.daemon_reload(host)
        host.run("systemctl", "reset-failed", places.unit, check=False)
