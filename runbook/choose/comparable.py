"""Which figures may be compared: the same work, and all requests at once. Pure.

Cells that may not be compared become void, with the reason in their note, so that the rule of
choice treats them as it treats any void cell: the configuration is out of that block.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from runbook.cells import QUEUE_LIMITED, UNLIKE_WORK, Cell
from runbook.choose.figures import point_of
from runbook.decision import Point

#: Completed requests of a cell may lie so far from the baseline's: a lost request is no sampling.
MAX_REQUESTS_APART = 0.05

#: Mean tokens of a request may lie so far from the baseline's: sampled answers differ in length.
MAX_TOKENS_APART = 0.10

#: Mean tokens that lie further apart than this are told.
_TOLD_APART = 0.01


@dataclass(frozen=True)
class Terms:
    """What the figures are held against, besides each other.

    ``caps``: configuration -> requests that it is declared to run at once. ``timed``: the
    configurations whose runs were bounded by time: a faster one completes more requests.
    """

    baseline: str
    caps: Mapping[str, int]
    timed: Collection[str] = ()


@dataclass(frozen=True)
class Compared:
    """``cells``: those that may not be compared are void. ``notes``: small differences."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...]


def hold_against(cells: Sequence[Cell], terms: Terms) -> Compared:
    """Hold every configuration against the baseline at each (concurrency, context)."""
    cells = [_unless_queued(cell, terms) for cell in cells]
    notes: list[str] = []
    why: dict[tuple[str, Point], str] = {}
    for point, here in _by_point(cells).items():
        for config, own in here.items():
            if config != terms.baseline:
                pair = _Pair(point, terms.baseline, here.get(terms.baseline, []), config, own)
                apart = list(pair.tokens_apart())
                notes += [said for share, said in apart if share <= MAX_TOKENS_APART]
                if far := [said for share, said in apart if share > MAX_TOKENS_APART]:
                    why[config, point] = "; ".join(far)
    requests = _usual_requests(cells, terms)
    found = []
    for cell in cells:
        reason = why.get((cell.config, point_of(cell)), "")
        usual = None if cell.config in terms.timed else requests.get(point_of(cell))
        share, said = _requests_apart(cell, usual, terms.baseline)
        if share > MAX_REQUESTS_APART:
            reason = "; ".join(filter(None, [said, reason]))
        elif said:
            notes.append(said)
        unlike = reason and cell.usable
        found.append(_voided(cell, f"{UNLIKE_WORK}: {reason}") if unlike else cell)
    return Compared(tuple(found), tuple(dict.fromkeys(notes)))


def _unless_queued(cell: Cell, terms: Terms) -> Cell:
    """``cell``, void where its server ran fewer at once than are asked."""
    if not cell.usable or cell.rate_s is not None:
        return cell
    cap = terms.caps.get(cell.config)
    if cap is not None and cap < cell.concurrency:
        return _voided(
            cell, f"{QUEUE_LIMITED}: {cap} at once are declared, {cell.concurrency} asked"
        )
    if cell.ran_fewer:
        ran = f"{cell.running:.4g} ran at once, {cell.concurrency} were asked"
        return _voided(cell, f"{QUEUE_LIMITED}: {ran}")
    return cell


def _voided(cell: Cell, reason: str) -> Cell:
    return replace(cell, status="void", note="; ".join(filter(None, [reason, cell.note])))


def _by_point(cells: Iterable[Cell]) -> dict[Point, dict[str, list[Cell]]]:
    found: dict[Point, dict[str, list[Cell]]] = {}
    for cell in cells:
        if cell.usable:
            found.setdefault(point_of(cell), {}).setdefault(cell.config, []).append(cell)
    return found


# --- tokens of a request ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    """The usable cells of the baseline and of another configuration at one point."""

    point: Point
    baseline: str
    base: Sequence[Cell]
    config: str
    own: Sequence[Cell]

    def tokens_apart(self) -> Iterator[tuple[float, str]]:
        """How far the mean tokens of a request lie apart, as a share of the lesser, in words."""
        for name, words in (("tokens_in", "input tokens"), ("tokens_out", "output tokens")):
            base, own = _mean(self.base, name), _mean(self.own, name)
            if not base or not own:
                continue
            share = max(base, own) / min(base, own) - 1
            if share > _TOLD_APART:
                yield (
                    round(share, 9),
                    f"{words} of a request at {self.point.label} differ: "
                    f"{self.baseline} {base:.1f}, {self.config} {own:.1f}",
                )


def _mean(cells: Sequence[Cell], name: str) -> float | None:
    known: list[float] = [v for v in (getattr(cell, name) for cell in cells) if v is not None]
    return statistics.fmean(sorted(known)) if known else None


# --- requests of a cell ----------------------------------------------------------------------


def _usual_requests(cells: Iterable[Cell], terms: Terms) -> dict[Point, float]:
    """Completed requests of the baseline's cells, their median at each point, where told."""
    if terms.baseline in terms.timed:
        return {}
    found: dict[Point, list[int]] = {}
    for cell in cells:
        if cell.config == terms.baseline and cell.usable and cell.completed is not None:
            found.setdefault(point_of(cell), []).append(cell.completed)
    return {point: statistics.median(counts) for point, counts in found.items()}


def _requests_apart(cell: Cell, usual: float | None, baseline: str) -> tuple[float, str]:
    """How far the completed requests of a cell lie from the baseline's, and that in words."""
    own = cell.completed
    if usual is None or own is None or own == usual or not cell.usable:
        return 0.0, ""
    share = max(own, usual) / min(own, usual) - 1 if own and usual else float("inf")
    of = f"{baseline} in the median" if cell.config == baseline else baseline
    said = f"{cell.config} completed {own} requests at {point_of(cell).label}, {of} {usual:g}"
    return round(share, 9), said
