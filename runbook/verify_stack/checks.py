"""Facts against what the parameters require: every check by its name. Pure.

A missing fact is ``unknown``, never a pass.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from runbook.checks import Check, counted
from runbook.errors import BadInput
from runbook.params import Level, Params
from runbook.verify_stack.case import Answer, Case, Launch, Machine, ask_machine
from runbook.verify_stack.gpu_checks import GPU_CHECKS
from runbook.verify_stack.launches import LAUNCH_CHECKS, over_launches, same_sitecustomize
from runbook.verify_stack.links import LINK_CHECKS, at_work, in_a_guest
from runbook.verify_stack.machine import MACHINE_CHECKS
from runbook.verify_stack.shell import same_as_shell
from runbook.verify_stack.wanted import WANTED

_ASK = "look at it on the host, as root: runbook facts PARAMS (--capture DIR keeps what was told)"


def run_checks(machine: Machine) -> list[Check]:
    """Every check at its level: of a deployment all, of a machine alone those on its cards."""
    checks = {name: partial(check, machine) for name, check in CARD_CHECKS.items()}
    if isinstance(machine, Case):
        of_launches = DEPLOYMENT_CHECKS.items()
        checks = {name: partial(check, machine) for name, check in of_launches} | checks
    levels = machine.stack.checks
    return [
        at_level(_whole(check()), levels.get(name)) if levels.get(name) != "off" else _off(name)
        for name, check in checks.items()
    ]


def _whole(check: Check) -> Check:
    """What did not pass says what was wanted and what to do, also where a fact is missing."""
    if check.status in ("pass", "skipped"):
        return check
    wanted = WANTED[check.name].replace("`", "").rstrip(".")
    return replace(check, wanted=check.wanted or wanted, fix=check.fix or _ASK)


def require_known_checks(params: Params, of_engine: Iterable[str]) -> None:
    """Raise ``BadInput``, with the nearest name, for a level of a check that does not exist.

    ``of_engine``: the names of the checks that the engine makes.
    """
    known = [*CHECKS, *of_engine]
    for name in params.stack.checks:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, cutoff=0.4)
            raise BadInput(
                f"stack.checks: there is no check {name!r}",
                "one of " + ", ".join(known),
                f"did you mean {near[0]}?" if near else "correct stack.checks",
            )


def at_levels(checks: Sequence[Check], params: Params) -> list[Check]:
    """Checks of the engine, each at its level; those switched off say so once a name."""
    levels = params.stack.checks
    kept = [at_level(one, levels.get(one.name)) for one in checks if levels.get(one.name) != "off"]
    off = dict.fromkeys(one.name for one in checks if levels.get(one.name) == "off")
    return [*kept, *map(_off, off)]


def at_level(check: Check, level: Level | None) -> Check:
    """``fail``: what warns or is unknown fails. ``warn``: what fails only warns."""
    if level == "fail" and check.status in ("warn", "unknown"):
        return replace(check, status="fail")
    if level == "warn" and check.status == "fail":
        return replace(check, status="warn")
    return check


def _off(name: str) -> Check:
    return Check(name, "skipped", "not looked at", "", "switched off by stack.checks")


def _interpreter(case: Case) -> Check:
    """Whether the serving interpreter ran the probe at all: nothing else is known without it."""
    silent = {name: facts.reason for name, facts in case.facts.serving.items() if facts.reason}
    wanted = "the interpreter that will serve runs as its user, in its folder, with its environment"
    if silent:
        found = "; ".join(f"{name}: {reason}" for name, reason in silent.items())
        return Check(
            "interpreter", "fail", found, wanted, "correct server.interpreter, user or cwd"
        )
    unknown = [facts for facts in case.facts.serving.values() if "python" not in facts.facts]
    if unknown:
        return Check("interpreter", "unknown", unknown[0].why_unknown("python"), wanted)
    programs = dict.fromkeys(spec.interpreter for spec in case.specs.values())
    return Check("interpreter", "pass", ", ".join(programs), wanted)


def _port(case: Case) -> Check:
    reading = case.reading("port")
    wanted = f"port {case.params.server.port} free"
    if reading.value is None:
        return Check("port", "unknown", reading.reason, wanted)
    others = reading.value.get("others", [])
    held = [f"held by {holder}" for holder in [reading.value["holder"]] if holder]
    held += [
        f"port {one['port']} ({one['use']}) held by {one['holder']}"
        for one in others
        if one["holder"]
    ]
    if others:
        wanted += f", and {', '.join(str(one['port']) for one in others)}"
    if not held:
        return Check("port", "pass", "free", wanted)
    fix = "stop it yourself, or set server.port; nothing is ended for you"
    return Check("port", "fail", "; ".join(held), wanted, fix)


def _systemd(case: Case) -> Check:
    reading = case.reading("systemd")
    wanted = "a systemd that takes orders"
    if reading.value is None:
        return Check("systemd", "unknown", reading.reason, wanted)
    why_not, kind = reading.value["why_not"], case.params.host.kind
    if why_not is None and kind in ("local", reading.value["kind"]):
        version = case.reading("systemd_version").value
        if kind == "local" and case.reading("systemd_state").value == "degraded":
            fix = "systemctl --failed names the units; correct them, or systemctl reset-failed"
            return Check("systemd", "warn", "degraded: a unit has failed", wanted, fix)
        where = "in a throw-away box" if reading.value["kind"] == "box" else "of the host"
        return Check(
            "systemd", "pass", f"systemd {version or 'of unknown version'}, {where}", wanted
        )
    found = why_not or f"asked on {reading.value['kind']}, not in a {kind}"
    fix = "the service will be verified statically; its proofs need a systemd"
    return Check("systemd", "warn", found, wanted, fix)


def _on_cards(name: str, machine: Machine) -> Check:
    """A check where GPUs are asked for, or why it was not made."""
    stack, reading = machine.stack, machine.reading("gpus")
    if stack.gpus == 0:
        there = "GPUs are there, but these parameters use none (stack.gpus: 0)"
        return Check(name, "skipped", reading.reason or there)
    if name not in GPU_CHECKS:
        return ask_machine(name, {**LINK_CHECKS, **MACHINE_CHECKS}[name], machine)
    if reading.value is None and name == "gpus" and reading.asked:
        fix = "install and load the NVIDIA driver; or set stack.gpus: 0 where none is needed"
        return Check(name, "fail", reading.reason, counted(stack.gpus, "GPU"), fix)
    if reading.value is None:
        return Check(name, "unknown", reading.reason)
    check = GPU_CHECKS[name](machine.gpus(), stack)
    return at_work(check, machine) if name == "pcie_link" else check


def _for_launches(name: str, judge: Callable[[Launch], Answer]) -> Callable[[Case], Check]:
    return lambda case: over_launches(name, judge, case)


def _for_cards(name: str) -> Callable[[Machine], Check]:
    return lambda machine: in_a_guest(_on_cards(name, machine), machine)


#: Checks on what the parameters want to launch, by name.
DEPLOYMENT_CHECKS: dict[str, Callable[[Case], Check]] = {
    "interpreter": _interpreter,
    **{name: _for_launches(name, judge) for name, judge in LAUNCH_CHECKS.items()},
    "sitecustomize": same_sitecustomize,
    "shell": partial(ask_machine, "shell", same_as_shell),
    "port": _port,
    "systemd": _systemd,
}

#: Checks on the cards and on the machine around them, by name; skipped where none are asked for.
CARD_CHECKS: dict[str, Callable[[Machine], Check]] = {
    name: _for_cards(name) for name in (*GPU_CHECKS, *LINK_CHECKS, *MACHINE_CHECKS)
}

#: The name of every check, as in ``stack.checks``.
CHECKS = (*DEPLOYMENT_CHECKS, *CARD_CHECKS)
