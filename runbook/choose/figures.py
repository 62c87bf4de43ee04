"""From cells to one table of log-ratios: points, weights, blocks, and what is missing."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runbook import params
from runbook.cells import Cell
from runbook.decision import Point
from runbook.errors import BadInput

Ratios = dict[Point, float]


@dataclass(frozen=True)
class Figures:
    """Log-ratios to the baseline of each configuration, block by block.

    ``ratios[config][at][point]`` is ``log(config / baseline)`` of independent block ``at``; a
    missing key is a void or absent cell. The baseline's own ratios are 0 where it was measured.
    """

    baseline: str
    configs: tuple[str, ...]
    points: tuple[Point, ...]
    weights: Mapping[Point, float]
    blocks: int
    ratios: Mapping[str, tuple[Ratios, ...]]

    @property
    def others(self) -> tuple[str, ...]:
        """All configurations but the baseline."""
        return tuple(config for config in self.configs if config != self.baseline)

    @property
    def weighed(self) -> tuple[Point, ...]:
        """The points that the mix gives a share of time."""
        return tuple(point for point in self.points if self.weights.get(point, 0) > 0)

    def scores(self, config: str, weights: Mapping[Point, float] | None = None) -> dict[int, float]:
        """The primary endpoint by block; a block that lacks a weighted cell is left out."""
        weighed = [item for item in (weights or self.weights).items() if item[1] > 0]
        found = {}
        for at, ratios in enumerate(self.ratios[config]):
            if all(point in ratios for point, _ in weighed):
                total = math.fsum(share * ratios[point] for point, share in weighed)
                found[at] = round(total, 12)
        return found

    def at_point(self, config: str, point: Point) -> dict[int, float]:
        """The log-ratio at one point by block."""
        blocks = enumerate(self.ratios[config])
        return {at: ratios[point] for at, ratios in blocks if point in ratios}


def tabulate(
    cells: Sequence[Cell], mix: Sequence[params.MixShare], configs: Sequence[str], baseline: str
) -> Figures:
    """The table behind a decision. Raises ``BadInput`` where cells and mix do not fit."""
    cells = [cell for cell in cells if cell.config in configs]
    if not any(cell.config == baseline for cell in cells):
        names = sorted({cell.config for cell in cells})
        raise BadInput(
            f"no cell is of the reference {baseline}",
            "figures of it among " + (", ".join(names) or "the cells (there are none)"),
            "name the reference: runbook choose MEASUREMENTS --baseline NAME",
        )
    points = points_of(cells)
    weights = resolve_mix(mix, points)
    logs = _logs(cells)
    groups = _independent_blocks(cells)
    ratios = {
        config: tuple(_unit(logs, config, baseline, group, weights) for group in groups)
        for config in configs
    }
    return Figures(baseline, tuple(configs), points, weights, len(groups), ratios)


def equal_mix(cells: Iterable[Cell]) -> params.Choose:
    """A rule for figures without parameters: equal weight at every measured point."""
    points = points_of(cells)
    if not points:
        raise BadInput(
            "there is no cell to choose from",
            "cells of at least one configuration",
            "measure, or give a file with figures",
        )
    mix = [
        params.MixShare(
            concurrency=point.concurrency, context_tokens=point.context_tokens, share=1.0
        )
        for point in points
    ]
    return params.Choose(mix=mix)


def names_in(cells: Iterable[Cell]) -> tuple[str, ...]:
    """The configurations of the cells, in the order of their names."""
    return tuple(sorted({cell.config for cell in cells}))


def require_name(name: str, configs: Sequence[str], what: str) -> None:
    """Raises ``BadInput`` when ``name`` is no configuration, with the nearest that is."""
    if name in configs:
        return
    near = difflib.get_close_matches(name, configs, 1)
    hint = f"did you mean {near[0]}?" if near else f"correct {what} in the parameters"
    raise BadInput(f"{what} names {name}, which was not measured", ", ".join(configs), hint)


# --- points and weights ----------------------------------------------------------------------


def resolve_mix(mix: Sequence[params.MixShare], points: Sequence[Point]) -> dict[Point, float]:
    """Weights that sum to 1 over measured points.

    A share without ``context_tokens``, or cells without them, mean the only context there is.
    Raises ``BadInput`` for a point that was not measured and where a context must be named.
    """
    total = math.fsum(share.share for share in mix)
    weights: dict[Point, float] = {}
    for share in mix:
        point = _resolve(share, mix, points)
        weights[point] = weights.get(point, 0.0) + share.share / total
    return weights


def _resolve(
    share: params.MixShare, mix: Sequence[params.MixShare], points: Sequence[Point]
) -> Point:
    contexts = {point.context_tokens for point in points}
    context = share.context_tokens
    if context is None:
        if len(contexts) > 1:
            listed = ", ".join(
                "unknown" if one is None else str(one) for one in sorted(contexts, key=str)
            )
            raise BadInput(
                f"choose.mix: C={share.concurrency} names no context_tokens, cells hold several",
                f"one of {listed}",
                f"add context_tokens to C={share.concurrency} in choose.mix",
            )
        context = next(iter(contexts))
    elif contexts == {None}:
        named = {one.context_tokens for one in mix} - {None}
        if len(named) > 1:
            raise BadInput(
                "choose.mix names several context_tokens, and the cells name none",
                "cells with the column context_tokens",
                "measure each context, or weigh one context only",
            )
        context = None
    point = Point(share.concurrency, context)
    if point not in points:
        raise BadInput(
            f"choose.mix weighs {point.label}, which was not measured",
            "one of " + ", ".join(measured.label for measured in points),
            f"measure {point.label}, or correct choose.mix",
        )
    return point


def point_of(cell: Cell) -> Point:
    """Where a cell was measured."""
    return Point(cell.concurrency, cell.context_tokens)


def points_of(cells: Iterable[Cell]) -> tuple[Point, ...]:
    """Where figures were measured, ascending."""
    return tuple(sorted({point_of(cell) for cell in cells}, key=_order))


def _order(point: Point) -> tuple[int, int]:
    return (-1 if point.context_tokens is None else point.context_tokens, point.concurrency)


# --- blocks ------------------------------------------------------------------------------------

_Logs = dict[tuple[str, int], dict[Point, float]]


def _logs(cells: Iterable[Cell]) -> _Logs:
    """Mean log throughput by (config, block) and point; one unusable cell voids its point."""
    found: dict[tuple[str, int], dict[Point, list[float] | None]] = {}
    for cell in cells:
        points = found.setdefault((cell.config, cell.block), {})
        figure = cell.output_tok_s
        if not cell.usable or figure is None or not 0 < figure < math.inf:
            points[point_of(cell)] = None
            continue
        so_far = points.setdefault(point_of(cell), [])
        if so_far is not None:
            so_far.append(math.log(figure))
    return {
        key: {
            point: math.fsum(sorted(values)) / len(values)
            for point, values in points.items()
            if values
        }
        for key, points in found.items()
    }


def _independent_blocks(cells: Iterable[Cell]) -> list[list[int]]:
    """Blocks grouped so that no measured life stands in two groups: those are independent.

    A cell without a figure joins nothing: where no server came up, its life number means nothing.
    """
    cells = list(cells)
    lives: dict[tuple[str, int], set[int]] = {}
    for cell in cells:
        if cell.usable:
            lives.setdefault((cell.config, cell.life), set()).add(cell.block)
    groups: list[set[int]] = [{block} for block in {cell.block for cell in cells}]
    for blocks in lives.values():
        touched = [group for group in groups if group & blocks]
        groups = [group for group in groups if not group & blocks]
        groups.append(blocks.union(*touched))
    return sorted(sorted(group) for group in groups)


def _unit(
    logs: _Logs, config: str, baseline: str, group: Sequence[int], weights: Mapping[Point, float]
) -> Ratios:
    """The log-ratios of one independent block: the mean of its complete blocks, if it has any."""
    blocks = [_block(logs, config, baseline, block) for block in group]
    weighed = [point for point, share in weights.items() if share > 0]
    complete = [ratios for ratios in blocks if all(point in ratios for point in weighed)]
    blocks = complete or blocks
    points = {point for ratios in blocks for point in ratios}
    means = {}
    for point in points:
        values = [ratios[point] for ratios in blocks if point in ratios]
        means[point] = round(math.fsum(values) / len(values), 12)
    return means


def _block(logs: _Logs, config: str, baseline: str, block: int) -> Ratios:
    own, base = logs.get((config, block), {}), logs.get((baseline, block), {})
    return {point: own[point] - base[point] for point in own if point in base}
