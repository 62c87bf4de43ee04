"""The look all figures share, and the parts they are drawn from."""

from __future__ import annotations

import io
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from runbook.cells import Cell
from runbook.checks import counted
from runbook.decision import Point
from runbook.params import BASELINE
from runbook.publish.figure import Figure

DOTS_PER_INCH = 150
Ends = tuple[float | None, float | None]
T = TypeVar("T")
Line = Literal["-", "--", "-.", ":"]
#: Points of a decision with their shares.
Weights = Sequence[tuple[Mapping[str, Any], float]]

#: Okabe and Ito's colours, told apart by colour-blind readers; markers and lines differ as well.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("s", "^", "D", "v", "P", "X")
_LINES: tuple[Line, ...] = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Style:
    """How one configuration looks in every figure."""

    colour: str
    marker: str
    line: Line


def styles(names: Iterable[str], order: Sequence[str] = ()) -> dict[str, Style]:
    """A style for each configuration: the baseline black, the others by their place in ``order``.

    ``order`` is the order of the parameters file; without it names are sorted. Pass the same one
    to every figure and a configuration keeps its colour where others are absent.
    """
    known = list(dict.fromkeys([*order, *sorted(names)]))
    others = [name for name in known if name != BASELINE]
    look = {
        name: Style(
            _COLOURS[place % len(_COLOURS)],
            _MARKERS[place % len(_MARKERS)],
            _LINES[place % len(_LINES)],
        )
        for place, name in enumerate(others)
    }
    return {BASELINE: Style("#000000", "o", "-"), **look}


