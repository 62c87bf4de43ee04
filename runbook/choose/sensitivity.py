"""What would flip a choice, where a gain crosses zero, and how many blocks would decide (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from runbook import intervals
from runbook.choose import rule
from runbook.choose.figures import Figures
from runbook.choose.rule import Answer, Terms
from runbook.decision import Crossover, Flip, Point
from runbook.intervals import Estimate

_STEPS = 64
_HALVINGS = 30
_MOST_FLIPS = 3


def find_flips(
    figures: Figures, terms: Terms, now: Answer, limited: Mapping[Point, float]
) -> tuple[Flip, ...]:
    """The smallest changes of the mix, then of the chosen configuration's figures, that flip.

    Of the mix: time moved from one point to another. Of the figures, at one point or at all alike:
    a loss of the chosen configuration, down to half, or a gain of another one, up to double. At
    most three of each, least first.
    """
    mix = sorted(_mix_flips(figures, terms, now), key=lambda flip: flip.amount)
    changes = [*_falls(figures, terms, now, limited), *_rises(figures, terms, now)]
    changes.sort(key=lambda flip: abs(math.log1p(flip.amount)))
    return (*mix[:_MOST_FLIPS], *changes[:_MOST_FLIPS])


def _mix_flips(figures: Figures, terms: Terms, now: Answer) -> Iterator[Flip]:
    scores = {config: figures.scores(config) for config in figures.configs}
    whole = [point for point in figures.points if _is_whole(figures, point)]
    for source, share in figures.weights.items():
        for target in whole:
            if target == source or share <= 0:
                continue
            slopes = _slopes(figures, scores, source, target)

            def answer_at(moved: float, slopes: rule.Scores = slopes) -> Answer:
                shifted = {
                    config: {at: score + moved * slopes[config][at] for at, score in own.items()}
                    for config, own in scores.items()
                }
                return rule.ask(shifted, terms)

            found = _first_change(answer_at, now, share)
            if found:
                amount, answer = found
                yield Flip("mix", amount, answer.status, answer.choice, source, target)


def _slopes(figures: Figures, scores: rule.Scores, source: Point, target: Point) -> rule.Scores:
    """What a whole unit of time moved from ``source`` to ``target`` adds to each score."""
    return {
        config: {at: blocks[at][target] - blocks[at][source] for at in scores[config]}
        for config, blocks in figures.ratios.items()
    }


def _is_whole(figures: Figures, point: Point) -> bool:
    """Whether weight may be moved there without taking a configuration out of a block."""
    if figures.weights.get(point, 0) > 0:
        return True
    return all(point in block for config in figures.configs for block in figures.ratios[config])


def _places(figures: Figures) -> list[tuple[Point | None, float]]:
    """Where a figure may change, and with what weight: at all points alike, then at each."""
    weighed = [(point, share) for point, share in figures.weights.items() if share > 0]
    return [(None, 1.0), *(weighed if len(weighed) > 1 else ())]


def _rises(figures: Figures, terms: Terms, now: Answer) -> Iterator[Flip]:
    """Of those that were not chosen; that the baseline falls says it already where it is chosen."""
    if now.choice in (None, terms.baseline):
        return
    scores = {config: figures.scores(config) for config in figures.configs}
    rivals = [config for config in figures.others if config != now.choice]
    for config, (where, share) in product(rivals, _places(figures)):

        def answer_at(rise: float, config: str = config, share: float = share) -> Answer:
            return rule.ask(_fallen(scores, config, terms.baseline, -rise * share), terms)

        if found := _first_change(answer_at, now, math.log(2)):
            yield _of_figure(config, math.expm1(found[0]), found[1], where)


def _of_figure(config: str, amount: float, answer: Answer, where: Point | None) -> Flip:
    return Flip("figure", amount, answer.status, answer.choice, target=where, config=config)


def _falls(
    figures: Figures, terms: Terms, now: Answer, limited: Mapping[Point, float]
) -> Iterator[Flip]:
    if now.choice is None:
        return
    scores = {config: figures.scores(config) for config in figures.configs}
    for where, share in _places(figures):

        def answer_at(fall: float, where: Point | None = where, share: float = share) -> Answer:
            breached = now.choice != terms.baseline and any(
                where in (None, point) and _loss(figures, now.choice, point, fall) > most + 1e-9
                for point, most in limited.items()
            )
            excluded = {**terms.excluded, **({str(now.choice): "limit"} if breached else {})}
            return rule.ask(
                _fallen(scores, now.choice, terms.baseline, fall * share),
                replace(terms, excluded=excluded),
            )

        found = _first_change(answer_at, now, math.log(2))
        if found:
            yield _of_figure(now.choice, math.expm1(-found[0]), found[1], where)


def _loss(figures: Figures, config: str | None, point: Point, fall: float) -> float:
    values = list(figures.at_point(str(config), point).values())
    return 1 - math.exp(math.fsum(values) / len(values) - fall) if values else 0.0


def _fallen(
    scores: rule.Scores, config: str | None, baseline: str, fall: float
) -> dict[str, dict[int, float]]:
    """The scores when ``config`` is slower by ``fall``; a slower baseline lifts the others."""
    moved = {}
    for name, values in scores.items():
        own = -fall if name == config else 0.0
        shift = own + (fall if config == baseline and name != baseline else 0.0)
        shift = 0.0 if name == baseline else shift
        moved[name] = {at: value + shift for at, value in values.items()}
    return moved


def _first_change(
    answer_at: Callable[[float], Answer], now: Answer, end: float
) -> tuple[float, Answer] | None:
    """The least change up to ``end`` whose answer is another one: a grid, then bisection."""
    before = 0.0
    for step in range(1, _STEPS + 1):
        after = end * step / _STEPS
        answer = answer_at(after)
        if _same(answer, now):
            before = after
            continue
        for _ in range(_HALVINGS):
            middle = (before + after) / 2
            between = answer_at(middle)
            if _same(between, now):
                before = middle
            else:
                after, answer = middle, between
        return after, answer
    return None


def _same(one: Answer, other: Answer) -> bool:
    return (one.status, one.choice) == (other.status, other.choice)


# --- crossovers ------------------------------------------------------------------------------


def find_crossovers(figures: Figures) -> tuple[Crossover, ...]:
    """Where each configuration's gain over the baseline changes sign along the concurrencies."""
    found: list[Crossover] = []
    for context in sorted(
        {p.context_tokens for p in figures.points}, key=lambda c: (c is not None, c or 0)
    ):
        points = [point for point in figures.points if point.context_tokens == context]
        for config in figures.others:
            curves = _curves(figures, config, points)
            if curves and len(points) > 1:
                xs = [math.log(point.concurrency) for point in points]
                found.extend(_crossings(config, context, xs, curves))
    return tuple(found)


