"""From what was measured and what is on the host to a plan. Pure: nothing is asked or changed."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from runbook.checks import Check, counted
from runbook.errors import Blocked
from runbook.install_service import guard
from runbook.install_service.facts import HostFacts
from runbook.install_service.meaning import meaning
from runbook.install_service.measured import Measured
from runbook.install_service.places import WANTED_BY, Places, Target, digest
from runbook.launch.lint import EXPOSURE
from runbook.launch.resting import Seen
from runbook.launch.server import local_url
from runbook.launch.unit import (
    UnitSettings,
    is_managed,
    is_untouched,
    render_boot_unit,
    render_unit,
)
from runbook.params import Params
from runbook.probe.guard import GPUS_WAIT_S, SMI_S

#: A start may take this many times the slowest measured load, and never less than
#: ``server.timeouts.start_s``: loads out of a warm page cache say nothing of a cold boot.
LOAD_FACTOR = 3.0
#: systemd waits longer than the gate, so that the gate's words are what one reads.
GATE_HEAD_START_S = 5.0

Action = Literal["daemon-reload", "enable", "start", "restart"]


@dataclass(frozen=True)
class FileChange:
    """One file: its content before and after (``None``: not there), and its mode after."""

    path: str
    old: str | None
    new: str | None
    mode: int = 0o644

    @property
    def same(self) -> bool:
        """Whether nothing changes."""
        return self.old == self.new


@dataclass(frozen=True)
class Plan:
    """What would be done. ``drift``: what somebody else changed, which stops an apply.

    ``generation``: number the target gets, or has; ``is_new``: whether it must be written.
    ``checks``: of the unit on its host; a failed one stops an apply too. ``replaces``: units of
    others that give way to this one.
    """

    target: Target
    facts: HostFacts
    files: tuple[FileChange, ...]
    actions: tuple[Action, ...]
    generation: int
    is_new: bool
    drift: tuple[str, ...]
    checks: tuple[Check, ...] = ()
    replaces: tuple[Seen, ...] = ()

    @property
    def giving_way(self) -> tuple[Seen, ...]:
        """The units of others that run or start at boot, and shall not."""
        return tuple(one for one in self.replaces if one.active or one.enabled)

    @property
    def unchanged(self) -> bool:
        """Whether an apply would do nothing."""
        if self.giving_way:
            return False
        recorded = self.facts.current == self.generation and not self.is_new
        return recorded and not self.actions and all(change.same for change in self.files)

    @property
    def diff(self) -> str:
        """Unified diff of the unit, empty when nothing changes. The gate is a program of the
        runbook, named by its content: that it changes is said, its text is in the run folder."""
        return "".join(
            _diff(change) for change in self.files if change.path == self.target.places.unit_file
        )

    @property
    def meaning(self) -> list[str]:
        """What changes for the running service, one line each."""
        said = meaning(self.facts.unit_text, self.target.unit_text)
        timeouts = self.target.manifest.get("start_timeout_origin")
        if said and timeouts:
            said.append(str(timeouts))
        for action in self.actions:
            said.append(_EXPLAINED[action])
        said += [
            f"{one.unit} gives way: it is stopped before the start, and disabled once this one has "
            "served; if it does not serve, that one is brought back"
            for one in self.giving_way
        ]
        if any(one.active for one in self.giving_way) or "restart" in self.actions:
            said.append(f"nobody answers {self._downtime}")
        return said

    @property
    def _downtime(self) -> str:
        load_s = self.target.manifest.get("load_s")
        about = f"for about {max(load_s):.0f} s (its slowest measured load)" if load_s else ""
        return about or "until it has served; its load was not measured"

    def describe(self) -> str:
        """The plan for people: files, actions, what it means, the diff."""
        if self.unchanged:
            return f"{self.target.unit}: nothing to do, it is as planned"
        lines = [f"plan for {self.target.unit}, generation {self.generation}:"]
        lines += [f"  drift: {text}" for text in self.drift]
        lines += [
            f"  {check.status}: {check.name}: {check.found} (wanted: {check.wanted})"
            + (f"\n    next: {check.fix}" if check.status in ("fail", "warn") else "")
            for check in self.checks
            if check.status in ("fail", "warn") or check.name == EXPOSURE
        ]
        for change in self.files:
            if not change.same:
                verb = "create" if change.old is None else "change"
                lines.append(f"  {verb} {change.path} (mode {change.mode:o})")
        lines += [f"  stop and disable {one.unit}" for one in self.giving_way]
        lines += [f"  systemctl {action}" for action in self.actions]
        lines += [f"  means: {text}" for text in self.meaning]
        return "\n".join(lines) + "\n" + self.diff


_EXPLAINED: dict[Action, str] = {
    "daemon-reload": "systemd reads its files again",
    "enable": "it will start at boot",
    "start": "it is started; this returns when a completion was served",
    "restart": "it is restarted: no service until a completion was served again",
}


def make_target(
    params: Params,
    configuration: str,
    measured: Measured,
    guard_text: str,
    interpreter: str,
    run: str,
) -> Target:
    """The units, guard and manifest for one measured launch; ``interpreter`` runs the gate, and
    the guard where a launch has none. Raises ``BadInput``."""
    places = Places(params.service.unit)
    ready_s, origin = start_timeout(params, measured.load_s, measured.cold_s)
    alone = (interpreter, "-IS", places.guard(guard_text))
    gate = [*alone, "ready", "--url", local_url(params.server)]
    if measured.info is not None:
        gate += ["--model", measured.info.model_id]
    expected = guard.expectations(params, measured)
    expected_text = guard.as_text(expected)
    guards = (places.guard(guard_text), places.expected(expected_text))
    settings = UnitSettings(
        description=params.service.description or f"LLM server {configuration}",
        start_timeout_s=max(ready_s, _guard_s(params)) + GATE_HEAD_START_S,
        stop_timeout_s=params.server.timeouts.stop_s,
        restart_s=params.service.restart_s,
        start_limit_burst=params.service.start_limit_burst,
        gate=(*gate, "--deadline", f"{ready_s:g}"),
        wanted_by=WANTED_BY,
        mounts=_mounts(measured.spec.argv),
        gpus=max(params.stack.gpus, len(measured.gpus)) if params.stack.gpus else 0,
        guard=guard.command(measured, interpreter, *guards),
        also=(places.boot_unit,),
        stopped=(*alone, "stopped", places.unit),
        document=_document(params),
    )
    unit_text = render_unit(measured.spec, settings)
    look_back = (*alone, "after-boot", places.unit, places.boot_record)
    boot_text = render_boot_unit(places.unit, look_back, WANTED_BY, places.root)
    manifest = {
        "unit": params.service.unit,
        "configuration": configuration,
        "run": run,
        "launch": measured.launch,
        "figures_of": measured.figures_of,
        "load_s": list(measured.load_s),
        "cold_s": measured.cold_s,
        "start_timeout_origin": origin,
        "spec": asdict(measured.spec),
        "info": asdict(measured.info) if measured.info else None,
        "guard": expected,
    }
    target = Target(places.unit, unit_text, boot_text, guard_text, expected_text, manifest)
    files = {path: digest(text) for path, text in target.files.items()}
    return replace(target, manifest={**manifest, "files": files})


def _document(params: Params) -> str:
    """The path of the record on the host, empty without one."""
    path = params.record.document
    return posixpath.normpath(posixpath.join(params.server.cwd, path)) if path else ""


def _guard_s(params: Params) -> float:
    """The longest that a guard may wait for its GPUs; systemd gives each command of a start the
    same time, and a guard that it ends cannot say what is missing."""
    return GPUS_WAIT_S + SMI_S if params.stack.gpus else 0.0


def start_timeout(
    params: Params, load_s: Sequence[float], cold_s: float | None = None
) -> tuple[float, str]:
    """Seconds a start may take until a completion is served, and where the figure is from.

    ``cold_s``: a load that was measured with the model not in the page cache, if one was.
    """
    load_s = (*load_s, *([cold_s] if cold_s else []))
    given = params.service.start_timeout_s
    least_s = params.server.timeouts.start_s
    if given is not None and given >= least_s:
        return given, f"a start may take {given:g} s: service.start_timeout_s"
    at_least = f"never less than server.timeouts.start_s ({least_s:g} s)"
    if given is not None:
        said = f"service.start_timeout_s is {given:g} s, and a start's limit is {at_least}"
        return least_s, f"a start may take {least_s:g} s: {said}"
    if not load_s:
        return least_s, f"a start may take {least_s:g} s: server.timeouts.start_s, nothing measured"
    slowest_s = max(load_s)
    wait_s = max(float(round(LOAD_FACTOR * slowest_s)), least_s)
    return wait_s, (
        f"a start may take {wait_s:g} s: {LOAD_FACTOR:g} times the slowest of "
        f"{counted(len(load_s), 'measured load')} ({slowest_s:.1f} s), {at_least}"
    )


def make_plan(target: Target, facts: HostFacts, generation: int | None = None) -> Plan:
    """The plan that brings the host to ``target``.

    ``generation``: the number of the kept generation that the target is, ``None`` for a target
    that was just rendered. Raises ``Blocked`` for a unit that the runbook does not own.
    """
    refuse_foreign(target.places, facts)
    files = tuple(
        FileChange(path, facts.files.get(path), text) for path, text in target.files.items()
    )
    is_new = generation is None
    if generation is None:
        recorded = facts.current_manifest.get("files") == dict(target.manifest["files"])
        is_new = not (recorded and facts.current is not None)
        generation = max(facts.folders, default=0) + 1 if is_new else facts.current
        assert generation is not None
    actions = _actions(facts, {change.path for change in files if not change.same}, generation)
    return Plan(target, facts, files, actions, generation, is_new, _drift(facts))


def _actions(facts: HostFacts, changed: Set[str], generation: int) -> tuple[Action, ...]:
    """An active service restarts unless it is known to be this generation: an apply that was cut
    may have left the new files, read by systemd, under the older process. The recorder of boots
    is no part of what runs."""
    running = changed - {facts.places.boot_file}
    actions: list[Action] = []
    if changed or facts.needs_reload:
        actions.append("daemon-reload")
    if not facts.enabled or not facts.is_recorded:
        actions.append("enable")
    if not facts.active:
        actions.append("start")
    elif running or facts.needs_reload or facts.current != generation:
        actions.append("restart")
    return tuple(actions)


def refuse_foreign(places: Places, facts: HostFacts) -> None:
    """Raises ``Blocked`` for a unit of this name that the runbook does not own."""
    foreign = [path for path, text in facts.units.items() if not is_managed(text)]
    if facts.fragment not in ("", places.unit_file):
        foreign.insert(0, facts.fragment)
    if foreign:
        where = foreign[0]
        raise Blocked(
            f"{where} is a unit of somebody else",
            f"no {where.rpartition('/')[2]} on the host, or one that the runbook wrote",
            "choose another name (params: service.unit), or disable and remove that unit",
        )


def _drift(facts: HostFacts) -> tuple[str, ...]:
    found = [
        f"{path} was changed by hand since the runbook wrote it"
        for path, text in facts.units.items()
        if not is_untouched(text)
    ]
    found += [
        f"the drop-in {path} changes the unit: move what it sets to the parameters, then remove it"
        for path in facts.drop_ins
    ]
    found += [
        f"{path} was changed by hand"
        for path, text in facts.beside.items()
        if digest(text)[:12] not in PurePosixPath(path).stem
    ]
    return tuple(found)


def _mounts(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The program, and absolute paths among its arguments: their file systems must be mounted
    before a start."""
    return tuple(
        dict.fromkeys(
            str(PurePosixPath(word))
            for word in argv
            if word.startswith("/") and word.isprintable() and word == word.rstrip(" \\")
        )
    )


def _diff(change: FileChange) -> str:
    if change.same:
        return ""
    before = (change.old or "").splitlines(keepends=True)
    after = (change.new or "").splitlines(keepends=True)
    old, new = (
        change.path if text is not None else "/dev/null" for text in (change.old, change.new)
    )
    return "".join(difflib.unified_diff(before, after, old, new))
