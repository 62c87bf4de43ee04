"""``runbook compare``: what changed between two runs: stack, parameters, servers, figures, choice.

The stack is what was seen of it and what its checks found; the servers are what they said of
themselves. Where one run did not look, nothing is called a change.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runbook import choose
from runbook.cells import Cell
from runbook.decision import percent
from runbook.intervals import difference_interval
from runbook.publish.artefacts import Artefacts
from runbook.run import Run
from runbook.verified import checks_of

#: Facts of the stack that change by themselves; they are no change of it.
_FLEETING = ("memory", "/dev/shm", "disk")
#: Checks whose finding does so: of these only a change of how they ended is told.
_FLEETING_CHECKS = ("memory", "disk", "shm", "port", "idle", "kernel_log", "pcie_link", "shell")
_NO_ANSWER = ("skipped", "unknown")
#: Parameters that say what is asked of the servers.
_ASKED = ("workload.", "benchmark.requests", "benchmark.rounds", "benchmark.warmup")
#: Parameters by which the same figures are weighed.
_WEIGHED = ("choose.mix", "choose.margin", "choose.limits", "choose.prefer")
#: What is compared besides the throughput: attribute of a cell, name, unit, decimals.
_BESIDES = (
    ("ttft_p50_ms", "TTFT p50", " ms", 0),
    ("tpot_p50_ms", "TPOT p50", " ms", 1),
    ("accept_length", "accepted", " tokens a step", 2),
)
#: A line longer than this stands in two.
_LINE = 110


@dataclass(frozen=True)
class Change:
    """One thing that differs; ``None``: not there."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Figure:
    """Output throughput of one configuration at one point in both runs, in tokens per second: the
    mean over cells, as in the record.

    ``ratio``: after over before, of geometric means over the blocks; ``low`` and ``high`` are its
    95 % interval, ``None`` where a run has fewer than three blocks. ``word``: ``faster`` or
    ``slower`` where the interval excludes 1, ``not clear`` where it does not, else ``no interval``.
    ``besides``: latencies and acceptance length by attribute of a cell, before and after.
    """

    config: str
    point: str
    before: float | None
    after: float | None
    ratio: float | None
    low: float | None
    high: float | None
    word: str
    besides: Mapping[str, tuple[float | None, float | None]]


@dataclass(frozen=True)
class Comparison:
    """Two runs by the names of their folders; ``served`` is what each has to serve, changed or
    not; ``notes`` are for the reader."""

    before: str
    after: str
    stack: tuple[Change, ...]
    parameters: tuple[Change, ...]
    servers: tuple[Change, ...]
    figures: tuple[Figure, ...]
    served: Change
    choice: tuple[Change, ...]
    notes: tuple[str, ...]


def compare(before: Run, after: Run) -> Comparison:
    """What changed from ``before`` to ``after``; what a run has not reached is ``None``."""
    one, other = Artefacts(before), Artefacts(after)
    parameters = changes(flatten(before.params.model_dump()), flatten(after.params.model_dump()))
    return Comparison(
        before.path.name,
        after.path.name,
        _stack(one.stack, other.stack),
        parameters,
        _servers(one.launches, other.launches),
        compare_cells(one.cells, other.cells),
        Change("served", _served(before), _served(after)),
        changes(_choice(before), _choice(after)),
        tuple(_notes(one, other, parameters)),
    )


def _notes(one: Artefacts, other: Artefacts, parameters: Iterable[Change]) -> Iterator[str]:
    yield "the runs share no block: what else changed between them on the machine is in the ratio"
    changed = [change.what for change in parameters]
    asked = [what for what in changed if what.startswith(_ASKED)]
    if asked:
        yield f"other work was asked for ({', '.join(asked)}): the figures are not of one kind"
    weighed = [what for what in changed if what.startswith(_WEIGHED)]
    if weighed:
        yield f"the rule is another ({', '.join(weighed)}): the choices are not of one kind"
    for found in (one, other):
        if found.figures_of:
            yield f"{found.path.name} has the figures of {found.figures_of}, of an unknown stack"
    for made in changes(_made_by(one), _made_by(other)):
        before, after = made.before or "unknown", made.after or "unknown"
        yield f"the runbook was another, {made.what}: {before} -> {after}"