def canvas(
    width_in: float, height_in: float, rows: int = 1, columns: int = 1
) -> tuple[Canvas, list[Axes]]:
    """An empty figure (no pyplot, no display) and its axes, row by row."""
    drawn = Canvas(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(drawn)
    grid = drawn.subplots(rows, columns, squeeze=False)
    axes: list[Axes] = [one for row in grid for one in row]
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(True, color="#dddddd", linewidth=0.6)
        one.set_axisbelow(True)
    return drawn, axes


def finish(drawn: Canvas, name: str, alt: str, source: str) -> Figure:
    """Put the line of the source below and render. Equal data give equal bytes."""
    drawn.supxlabel(f"Source: {source}", fontsize=7, color="#555555", x=0.01, ha="left")
    out = io.BytesIO()
    drawn.savefig(out, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return Figure(name, alt, out.getvalue())


def present(cells: Sequence[Cell], look: Mapping[str, Style]) -> list[str]:
    """The configurations that have a cell, in the order of ``look``."""
    names = {cell.config for cell in cells}
    return [name for name in look if name in names]


def shift_of(place: int, count: int, ticks: int = 2) -> float:
    """How far the ``place``-th of ``count`` configurations stands beside the tick they share, on
    an axis with so many ``ticks``."""
    return min(0.06 * ticks, 0.8 / count) * (place - (count - 1) / 2)


def side_by_side(cells: Sequence[Cell], look: Mapping[str, Style]) -> list[tuple[str, float]]:
    """Configurations with a shift along the axis, so that their points do not cover each other."""
    names, ticks = present(cells, look), len({point_of(cell) for cell in cells})
    return [(name, shift_of(place, len(names), ticks)) for place, name in enumerate(names)]


def point_of(cell: Cell) -> Point:
    """Where a cell was measured."""
    return Point(cell.concurrency, cell.context_tokens)


def in_order(points: Iterable[Point]) -> list[Point]:
    """Each point once: context by context, the concurrencies of each ascending."""
    return sorted({*points}, key=lambda point: (point.context_tokens or 0, point.concurrency))


def by_point(
    cells: Sequence[Cell], config: str, value: Callable[[Cell], float | None]
) -> dict[Point, list[float]]:
    """Known values of one configuration by point, in their order."""
    found: dict[Point, list[float]] = {}
    for cell in cells:
        if cell.config == config and (known := value(cell)) is not None:
            found.setdefault(point_of(cell), []).append(known)
    return {point: found[point] for point in in_order(found)}


def paired_gains(cells: Sequence[Cell], config: str, weights: Weights) -> list[float]:
    """Gain over the baseline of the same block, in per cent, a block each: the mean of log-ratios
    over points, weighted. A block that lacks a cell with weight is left out."""
    speeds = {
        (cell.config, cell.block, cell.concurrency, cell.context_tokens): cell.output_tok_s
        for cell in cells
        if cell.usable and cell.output_tok_s
    }
    found = []
    for block in sorted({cell.block for cell in cells}):
        places = [(block, at["concurrency"], at.get("context_tokens")) for at, w in weights if w]
        pairs = [(speeds.get((config, *one)), speeds.get((BASELINE, *one))) for one in places]
        shares = [share for _, share in weights if share]
        if all(own and base for own, base in pairs):
            logs = (math.log(own / base) for own, base in pairs if own and base)
            score = math.fsum(map(operator.mul, shares, logs)) / math.fsum(shares)
            found.append(100 * math.expm1(score))
    return found


def point_axis(axes: Axes, cells: Sequence[Cell]) -> dict[Point, float]:
    """Concurrencies at equal distances, context by context where there are several."""
    points = in_order(map(point_of, cells))
    several = len({point.context_tokens for point in points}) > 1
    labels = [
        str(point.concurrency) + f"\ncontext {point.context_tokens}" * several for point in points
    ]
    axes.set_xticks(range(len(points)), labels)
    axes.set_xlim(-0.5, max(len(points) - 0.5, 0.5))
    axes.set_xlabel("concurrency (requests at once)")
    return {point: float(place) for place, point in enumerate(points)}


def draw_interval(
    axes: Axes, x: float, mean: float, ends: Ends, style: Style, across: Ends = (None, None)
) -> None:
    """The mean with the ends of its interval; without both ends the mean alone. ``across``: the
    ends of the interval of ``x``, where that is a mean too."""
    axes.errorbar(
        [x],
        [mean],
        yerr=_arms(mean, ends),
        xerr=_arms(x, across),
        fmt=style.marker,
        color=style.colour,
        ms=6,
        capsize=4,
        lw=1.3,
    )


def _arms(mean: float, ends: Ends) -> list[list[float]] | None:
    low, high = ends
    return None if low is None or high is None else [[mean - low], [high - mean]]


def draw_blocks(axes: Axes, x: float, values: Sequence[float], style: Style) -> None:
    """One faint point a block, just left of the mean so that both are seen."""
    left, right = axes.get_xlim()
    beside = [x - 0.0175 * (right - left)] * len(values)
    axes.plot(beside, values, style.marker, color=style.colour, alpha=0.4, ms=3.5)


def draw_steps(axes: Axes, values: Sequence[float], style: Style) -> None:
    """The empirical distribution of sorted ``values``."""
    shares = [(place + 1) / len(values) for place in range(len(values))]
    axes.step(
        [values[0], *values], [0.0, *shares], style.line, where="post", color=style.colour, lw=1.4
    )


def shade_blocks(axes: Axes, blocks: Sequence[int]) -> None:
    """Shade every other block; ``blocks``: the block of each cell in the order run."""
    edges = [place for place in range(1, len(blocks)) if blocks[place] != blocks[place - 1]]
    for place, (start, end) in enumerate(zip([0, *edges], [*edges, len(blocks)], strict=True)):
        if place % 2:
            axes.axvspan(start + 0.5, end + 0.5, color="#eeeeee", lw=0, zorder=0)


def draw_legend(drawn: Canvas, present: set[str], look: Mapping[str, Style]) -> None:
    """A legend above the axes: the configurations ``present``, in the order of ``look``."""
    names = [name for name in look if name in present]
    handles = [
        Line2D([], [], color=style.colour, marker=style.marker, linestyle=style.line)
        for style in (look[name] for name in names)
    ]
    if handles:
        drawn.legend(
            handles,
            names,
            loc="outside upper center",
            ncols=4,
            fontsize=9,
            frameon=False,
            handlelength=3.2,  # long enough to show how its line is broken
        )


def spread(values: Sequence[T], count: int) -> list[T]:
    """At most ``count`` of sorted ``values``, first and last among them."""
    if len(values) <= count:
        return list(values)
    return [values[round(place * (len(values) - 1) / (count - 1))] for place in range(count)]


def cells_source(cells: Sequence[Cell]) -> str:
    """Where a figure's data come from, and what was left out."""
    blocks = len({cell.block for cell in cells})
    usable = sum(cell.usable for cell in cells)
    left_out = f", {len(cells) - usable} not usable and left out" if usable < len(cells) else ""
    return f"cells.csv, {counted(len(cells), 'cell')} in {counted(blocks, 'block')}{left_out}"
