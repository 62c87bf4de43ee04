"""Going back: what was there before is put back where a service does not serve, where a proof of it
was refuted, and where it is uninstalled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from runbook.atomic import SUFFIX
from runbook.errors import Blocked, HostFailed, NotProved
from runbook.hosts.base import Host
from runbook.install_service.facts import (
    HostFacts,
    Replaced,
    not_installed,
    read_facts,
    read_state,
    require_systemd,
)
from runbook.install_service.lock import locked
from runbook.install_service.monitoring import noted_files, remove_monitoring
from runbook.install_service.places import KEPT, LOCKS, WANTED_BY, Places
from runbook.install_service.plan import Plan, refuse_foreign
from runbook.launch import systemd
from runbook.launch.resting import Seen, as_text, bring_back
from runbook.launch.spec import STATE, UNITS
from runbook.launch.systemd import watched
from runbook.launch.unit import is_managed, is_untouched
from runbook.launch.unit_file import parse_unit


def start(host: Host, unit: str, text: str, verb: str) -> None:
    """Start or restart a unit and wait for its gate. ``reset-failed`` gives it all its tries."""
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


#: Why a server did not come up, by its log; empty where it is unclear.
Explain = Callable[[str], str]
#: A start of many ranks, with their tracebacks, in lines.
_START_LINES = 4000


def not_served(
    host: Host, plan: Plan, error: HostFailed, since_s: float, explain: Explain
) -> NotProved:
    """Undo an apply, and say in one error what happened since ``since_s``, and why."""
    result = read_state(host, plan.target.unit).get("Result", "unknown")
    said = systemd.journal(host, plan.target.unit, since_s, lines=_START_LINES)
    tail, cause = "\n".join(said.splitlines()[-25:]), explain(said)
    outcome = put_back(host, plan)
    return NotProved(
        f"{plan.target.unit} does not serve {plan.target.manifest.get('configuration')} "
        f"(result {result}): {error.found.splitlines()[0]}\n"
        + (f"  {cause}\n" if cause else "")
        + f"  {outcome}",
        "a completion within the time of a start",
        "see what it said, correct the configuration, then: runbook run PARAMS --apply\n"
        f"its journal ends:\n{tail}",
    )


def put_back(host: Host, plan: Plan) -> str:
    """Put back what was there before a plan, as it was; says what was done."""
    outcome = _put_own_back(host, plan)
    for one in plan.giving_way:
        if one.enabled:
            systemd.enable(host, one.unit)
        if one.active:
            try:
                back = bring_back(host, [one])
                outcome += f"; {one.unit} was {back[one.unit]}"
            except NotProved as error:
                outcome += f"; {error.found}"
    noted, path = plan.facts.replaced_text, plan.facts.places.replaced
    if noted and plan.facts.unit_text is not None:
        host.write(path, noted)
    else:
        host.remove(path)
    return outcome


def _put_own_back(host: Host, plan: Plan) -> str:
    facts, unit = plan.facts, plan.target.unit
    if not plan.is_new and facts.current == plan.generation:
        return "its files are those that served before, so there is nothing to bring back"
    served = facts.generation(facts.current) if facts.current in facts.generations else None
    there = facts.unit_text is not None
    if not there and not (served and facts.active):
        _clear(host, facts.places)
        return "there was no earlier generation: it was stopped, disabled and removed"
    name = f"generation {facts.current}" if served else "the unit as it was"
    text = served.unit_text if served else facts.unit_text or ""
    found = read_facts(host, unit)
    if (found.unit_text, found.active, found.needs_reload) == (text, facts.active, False):
        return f"{name} was not touched"
    for path, content in (served.files if served else facts.units).items():
        host.write(path, content)
    systemd.daemon_reload(host)
    if served:
        prune(host, unit)
    if there and not facts.enabled:
        systemd.disable(host, unit)
    return f"{name} {_start_again(host, unit, text, facts.active)}"


def _start_again(host: Host, unit: str, text: str, was_active: bool) -> str:
    try:
        if not was_active:
            host.run("systemctl", "stop", unit, timeout_s=_patience_s(text))
            host.run("systemctl", "reset-failed", unit, check=False)
            return "was put back; as before, it does not run"
        start(host, unit, text, "restart")
    except HostFailed as error:
        return f"was put back and does NOT serve either: {error.found}"
    if not (is_managed(text) and "\nExecStartPost=" in text):
        return "was put back and started; whether it serves was not asked"
    return "was brought back and serves"


def note_replaced(host: Host, plan: Plan) -> None:
    """Note on the host what gives way, before it does: an uninstall brings it back."""
    giving = {
        one.unit: Replaced(**vars(one), generation=plan.generation) for one in plan.giving_way
    }
    earlier = {one.unit: one for one in plan.facts.replaced}
    host.write(plan.target.places.replaced, as_text([*({**earlier, **giving}).values()]))


# --- when a proof was refuted --------------------------------------------------------------


def take_back(host: Host, unit: str) -> str | None:
    """Bring back what served before the current generation; what was done, ``None`` where nothing
    did: the generation before, or the units that gave way to this one.

    The current generation counts as one that has never served. Raises ``Blocked`` as ``apply``.
    """
    require_systemd(host)
    with locked(host, unit):
        facts = read_facts(host, unit)
        if facts.current is None:
            return None
        before = _before(facts, facts.current)
        target = facts.generation(facts.current)
        others = tuple(one for one in facts.replaced if one.generation == facts.current)
        if before.current is None and not others:
            return None
        host.remove(f"{facts.places.generation(facts.current)}/served")
        if before.current is not None:
            host.write(facts.places.current, f"{before.current}\n")
        return put_back(host, Plan(target, before, (), (), facts.current, True, (), (), others))


def _before(facts: HostFacts, current: int) -> HostFacts:
    """The host as it was when the generation before ``current`` served, or before any had."""
    others = [one for one in facts.replaced if one.generation == current]
    earlier = max((number for number in facts.generations if number < current), default=None)
    files = {p: t for p, t in facts.files.items() if p != facts.places.current}
    for path in facts.units:
        del files[path]
    if earlier is not None:
        files |= facts.generation(earlier).files
        files[facts.places.current] = f"{earlier}\n"
    kept = [one for one in facts.replaced if one not in others]
    files[facts.places.replaced] = as_text(kept) if kept else ""
    state = {
        "ActiveState": "inactive" if any(one.active for one in others) else "active",
        "UnitFileState": "disabled" if any(one.enabled for one in others) else "enabled",
    }
    return replace(facts, files=files, state={**facts.state, **state})


# --- what nobody needs any more ------------------------------------------------------------


def prune(host: Host, unit: str) -> None:
    """Drop generations that are old or never served, and guards that no unit names."""
    for path in [*prunable(read_facts(host, unit)), *_half_written(host, unit)]:
        host.remove(path)


def _half_written(host: Host, unit: str) -> list[str]:
    """What a writer that was killed has left beside the unit."""
    names = host.list(UNITS) or []
    own = (f".{unit}.", f".{Places(unit).boot_unit}.")
    left = [name for name in names if name.startswith(own) and name.endswith(SUFFIX)]
    return [f"{UNITS}/{name}" for name in left]


def prunable(facts: HostFacts) -> list[str]:
    """The paths that a finished apply leaves behind. Pure."""
    served = [number for number in facts.generations if number != facts.current]
    kept = [*served[-KEPT:], *([facts.current] if facts.current is not None else [])]
    needed = {path for number in kept for path in facts.manifest(number).get("files", {})}
    old = [facts.places.generation(number) for number in facts.folders if number not in kept]
    return old + [path for path in facts.beside if path not in needed]


# --- uninstall -----------------------------------------------------------------------------


def plan_uninstall(host: Host, unit: str) -> list[str]:
    """What ``uninstall`` does, a line for each thing that it removes or brings back. Changes
    nothing.

    Raises ``NotHere`` without systemd and where nothing is installed, ``Blocked`` for a unit that
    is not the runbook's.
    """
    require_systemd(host)
    places, facts = Places(unit), read_facts(host, unit)
    refuse_foreign(places, facts)
    link = f"{UNITS}/{WANTED_BY}.wants/{unit}"
    own = (places.unit_file, link, places.boot_file, places.boot_link, places.root)
    found = [path for path in own if host.exists(path)]
    found += [path for path in noted_files(host, places) if not path.startswith(places.root)]
    found += [STATE] if host.list(STATE) in ([unit], []) else []
    if not found:
        raise not_installed(unit)
    there = _still_there(host, facts.replaced)
    lines = [f"stop and disable {unit}", *(f"{_to_do(one)} {one.unit} again" for one in there)]
    lines += [
        f"{one.unit} gave way to it and is gone: nothing is brought back"
        for one in facts.replaced
        if one not in there
    ]
    return [*lines, *(f"remove {path}" for path in found)]


def _to_do(one: Seen) -> str:
    return " and ".join([*(["enable"] if one.enabled else []), *(["start"] if one.active else [])])


def _still_there(host: Host, units: Iterable[Replaced]) -> list[Replaced]:
    return [
        one
        for one in units
        if systemd.show(host, one.unit, "LoadState").get("LoadState") == "loaded"
    ]


def uninstall(host: Host, unit: str, keep_edits: bool = True) -> None:
    """Stop, disable and remove the unit and all that belongs to it; only its journal stays. The
    units that gave way to it are again what they were.

    Raises as ``plan_uninstall``, ``Blocked`` when the unit was changed by hand, and ``NotProved``
    when it is removed and a unit that gave way to it does not answer again.
    """
    plan_uninstall(host, unit)
    places, facts = Places(unit), read_facts(host, unit)
    edited = [path for path, text in facts.units.items() if not is_untouched(text)]
    if edited and keep_edits:
        raise Blocked(
            f"{edited[0]} was changed by hand",
            "the unit as it was written",
            "save what you need, then: runbook service uninstall PARAMS --overwrite-edits",
        )
    with locked(host, unit):
        try:
            _give_way_again(host, unit, _still_there(host, facts.replaced))
        finally:
            _clear(host, places)
    if host.list(LOCKS) == ["guard"]:
        host.remove(LOCKS)


def _give_way_again(host: Host, unit: str, others: Sequence[Replaced]) -> None:
    """At no moment would a boot leave the host without a service, and a watch starts the others
    when the runner is killed while none serves."""
    for one in others:
        if one.enabled:
            systemd.enable(host, one.unit)
    served = [one for one in others if one.active]
    orders = [["systemctl", "start", "--", *(one.unit for one in served)]]
    with watched(host, "uninstall", orders) if served else nullcontext():
        _stop(host, unit)
        bring_back(host, served)


def _stop(host: Host, unit: str) -> None:
    for one in (unit, Places(unit).boot_unit):
        host.run("systemctl", "disable", "--now", one, check=False, timeout_s=600)


def _clear(host: Host, places: Places) -> None:
    if host.why_no_systemd() is None:
        _stop(host, places.unit)
    remove_monitoring(host, noted_files(host, places))
    own = (places.unit_file, places.boot_file, places.root)
    for path in (*own, *_half_written(host, places.unit)):
        host.remove(path)
    if host.list(STATE) == []:
        host.remove(STATE)
    if host.why_no_systemd() is None:
        systemd.daemon_reload(host)
        host.run("systemctl", "reset-failed", places.unit, check=False)