def _made_by(found: Artefacts) -> Mapping[str, Any]:
    return (found.run.read_json("run.json") or {}).get("versions") or {}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """The names whose values differ, in the order of ``before``."""
    names = dict.fromkeys([*before, *after])
    return tuple(
        Change(name, _shown(before.get(name)), _shown(after.get(name)))
        for name in names
        if before.get(name) != after.get(name)
    )


def _shown(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves by dotted path; items of a list go by their name where they all have one."""
    if isinstance(value, Mapping):
        items = [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        items = [(f"{path}[{one.get('name', at)}]", one) for at, one in enumerate(value)]
    else:
        return {path: value}
    return {leaf: found for name, item in items for leaf, found in flatten(item, name).items()}


def compare_cells(before: Iterable[Cell], after: Iterable[Cell]) -> tuple[Figure, ...]:
    """Every configuration at every point that one of them has."""
    one, other = _by_point(before), _by_point(after)
    keys = sorted(dict.fromkeys([*one, *other]))
    return tuple(_figure(key, one.get(key, []), other.get(key, [])) for key in keys)


def _by_point(found: Iterable[Cell]) -> dict[tuple[str, int, int], list[Cell]]:
    points: dict[tuple[str, int, int], list[Cell]] = {}
    for cell in found:
        if cell.usable and cell.output_tok_s:
            key = (cell.config, cell.concurrency, cell.context_tokens or 0)
            points.setdefault(key, []).append(cell)
    return points


def _mean(found: Iterable[Cell], name: str) -> float | None:
    values = [value for cell in found if (value := getattr(cell, name)) is not None]
    return math.fsum(values) / len(values) if values else None


def _by_block(found: Iterable[Cell]) -> list[float]:
    """The logarithm of the mean throughput of each block."""
    blocks: dict[int, list[float]] = {}
    for cell in found:
        blocks.setdefault(cell.block, []).append(cell.output_tok_s or 0.0)
    return [math.log(math.fsum(values) / len(values)) for values in blocks.values()]


def _figure(key: tuple[str, int, int], before: Sequence[Cell], after: Sequence[Cell]) -> Figure:
    config, concurrency, context = key
    point = choose.Point(concurrency, context or None).label
    one, other = _mean(before, "output_tok_s"), _mean(after, "output_tok_s")
    if not before or not after:
        return Figure(config, point, one, other, None, None, None, "only in one run", {})
    besides = {name: (_mean(before, name), _mean(after, name)) for name, *_ in _BESIDES}
    found = difference_interval(_by_block(before), _by_block(after))
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    word = "no interval"
    if low is not None and high is not None:
        word = "faster" if low > 1 else "slower" if high < 1 else "not clear"
    return Figure(config, point, one, other, math.exp(found.mean), low, high, word, besides)


def _stack(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """Facts that differ, then what checks found, where no fact of that name has told it."""
    facts = changes(*(of.get("facts") or {} for of in (before, after)))
    told = {*_FLEETING, *(fact.what for fact in facts)}
    found = [checks_of(of) for of in (before, after)]
    checks = [
        change
        for name in found[0]
        if name in found[1] and name not in told
        for change in _check_change(name, found[0][name], found[1][name])
    ]
    return (*(fact for fact in facts if fact.what not in _FLEETING), *checks)


def _check_change(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Change]:
    """What a check found, if it had an answer once; how it ended too, if that is another."""
    ends = before["status"], after["status"]
    if all(end in _NO_ANSWER for end in ends):
        return
    if ends[0] != ends[1]:
        yield Change(name, *(f"{one['status']}, {one['found']}" for one in (before, after)))
    elif before["found"] != after["found"] and name not in _FLEETING_CHECKS:
        yield Change(name, before["found"], after["found"])


def _servers(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """What servers of one configuration said and proved in both runs; alike changes in one."""
    common = [config for config in before if config in after]
    changed: dict[Change, list[str]] = {}
    for config in common:
        said = [_said(of[config]) for of in (before, after)]
        for change in changes(*({key: one[key] for key in one if key in said[1]} for one in said)):
            if change.what in said[0]:
                changed.setdefault(change, []).append(config)
    return tuple(
        Change(f"{'all' if who == common else ', '.join(who)}: {one.what}", one.before, one.after)
        for one, who in changed.items()
    )


def _said(launch: Mapping[str, Any]) -> dict[str, Any]:
    """By name: settings as the server told them, and what was proved of it. Its command line is
    told by the parameters."""
    settings = (launch.get("info") or {}).get("settings") or {}
    proved = {one["name"]: one["found"] for one in launch.get("checks", [])}
    return {key: one for key, one in {**settings, **proved}.items() if key != "launch_command"}


def _served(run: Run) -> str | None:
    override, path = run.params.choose.override, run.path / "decision.json"
    if override is not None:
        return f"{override.choose} (by override of {override.by})"
    return choose.from_json(path.read_bytes(), str(path)).choice if path.is_file() else None


def _choice(run: Run) -> dict[str, Any]:
    """The decision in few words; empty where none was made."""
    path = run.path / "decision.json"
    if not path.is_file():
        return {}
    decision = choose.from_json(path.read_bytes(), str(path))
    effects = {
        f"{effect.config} over {decision.baseline}, in the mix": choose.show(effect)
        for effect in decision.effects
    }
    said = {"status": decision.status, "choice": decision.choice}
    return {**said, **effects, "reason": decision.reason}


def as_json(found: Comparison) -> str:
    """The comparison for machines."""
    return json.dumps(asdict(found), indent=1, ensure_ascii=False)


def as_text(found: Comparison) -> str:
    """The comparison for people."""
    sections = {
        "stack": [_line(change) for change in found.stack],
        "parameters": [_line(change) for change in found.parameters],
        "servers, by their own word": [_line(change) for change in found.servers],
        "figures: output tokens per second, the change with its 95 % interval": [
            _figure_lines(figure) for figure in found.figures
        ],
        "choice": [_served_line(found.served), *(_line(change) for change in found.choice)],
        "mind": [f"  {note}" for note in found.notes],
    }
    lines = [f"{found.before} -> {found.after}"]
    for title, said in sections.items():
        lines += ["", title, *(said or ["  nothing differs"])]
    return "\n".join(lines)


def _served_line(served: Change) -> str:
    if served.before == served.after:
        return f"  to be served: {served.before or 'nothing'}, in both"
    return _line(Change("to be served", served.before, served.after))


def _line(change: Change) -> str:
    before, after = (
        "nothing" if value is None or value == "" else value
        for value in (change.before, change.after)
    )
    line = f"  {change.what}: {before} -> {after}"
    return line if len(line) <= _LINE else f"  {change.what}:\n    - {before}\n    + {after}"


def _figure_lines(figure: Figure) -> str:
    before, after = _number(figure.before, 1), _number(figure.after, 1)
    line = f"  {figure.config} {figure.point}: {before} -> {after}"
    if figure.ratio is None:
        return f"{line}  {figure.word}"
    line += f"  {percent(figure.ratio)}"
    if figure.low is not None and figure.high is not None:
        line += f" ({percent(figure.low)} to {percent(figure.high)})"
    told = [
        f"{called} {_number(one, places)} -> {_number(other, places)}{unit}"
        for name, called, unit, places in _BESIDES
        for one, other in [figure.besides[name]]
        if one is not None or other is not None
    ]
    return "\n".join([f"{line}  {figure.word}", *([f"    {', '.join(told)}"] if told else [])])


def _number(value: float | None, places: int) -> str:
    return "unknown" if value is None else f"{value:.{places}f}"
