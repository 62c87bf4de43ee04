"""The figures of a run. Each takes plain data and gives a ``Figure``; none touches a display.

Every function takes ``order``, the names of the parameters file: it fixes the colours.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from runbook import intervals
from runbook.cells import Cell
from runbook.checks import counted
from runbook.decision import Point
from runbook.publish.drawing import (
    Style,
    Weights,
    by_point,
    canvas,
    cells_source,
    draw_blocks,
    draw_interval,
    draw_legend,
    draw_steps,
    finish,
    in_order,
    paired_gains,
    point_axis,
    point_of,
    present,
    shade_blocks,
    shift_of,
    side_by_side,
    spread,
    styles,
)
from runbook.publish.figure import Figure
from runbook.publish.tables import number


def throughput(cells: Sequence[Cell], order: Sequence[str] = ()) -> Figure:
    """Output tokens per second by concurrency: a point a block, mean, 95 % interval of the mean."""
    usable = [cell for cell in cells if cell.usable]
    look = styles({cell.config for cell in cells}, order)
    drawn, (axes,) = canvas(7.2, 4.4)
    said = _draw_by_concurrency(
        axes,
        usable,
        look,
        lambda config: by_point(usable, config, lambda cell: cell.output_tok_s),
        joined=True,
    )
    axes.margins(y=0.08)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("output throughput (tok/s)")
    axes.set_title("Output throughput by concurrency: blocks, mean, 95 % interval", fontsize=10)
    draw_legend(drawn, {cell.config for cell in usable}, look)
    alt = "Mean output tokens per second: " + (", ".join(said) or "no usable cell")
    return finish(drawn, "throughput_by_concurrency", alt, cells_source(cells))


def ratio(cells: Sequence[Cell], decision: Mapping[str, Any], order: Sequence[str] = ()) -> Figure:
    """Gain over the baseline as the decision states it: the declared mix, then point by point.

    ``decision``: decision.json. Interval (95 %) and mean are the decision's own; the faint points
    are single blocks; the band is the margin.
    """
    margin = float(decision["margin"])
    effects = [{**effect, "point": None} for effect in decision["effects"]] + decision["points"]
    effects = [effect for effect in effects if effect["config"] != decision["baseline"]]
    look = styles({cell.config for cell in cells}, order)
    drawn, (axes,) = canvas(7.2, 4.2)
    axes.axhspan(-100 * margin, 100 * margin, color="#bbbbbb", alpha=0.35, lw=0)
    axes.axhline(0, color="#000000", lw=1)
    mix = [(weight["point"], float(weight["share"])) for weight in decision["weights"]]
    said = _draw_effects(axes, effects, cells, look, mix)
    axes.set_ylabel("throughput against baseline (%)")
    axes.set_title(
        f"Gain over the baseline: blocks, mean, 95 % interval; grey: margin of {100 * margin:g} %",
        fontsize=10,
    )
    draw_legend(drawn, {effect["config"] for effect in effects}, look)
    alt = "Gain in throughput over the baseline: " + (", ".join(said) or "nothing to compare")
    source = f"decision.json; blocks: {cells_source(cells)}"
    return finish(drawn, "ratio_to_baseline", alt, source)


def acceptance(cells: Sequence[Cell], order: Sequence[str] = ()) -> Figure:
    """Output tokens per verify step of the target by concurrency; 1: no draft was accepted."""
    usable = [cell for cell in cells if cell.usable and cell.accept_length is not None]
    look = styles({cell.config for cell in cells}, order)
    drawn, (axes,) = canvas(7.2, 3.8)
    said = _draw_by_concurrency(
        axes,
        usable,
        look,
        lambda config: by_point(usable, config, lambda cell: cell.accept_length),
    )
    axes.axhline(1, color="#000000", lw=1, ls=":")
    axes.set_ylim(top=max(2.0, axes.get_ylim()[1]))  # else chance acceptance fills the figure
    axes.set_ylabel("acceptance length (tok/step)")
    title = "Output tokens per verify step: blocks, mean, 95 % interval; dotted: no draft accepted"
    axes.set_title(title, fontsize=10)
    draw_legend(drawn, {cell.config for cell in usable}, look)
    alt = "Mean acceptance length: " + (", ".join(said) or "not known")
    return finish(drawn, "acceptance_length", alt, cells_source(cells))


def user_speed(cells: Sequence[Cell], order: Sequence[str] = ()) -> Figure:
    """What one user sees (1000 / TPOT) against what all get together, a point a concurrency."""
    usable = [cell for cell in cells if cell.usable and cell.tpot_p50_ms]
    look = styles({cell.config for cell in cells}, order)
    drawn, (axes,) = canvas(7.2, 4.4)
    said: list[str] = []
    outermost = max(usable, key=lambda cell: cell.output_tok_s or 0.0).config if usable else ""
    for config in present(usable, look):
        style, points = look[config], _speeds(usable, config)
        for path in _by_context({point: (one.mean, e.mean) for point, (one, e) in points.items()}):
            axes.plot(*zip(*path, strict=True), style.line, color=style.colour, lw=1.2)
        for point, (one, every) in points.items():
            across = (one.low, one.high)
            draw_interval(axes, one.mean, every.mean, (every.low, every.high), style, across)
            each = f"{number(one.mean)} a user, {number(every.mean)} in all"
            said.append(f"{config} at {point.label} {each}")
            if config == outermost:
                place = (one.mean, every.mean)
                axes.annotate(point.label, place, (7, 7), textcoords="offset points", size=9)
    axes.margins(0.12, 0.16)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("speed of one user, 1000 / median TPOT (tok/s)")
    axes.set_ylabel("output throughput of all (tok/s)")
    title = "Speed of one user against the throughput of all: means, 95 % intervals"
    axes.set_title(title, fontsize=10)
    draw_legend(drawn, {cell.config for cell in usable}, look)
    alt = "Tokens per second: " + ("; ".join(said) or "no usable cell with a TPOT")
    return finish(drawn, "user_speed_by_throughput", alt, cells_source(cells))


def latency(records: Iterable[Mapping[str, Any]], order: Sequence[str] = ()) -> Figure:
    """Distributions of TTFT and TPOT over the requests of all cells together, one row a
    concurrency (at most four).

    ``records``: rows with ``config``, ``concurrency``, ``ttft_ms`` and ``tpot_ms`` (``None`` is
    left out), and ``context_tokens`` where several contexts were measured.
    """
    rows = list(records)
    names = {str(row["config"]) for row in rows}
    look = styles(names, order)
    shown = spread(in_order(map(_point_of_row, rows)), 4)
    drawn, axes = canvas(7.2, 1.0 + 2.1 * max(1, len(shown)), max(1, len(shown)), 2)
    said: list[str] = []
    for line, point in enumerate(shown):
        here = [row for row in rows if _point_of_row(row) == point]
        for column, (key, title) in enumerate((("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"))):
            one = axes[2 * line + column]
            said += _draw_distributions(one, here, key, title, look)
            one.set_title(f"{title} at {point.label}, requests of all cells", fontsize=9)
    draw_legend(drawn, names, look)
    alt = "TTFT and TPOT over the requests of all cells, medians in ms: "
    alt += "; ".join(said) or "no request"
    source = f"requests.jsonl, {counted(len(rows), 'request')}"
    return finish(drawn, "latency_distributions", alt, source)


def run_order(cells: Sequence[Cell], order: Sequence[str] = (), drift: str = "") -> Figure:
    """Each cell against the mean of its own configuration and concurrency, in the order run.

    A slope is drift of the machine; a lonely point is a disturbance. ``drift``: what the test of
    it found.
    """
    usable = sorted((cell for cell in cells if cell.usable), key=lambda cell: cell.life)
    look = styles({cell.config for cell in cells}, order)
    offs = _off_own_mean(usable)
    drawn, (axes,) = canvas(7.2, 3.8)
    for place, (cell, off) in enumerate(zip(usable, offs, strict=True), 1):
        style = look[cell.config]
        axes.plot([place], [off], style.marker, color=style.colour, ms=5)
    shade_blocks(axes, [cell.block for cell in usable])
    axes.axhline(0, color="#000000", lw=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("cell, in the order of the run; shading: blocks")
    axes.set_ylabel("throughput against own mean (%)")
    axes.set_title("Drift over the run" + (f": {drift}" if drift else ""), fontsize=10)
    if alone := len(usable) == len({_place(cell) for cell in usable}):
        axes.set_ylim(-1, 1)
        axes.text(0.5, 0.75, _NO_DRIFT, transform=axes.transAxes, ha="center", color="#555555")
    draw_legend(drawn, {cell.config for cell in usable}, look)
    worst = f"largest {max(offs, key=abs):+.1f} %" if offs else "no usable cell"
    worst = _NO_DRIFT if alone and offs else worst
    counts = counted(len(offs), "cell")
    alt = f"Throughput of {counts} against their own mean in the order run: {worst}"
    alt += f"; {drift}" if drift else ""
    return finish(drawn, "run_order", alt, cells_source(cells))


def _point_label(point: Mapping[str, Any] | None) -> str:
    if point is None:
        return "declared mix"
    return Point(**point).label.replace(" ", "\n", 1)


def _point_of_row(row: Mapping[str, Any]) -> Point:
    return Point(int(row["concurrency"]), row.get("context_tokens"))


def _by_context(places: Mapping[Point, tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """The places to join by a line: one context is no continuation of another."""
    found: dict[int | None, list[tuple[float, float]]] = {}
    for point, place in places.items():
        found.setdefault(point.context_tokens, []).append(place)
    return list(found.values())


def _draw_effects(
    axes: Axes,
    effects: Sequence[Mapping[str, Any]],
    cells: Sequence[Cell],
    look: Mapping[str, Style],
    mix: Weights,
) -> list[str]:
    """Gains in per cent with their intervals, side by side at each point; returns them in words."""
    labels = list(dict.fromkeys(_point_label(effect["point"]) for effect in effects))
    names = [name for name in look if any(effect["config"] == name for effect in effects)]
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.5, max(len(labels) - 0.5, 0.5))
    said = []
    for effect in effects:
        if effect["ratio"] is None:
            continue
        mean = 100 * (float(effect["ratio"]) - 1)
        style, label = look[effect["config"]], _point_label(effect["point"])
        x = labels.index(label) + shift_of(names.index(effect["config"]), len(names), len(labels))
        weights = [(effect["point"], 1.0)] if effect["point"] else mix
        draw_blocks(axes, x, paired_gains(cells, effect["config"], weights), style)
        ends = [None if end is None else 100 * (end - 1) for end in (effect["low"], effect["high"])]
        draw_interval(axes, x, mean, (ends[0], ends[1]), style)
        said.append(f"{effect['config']} {mean:+.1f} % at {' '.join(label.split())}")
    return said


def _draw_by_concurrency(
    axes: Axes,
    cells: Sequence[Cell],
    look: Mapping[str, Style],
    values_of: Callable[[str], dict[Point, list[float]]],
    joined: bool = False,
) -> list[str]:
    """Blocks, mean and interval of each configuration; returns the means in words."""
    places = point_axis(axes, cells)
    said = []
    for config, shift in side_by_side(cells, look):
        style, means = look[config], {}
        for point, values in values_of(config).items():
            x, estimate = places[point] + shift, intervals.mean_interval(values)
            draw_blocks(axes, x, values, style)
            draw_interval(axes, x, estimate.mean, (estimate.low, estimate.high), style)
            means[point] = (x, estimate.mean)
            said.append(f"{config} {number(estimate.mean)} at {point.label}")
        for path in _by_context(means) if joined else ():
            axes.plot(*zip(*path, strict=True), style.line, color=style.colour, lw=1.2)
    return said


def _draw_distributions(
    axes: Axes, rows: Sequence[Mapping[str, Any]], key: str, title: str, look: Mapping[str, Style]
) -> list[str]:
    """The empirical distribution of ``key`` for each configuration; returns medians in words."""
    said = []
    for config, style in look.items():
        known = [row[key] for row in rows if row["config"] == config and row[key] is not None]
        if known:
            draw_steps(axes, sorted(map(float, known)), style)
            median = number(statistics.median(known))
            said.append(f"{title} {config} {_point_of_row(rows[0]).label} {median}")
    axes.set_xlabel(f"{title} (ms)", fontsize=9)
    axes.set_ylabel("share of requests", fontsize=9)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    return said


def _speeds(
    cells: Sequence[Cell], config: str
) -> dict[Point, tuple[intervals.Estimate, intervals.Estimate]]:
    """By point the speed of one user and the throughput of all: means over blocks, tok/s."""
    every = by_point(cells, config, lambda cell: cell.output_tok_s)
    one = by_point(
        cells, config, lambda cell: 1000 / cell.tpot_p50_ms if cell.tpot_p50_ms else None
    )
    return {
        point: (intervals.mean_interval(one[point]), intervals.mean_interval(values))
        for point, values in every.items()
    }


def _off_own_mean(cells: Sequence[Cell]) -> list[float]:
    """Per cent that each cell lies off the mean of its configuration, concurrency and context."""
    own: dict[tuple[str, Point], list[float]] = {}
    for cell in cells:
        own.setdefault(_place(cell), []).append(cell.output_tok_s or 0.0)
    means = {key: statistics.fmean(values) for key, values in own.items()}
    return [
        100 * ((cell.output_tok_s or 0.0) / mean - 1) if mean else 0.0
        for cell in cells
        for mean in [means[_place(cell)]]
    ]


#: What the figure of the run order says of a single block.
_NO_DRIFT = "each was measured once: drift cannot be seen"


def _place(cell: Cell) -> tuple[str, Point]:
    return cell.config, point_of(cell)
