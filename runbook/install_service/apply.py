"""Bringing a host to a plan, step by step, so that sudden death after any step leaves a service
that boots: the older one or the newer one, each with its own guard."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from runbook.errors import Blocked, HostFailed
from runbook.hosts.base import Host
from runbook.install_service.facts import read_facts, require_systemd
from runbook.install_service.lock import locked
from runbook.install_service.places import digest
from runbook.install_service.plan import Plan
from runbook.install_service.undo import Explain, not_served, note_replaced, prune, put_back, start
from runbook.launch import systemd
from runbook.launch.resting import PATIENCE_S
from runbook.launch.systemd import watched
from runbook.launch.unit import is_untouched
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
    host: Host,
    plan: Plan,
    keep_edits: bool = True,
    step: Step = lambda name: None,
    explain: Explain = lambda log: "",
) -> Applied:
    """Do what the plan says; a second time it changes nothing.

    ``keep_edits``: refuse where somebody changed unit or guard by hand; else they are kept as a
    backup and replaced. ``explain``: why a server did not come up, by its log, empty where it is
    unclear. Raises ``Blocked`` for drift, a faulty unit, a stale plan or
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
        since_s = systemd.now_s(host)
        try:
            _write_files(host, plan, step)
            served_s, downtime_s = _switch(host, plan, step)
        except HostFailed as error:
            raise not_served(host, plan, error, since_s, explain) from error
        except BaseException:
            put_back(host, plan)
            raise
        places = plan.target.places
        host.write(f"{places.generation(plan.generation)}/served", now() + "\n")
        host.write(places.current, f"{plan.generation}\n")
        step("current")
        prune(host, plan.target.unit)
        step("prune")
        return Applied(plan.generation, True, served_s, downtime_s)


def _refuse_stale(host: Host, plan: Plan) -> None:
    """What the plan was made from must still be so."""
    found = read_facts(host, plan.target.unit)
    if (found.units, found.drop_ins, found.current) != (
        plan.facts.units,
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
    root = plan.target.places.root
    for text in plan.facts.units.values():
        if not is_untouched(text):
            host.make_dir(root)
            host.write(f"{root}/edited-{digest(text)[:12]}.service", text)


def _write_files(host: Host, plan: Plan, step: Step) -> None:
    """Generation first, then guard, then the units that need it."""
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
    if plan.giving_way:
        note_replaced(host, plan)
        step("note what gives way")
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
                start(host, plan.target.unit, plan.target.unit_text, action)
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
