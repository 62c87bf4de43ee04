"""The figure of the mix: what is gained, and what is chosen, as the share of time moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from matplotlib.axes import Axes

from runbook.publish.drawing import (
    Style,
    canvas,
    draw_interval,
    draw_legend,
    finish,
    shift_of,
    styles,
)
from runbook.publish.figure import Figure

Gain = tuple[float, float | None, float | None]

_NO_CHOICE = "#bbbbbb"


@dataclass(frozen=True)
class MixSweep:
    """What the rule answers as the share of time at one point goes from nothing to all.

    ``shares``: of time at ``label``, 0 to 1; the others keep their proportion. ``gains``: ratio to
    the baseline with the ends of its 95 % interval, for each configuration at each share; ``None``
    is unknown. ``choices``: the choice at each share, ``None`` where there is none. ``now``: the
    declared share. ``source``: where the figures come from.
    """

    label: str
    shares: tuple[float, ...]
    gains: Mapping[str, tuple[Gain | None, ...]]
    choices: tuple[str | None, ...]
    now: float
    margin: float
    source: str

    def spans(self) -> list[tuple[float, float, str | None]]:
        """Stretches of equal choice: from share, to share, choice."""
        found = []
        at = 0
        for choice, same in groupby(self.choices):
            end = at + len(list(same)) - 1
            found.append((self.shares[at], self.shares[end], choice))
            at = end + 1
        return found


def choice_by_mix(sweep: MixSweep, order: Sequence[str] = ()) -> Figure:
    """Gains over the baseline by share of time, and below them the strip of what is chosen."""
    look = styles(sweep.gains, order)
    drawn, (axes,) = canvas(7.2, 4.2)
    margin = 100 * sweep.margin
    axes.axhspan(-margin, margin, color=_NO_CHOICE, alpha=0.35, lw=0)
    axes.axhline(0, color="#000000", lw=1)
    if len(sweep.shares) == 1:
        _draw_point(axes, sweep, look)
    else:
        for config, gains in sweep.gains.items():
            _draw_gains(axes, sweep.shares, gains, look[config])
        axes.axvline(100 * sweep.now, color="#555555", lw=1.2, ls=":")
        axes.set_xlabel(f"share of time at {sweep.label} (%); dotted: the mix asked for")
    axes.margins(x=0, y=0.16)
    _draw_choices(axes, sweep, look)
    axes.set_ylabel("throughput against baseline (%)")
    axes.set_title(
        f"Gain by traffic mix, 95 % interval; grey: margin of {margin:g} %; strip: the choice",
        fontsize=10,
    )
    draw_legend(drawn, {*sweep.gains, *filter(None, sweep.choices)}, look)
    return finish(drawn, "choice_by_mix", _in_words(sweep), sweep.source)


def _draw_gains(
    axes: Axes, shares: Sequence[float], gains: Sequence[Gain | None], style: Style
) -> None:
    known = [(100 * share, gain) for share, gain in zip(shares, gains, strict=True) if gain]
    if not known:
        return
    x = [share for share, _ in known]
    mean = [100 * (gain[0] - 1) for _, gain in known]
    axes.plot(x, mean, style.line, color=style.colour, lw=1.6)
    ends = [
        (share, 100 * (gain[1] - 1), 100 * (gain[2] - 1))
        for share, gain in known
        if gain[1] is not None and gain[2] is not None
    ]
    if ends:
        at, low, high = zip(*ends, strict=True)
        axes.fill_between(at, low, high, color=style.colour, alpha=0.15, lw=0.8)


def _draw_point(axes: Axes, sweep: MixSweep, look: Mapping[str, Style]) -> None:
    """Gains where there is one point alone, and so no mix that could move."""
    for place, (config, (gain,)) in enumerate(sweep.gains.items()):
        if gain:
            mean, *ends = (None if one is None else 100 * (one - 1) for one in gain)
            x = 50 + 100 * shift_of(place, len(sweep.gains))
            draw_interval(axes, x, mean or 0.0, (ends[0], ends[1]), look[config])
    axes.set_xlim(0, 100)
    axes.set_xticks([50], [sweep.label])
    axes.set_xlabel("all the time at the one point that was measured")


def _draw_choices(axes: Axes, sweep: MixSweep, look: Mapping[str, Style]) -> None:
    """The strip at the foot: the colour of the choice, hatched grey where there is none; its name
    above it where there is room."""
    step = 50 / (len(sweep.shares) - 1) if len(sweep.shares) > 1 else 100
    for start, end, choice in sweep.spans():
        colour = look[choice].colour if choice else _NO_CHOICE
        left, right = max(0.0, 100 * start - step), min(100.0, 100 * end + step)
        axes.axvspan(
            left, right, 0, 0.04, facecolor=colour, hatch=None if choice else "///", lw=0, zorder=3
        )
        name = choice or "no clear choice"
        if right - left >= 1.6 * len(name):
            place = ((left + right) / 2, 0.05)
            where = axes.get_xaxis_transform()
            axes.text(*place, name, transform=where, ha="center", va="bottom", fontsize=8)


def _in_words(sweep: MixSweep) -> str:
    if len(sweep.shares) == 1:
        return f"Choice at {sweep.label}: {sweep.choices[0] or 'no clear choice'}"
    said = [
        f"{choice or 'no clear choice'} from {100 * start:.0f} % to {100 * end:.0f} %"
        for start, end, choice in sweep.spans()
    ]
    return f"Choice by share of time at {sweep.label}: " + ", ".join(said)
