"""Proofs: what was claimed of a service, and whether it is so. The comparisons are pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from runbook.checks import Verdict
from runbook.engines.base import ServerInfo
from runbook.intervals import prediction_interval
from runbook.launch.spec import KERNEL_NAMES, MANAGER_SETS, LaunchSpec
from runbook.probe.attributes import numbers_in

#: Of a new life that is as it should be, one in a hundred may fall outside by its luck.
SPEED_CONFIDENCE = 0.99

ProofStatus = Literal["proved", "refuted", "not provable here"]


@dataclass(frozen=True)
class Proof:
    """One claim; ``evidence`` is what was seen, or why nothing could be."""

    name: str
    status: ProofStatus
    evidence: str


def judge(name: str, faults: Iterable[str], evidence: str) -> Proof:
    """Proved without faults, else refuted by them."""
    text = "; ".join(faults)
    return Proof(name, "refuted" if text else "proved", text or evidence)


def unprovable(name: str, why: str) -> Proof:
    """Not provable on this host, and why."""
    return Proof(name, "not provable here", why)


#: How the evidence begins of what nobody can prove where the figures were measured elsewhere.
FIGURES_GIVEN = "the figures were measured elsewhere"


def verdict(proofs: Iterable[Proof], unproved: Literal["fail", "warn"], what: str) -> Verdict:
    """Negative when a proof is refuted, or unprovable where the parameters say ``fail``.

    What no host could prove, since the figures were given, is told and does not decide.
    """
    proofs = tuple(proofs)
    refuted = [proof.name for proof in proofs if proof.status == "refuted"]
    unknown = [proof.name for proof in proofs if proof.status == "not provable here"]
    said = f"{what}: {len(proofs) - len(refuted) - len(unknown)} of {len(proofs)} proved"
    said += f", refuted: {', '.join(refuted)}" if refuted else ""
    said += f", not provable here: {', '.join(unknown)}" if unknown else ""
    decide = [
        proof.name
        for proof in proofs
        if proof.name in unknown and not proof.evidence.startswith(FIGURES_GIVEN)
    ]
    return Verdict(not refuted and not (decide and unproved == "fail"), said)


def to_json(proofs: Iterable[Proof]) -> str:
    """``proofs.json``: a list of objects."""
    return json.dumps([asdict(proof) for proof in proofs], indent=1, ensure_ascii=False) + "\n"


# --- comparisons of a process with the launch that was measured ----------------------------


#: What a launch is compared with: one that was benchmarked, one that was started once, or the
#: parameters alone.
Origin = Literal["measured", "recorded", "declared"]


def prove_arguments(spec: LaunchSpec, argv: list[str] | None, origin: Origin = "measured") -> Proof:
    """Arguments, one by one."""
    if argv is None:
        return unprovable("arguments", "the process hides or overwrote its command line")
    faults = [
        f"argument {at}: {origin} {_at(spec.argv, at)}, serves with {_at(argv, at)}"
        for at in range(max(len(spec.argv), len(argv)))
        if _at(spec.argv, at) != _at(argv, at)
    ]
    return judge("arguments", faults[:5], f"{len(argv)} arguments, all as {origin}")


def prove_environment(
    spec: LaunchSpec, environ: list[str] | None, origin: Origin = "measured"
) -> Proof:
    """Variables, without those that the manager itself sets; overwritten is unknown, not equal."""
    if environ is None:
        return unprovable("environment", "the process hides or overwrote its environment")
    found = dict(word.split("=", 1) for word in environ)
    found = {name: value for name, value in found.items() if name not in _set_by_manager(spec)}
    faults = [f"{name} is missing" for name in spec.env if name not in found]
    faults += [f"{name} was not {origin}" for name in found if name not in spec.env]
    faults += [
        f"{name} is {found[name]!r}, {origin} {value!r}"
        for name, value in spec.env.items()
        if name in found and found[name] != value
    ]
    return judge("environment", faults[:8], f"{len(found)} variables, all as {origin}")


def prove_workers(
    spec: LaunchSpec,
    workers: Iterable[Mapping[str, Any]],
    overwritten: Iterable[str],
    origin: Origin = "measured",
) -> Proof:
    """Every variable of the launch in every worker process that shows its own.

    A worker that hides them is unknown, and so are those under the title of one that is ``cut``.
    ``overwritten``: those that the server itself sets for its workers.
    """
    workers = list(workers)
    readable = [one for one in workers if one["environ"] is not None]
    if workers and not readable:
        names = ", ".join(f"{one['pid']} ({one['name']})" for one in workers[:5])
        return unprovable("worker environment", f"the workers hide or overwrote theirs: {names}")
    faults = []
    for one in readable:
        found = dict(word.partition("=")[::2] for word in one["environ"])
        if one.get("cut"):  # the first one shown may have lost its beginning
            found = dict(word.partition("=")[::2] for word in one["environ"][1:])
        faults += [
            f"{name} is {found.get(name)!r} in worker {one['pid']} ({one['name']}), "
            f"{origin} {value!r}"
            for name, value in spec.env.items()
            if name not in overwritten
            and found.get(name) != value
            and not (one.get("cut") and name not in found)
        ]
    said = f"{len(readable)} worker processes have every {origin} variable"
    if any(one.get("cut") for one in readable):
        said += " that their titles leave to be seen"
    if len(readable) < len(workers):
        said += f", {len(workers) - len(readable)} hide theirs"
    said = said if workers else "it has no worker processes"
    return judge("worker environment", faults[:8], said)


def prove_speed(values: Iterable[float], found: float | None, where: str, margin: float) -> Proof:
    """One short cell against the interval in which a new life falls, and a margin beside it.

    ``values``: output tokens a second of the measured lives, ``found`` of the service.
    """
    measured = list(values)
    if not measured:
        return unprovable("speed", f"no life of it was measured at {where}")
    expected = prediction_interval([math.log(value) for value in measured], SPEED_CONFIDENCE)
    if expected.low is None or expected.high is None:
        return unprovable("speed", f"{where}: {expected.no_interval}")
    low = math.exp(expected.low) * (1 - margin)
    high = math.exp(expected.high) * (1 + margin)
    aim = f"{low:.1f} to {high:.1f} expected of a new life ({len(measured)} measured)"
    if found is None:
        return unprovable("speed", f"{where}: the answers came without usage")
    said = f"{found:.1f} tok/s at {where}, {aim}"
    return judge("speed", [] if low <= found <= high else [said], said)


def _set_by_manager(spec: LaunchSpec) -> set[str]:
    return {name for name in MANAGER_SETS if name not in spec.env}


def prove_equal(name: str, wanted: object, found: object, origin: Origin = "measured") -> Proof:
    """Two values; ``None`` found is not provable."""
    if found is None:
        return unprovable(name, f"it cannot be read, wanted {wanted}")
    return judge(name, [f"{found}, {origin} {wanted}"] if found != wanted else [], f"{found}")


def prove_limits(
    spec: LaunchSpec,
    limits: Mapping[str, str] | None,
    attributes: Mapping[str, Any] | None = None,
) -> Proof:
    """Effective limits, and the processors, memory nodes, priorities and umask that were asked for;
    what the host clips is not provable here.

    ``limits`` by the kernel's names, ``attributes`` as ``probe.attributes`` reads them.
    """
    parts = [_prove_resources(spec, limits)]
    parts += [_prove_attributes(spec, attributes or {})] if spec.process else []
    order: tuple[ProofStatus, ...] = ("refuted", "not provable here", "proved")
    status = next(one for one in order if one in {part.status for part in parts})
    said = [part.evidence for part in parts if part.status == status]
    return Proof("limits", status, ", ".join(said))


def _prove_resources(spec: LaunchSpec, limits: Mapping[str, str] | None) -> Proof:
    if limits is None:
        return unprovable("limits", "the limits of the process cannot be read")
    clipped: list[str] = []
    wrong: list[str] = []
    seen: list[str] = []
    asked = {"nofile": spec.nofile, "memlock": spec.memlock, **spec.limits}
    for field, declared in asked.items():
        found = _limit(limits.get(KERNEL_NAMES[field], ""))
        seen.append(f"{field} {_words(found)}")
        if found != declared:
            short = found is not None and (declared is None or found < declared)
            (clipped if short else wrong).append(
                f"{field} is {_words(found)}, declared {_words(declared)}"
            )
    if clipped and not wrong:
        return unprovable("limits", "the host clips: " + "; ".join(clipped))
    return judge("limits", wrong + clipped, ", ".join(seen))


def _prove_attributes(spec: LaunchSpec, found: Mapping[str, Any]) -> Proof:
    name = "limits"
    told = {one: found.get(one) for one in spec.process}
    silent = [one for one, value in told.items() if value is None]
    if silent:
        return unprovable(name, f"it cannot be read: {', '.join(silent)}")
    numbers = ("cpus", "numa_nodes")
    wrong: list[str] = []
    clipped: list[str] = []
    for one, wanted in spec.process.items():
        value = told[one]
        if one in numbers and numbers_in(str(value)) == numbers_in(str(wanted)):
            continue
        if one not in numbers and _plain(value) == _plain(wanted):
            continue
        less = one == "oom_score_adjust" and int(str(value)) > int(wanted)
        (clipped if less else wrong).append(f"{one} is {value}, measured {wanted}")
    if clipped and not wrong:
        return unprovable(name, "the host clips: " + "; ".join(clipped))
    return judge(name, wrong + clipped, ", ".join(f"{one} {value}" for one, value in told.items()))


def _plain(value: object) -> str:
    """A value as text; of numbers with leading zeros, like a umask, only the number."""
    return str(value).lstrip("0") or "0"


def _limit(text: str) -> int | None:
    return None if text == "unlimited" else int(text or 0)


def _words(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)


def prove_listener(
    listeners: list[dict[str, Any]], cgroup: str, written: float | None, port: int
) -> Proof:
    """Who answers on the port belongs to the unit and is younger than the unit's file."""
    faults = [] if listeners else [f"nobody listens on port {port}"]
    for one in listeners:
        if one["cgroup"] != cgroup:
            faults.append(f"process {one['pid']} of {one['cgroup']} listens, not of {cgroup}")
        elif written is not None and one["started"] is not None and one["started"] < written - 1:
            faults.append(
                f"process {one['pid']} is older than the unit that should have started it"
            )
    pids = ", ".join(str(one["pid"]) for one in listeners)
    return judge("listener", faults, f"port {port} is held by process {pids} of {cgroup}")


def prove_info(wanted: ServerInfo | None, found: ServerInfo) -> Proof:
    """What the server says of itself, against what it said when it was measured."""
    if wanted is None:
        return unprovable("server info", "the measured server's own words were not recorded")
    before, after = asdict(wanted), asdict(found)
    before.update({f"settings.{k}": v for k, v in before.pop("settings").items()})
    after.update({f"settings.{k}": v for k, v in after.pop("settings").items()})
    faults = [
        f"{name} is {after.get(name)!r}, measured {before.get(name)!r}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
    told = f"{found.model_id}, speculation {found.speculation}"
    if worker := found.settings.get("worker"):
        told += f", worker {worker}"
    return judge("server info", faults, f"{told}, all {len(after)} settings as measured")


def _at(argv: Iterable[str], at: int) -> str:
    words = list(argv)
    return repr(words[at]) if at < len(words) else "nothing"
