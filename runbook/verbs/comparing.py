"""``runbook compare``: what changed between two runs: stack, parameters, figures, choice."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from runbook import cells, choose
from runbook.cells import Cell
from runbook.intervals import difference_interval
from runbook.run import Run

#: Facts of the stack that change by themselves; they are no change of it.
_FLEETING = ("memory", "/dev/shm", "disk")
#: Parameters that say what is asked of the servers.
_ASKED = ("workload.", "benchmark.requests", "benchmark.rounds", "benchmark.warmup")


@dataclass(frozen=True)
class Change:
    """One thing that differs; ``None``: not there."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Figure:
    """Output throughput of one configuration at one point in both runs, in tokens per second.

    ``ratio``: after over before, of geometric means over the blocks; ``low`` and ``high`` are its
    95 % interval, ``None`` where a run has fewer than three blocks. ``word``: ``faster`` or
    ``slower`` where the interval excludes 1, ``not clear`` where it does not, else ``no interval``.
    """

    config: str
    point: str
    before: float | None
    after: float | None
    ratio: float | None
    low: float | None
    high: float | None
    word: str


@dataclass(frozen=True)
class Comparison:
    """Two runs by the names of their folders; ``notes`` are for the reader."""

    before: str
    after: str
    stack: tuple[Change, ...]
    parameters: tuple[Change, ...]
    figures: tuple[Figure, ...]
    choice: tuple[Change, ...]
    notes: tuple[str, ...]


def compare(before: Run, after: Run) -> Comparison:
    """What changed from ``before`` to ``after``; what a run has not reached is ``None``."""
    parameters = changes(flatten(before.params.model_dump()), flatten(after.params.model_dump()))
    return Comparison(
        before.path.name,
        after.path.name,
        changes(_stack(before), _stack(after)),
        parameters,
        compare_cells(*(cells.read(run.path / "cells.csv") for run in (before, after))),
        changes(_choice(before), _choice(after)),
        tuple(_notes(parameters)),
    )


def _notes(parameters: Iterable[Change]) -> Iterator[str]:
    yield "the runs share no block: what else changed between them on the machine is in the ratio"
    asked = [change.what for change in parameters if change.what.startswith(_ASKED)]
    if asked:
        yield f"other work was asked for ({', '.join(asked)}): the figures are not of one kind"


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


def _by_point(found: Iterable[Cell]) -> dict[tuple[str, int, int], list[float]]:
    """The logarithm of the mean throughput of each block."""
    blocks: dict[tuple[str, int, int], dict[int, list[float]]] = {}
    for cell in found:
        if cell.usable and cell.output_tok_s:
            key = (cell.config, cell.concurrency, cell.context_tokens or 0)
            blocks.setdefault(key, {}).setdefault(cell.block, []).append(cell.output_tok_s)
    return {
        key: [math.log(math.fsum(values) / len(values)) for values in by_block.values()]
        for key, by_block in blocks.items()
    }


def _figure(key: tuple[str, int, int], before: list[float], after: list[float]) -> Figure:
    config, concurrency, context = key
    point = choose.Point(concurrency, context or None).label
    one, other = (math.exp(math.fsum(v) / len(v)) if v else None for v in (before, after))
    if not before or not after:
        return Figure(config, point, one, other, None, None, None, "only in one run")
    found = difference_interval(before, after)
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    word = "no interval"
    if low is not None and high is not None:
        word = "faster" if low > 1 else "slower" if high < 1 else "not clear"
    return Figure(config, point, one, other, math.exp(found.mean), low, high, word)


def _stack(run: Run) -> dict[str, Any]:
    facts = (run.read_json("stack.json") or {}).get("facts") or {}
    return {name: fact for name, fact in facts.items() if name not in _FLEETING}


def _choice(run: Run) -> dict[str, Any]:
    """The decision in few words; empty where none was made."""
    path = run.path / "decision.json"
    if not path.is_file():
        return {}
    decision = choose.from_json(path.read_bytes(), str(path))
    effects = {
        f"{effect.config} over {decision.baseline}": _effect(effect.ratio, effect.low, effect.high)
        for effect in decision.effects
    }
    said = {"status": decision.status, "choice": decision.choice, "reason": decision.reason}
    return {**said, **effects}


def _effect(ratio: float | None, low: float | None, high: float | None) -> str:
    if ratio is None:
        return "unknown"
    return f"{ratio:.3f}" + (f" ({low:.3f} to {high:.3f})" if low and high else " (no interval)")


def as_json(found: Comparison) -> str:
    """The comparison for machines."""
    return json.dumps(asdict(found), indent=1, ensure_ascii=False)


def as_text(found: Comparison) -> str:
    """The comparison for people."""
    sections = {
        "stack": [_line(change) for change in found.stack],
        "parameters": [_line(change) for change in found.parameters],
        "output tokens per second (geometric means), the ratio with its 95 % interval": [
            _figure_line(figure) for figure in found.figures
        ],
        "choice": [_line(change) for change in found.choice],
        "mind": [f"  {note}" for note in found.notes],
    }
    lines = [f"{found.before} -> {found.after}"]
    for title, said in sections.items():
        lines += ["", title, *(said or ["  nothing differs"])]
    return "\n".join(lines)


def _line(change: Change) -> str:
    before, after = (value or "nothing" for value in (change.before, change.after))
    return f"  {change.what}: {before} -> {after}"


def _figure_line(figure: Figure) -> str:
    before, after = (
        "unknown" if value is None else f"{value:.1f}" for value in (figure.before, figure.after)
    )
    ratio = "" if figure.ratio is None else f"  {_effect(figure.ratio, figure.low, figure.high)}"
    return f"  {figure.config} {figure.point}: {before} -> {after}{ratio}  {figure.word}"