def _curves(figures: Figures, config: str, points: Sequence[Point]) -> list[list[float]]:
    """The log-ratios along the points of every block that has them all."""
    blocks = figures.ratios[config]
    whole = [block for block in blocks if all(point in block for point in points)]
    return [[block[point] for point in points] for block in whole]


def _crossings(
    config: str, context: int | None, xs: Sequence[float], curves: Sequence[Sequence[float]]
) -> Iterator[Crossover]:
    means = [math.fsum(column) / len(column) for column in zip(*curves, strict=True)]
    for at in range(len(xs) - 1):
        left, right = means[at], means[at + 1]
        if left * right >= 0:
            continue
        x = xs[at] + (xs[at + 1] - xs[at]) * left / (left - right)
        has_interval = len(curves) >= intervals.MIN_BLOCKS
        low = _edge(xs, curves, x, xs[0]) if has_interval else None
        high = _edge(xs, curves, x, xs[-1]) if has_interval else None
        yield Crossover(
            config,
            context,
            math.exp(x),
            None if low is None else math.exp(low),
            None if high is None else math.exp(high),
            has_interval,
            "below" if left > 0 else "above",
        )


def _edge(
    xs: Sequence[float], curves: Sequence[Sequence[float]], start: float, end: float
) -> float | None:
    """The first place from ``start`` towards ``end`` where the gain's interval excludes 0."""

    def is_clear(x: float) -> bool:
        estimate = intervals.mean_interval([_interpolate(xs, curve, x) for curve in curves])
        return (
            estimate.low is not None
            and estimate.high is not None
            and (estimate.low > 0 or estimate.high < 0)
        )

    before = start
    for step in range(1, _STEPS + 1):
        after = start + (end - start) * step / _STEPS
        if not is_clear(after):
            before = after
            continue
        for _ in range(_HALVINGS):
            middle = (before + after) / 2
            before, after = (before, middle) if is_clear(middle) else (middle, after)
        return after
    return None


def _interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    for at in range(len(xs) - 1):
        if x <= xs[at + 1] or at == len(xs) - 2:
            part = (x - xs[at]) / (xs[at + 1] - xs[at])
            return ys[at] + part * (ys[at + 1] - ys[at])
    return ys[0]


# --- what to do when undecided ---------------------------------------------------------------


def blocks_to_decide(estimates: Mapping[str, Estimate | None], log_margin: float) -> int | None:
    """Blocks after which the observed effects and scatter would decide with 80 % power.

    Enough for the best to clear the margin when it lies above; else for all to stay below.
    ``None`` where a hundred would not do.
    """
    known = [estimate for estimate in estimates.values() if estimate and estimate.sd is not None]
    if not known:
        return None
    best = max(known, key=lambda estimate: estimate.mean)
    open_ones = [best] if best.mean > log_margin else known
    needed = [intervals.blocks_needed(one.mean - log_margin, one.sd or 0.0) for one in open_ones]
    return None if None in needed else max(n for n in needed if n is not None)
