"""The rule of choice (pure): limits exclude, the margin is cleared, ties go by preference.

Written so that it can be asked again with other weights or shifted figures: what would flip a
choice is found by asking the same rule, not by a second one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runbook import intervals, params
from runbook.cells import Cell
from runbook.choose.figures import Figures, point_of
from runbook.decision import Point, Status, percentage
from runbook.errors import BadInput
from runbook.intervals import MIN_BLOCKS, Estimate

Scores = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Terms:
    """What the rule needs besides scores: who is reference, who is out, and the declared terms."""

    baseline: str
    log_margin: float
    prefer: tuple[str, ...]
    excluded: Mapping[str, str]
    provisional: bool
    confidence: float = intervals.CONFIDENCE


@dataclass(frozen=True)
class Answer:
    """What the rule says. ``group``: the configurations among which preference decided."""

    status: Status
    choice: str | None
    group: tuple[str, ...] = ()


def ask(scores: Scores, terms: Terms) -> Answer:
    """Apply the rule to the primary endpoint of each configuration, by block.

    Without intervals (``provisional``) the same steps go by the estimates alone, and two that
    differ by no more than the margin are a tie.
    """
    estimates = {config: estimate_of(values, terms) for config, values in scores.items()}
    if estimates[terms.baseline] is None:
        return Answer("not_choosable", None)
    others = {
        config: estimate
        for config, estimate in estimates.items()
        if config != terms.baseline and config not in terms.excluded
    }
    known = {config: estimate for config, estimate in others.items() if estimate is not None}
    if not known and (others or terms.baseline in terms.excluded):
        return Answer("not_choosable", None)
    better = {config: one for config, one in known.items() if _low(one, terms) > terms.log_margin}
    if better:
        group = _tied_with_best(better, scores, terms)
        return Answer("provisional" if terms.provisional else "chosen", group[0], group)
    settled = len(known) == len(others) and terms.baseline not in terms.excluded
    if settled and all(_high(one, terms) < terms.log_margin for one in known.values()):
        return Answer("provisional" if terms.provisional else "chosen", terms.baseline)
    if terms.provisional and settled:
        return Answer("provisional", terms.baseline)
    return Answer("undecided", None)


def estimate_of(values: Mapping[int, float], terms: Terms) -> Estimate | None:
    """The estimate of one configuration; ``None`` where too few blocks are left to choose by."""
    if len(values) < (1 if terms.provisional else MIN_BLOCKS):
        return None
    return intervals.mean_interval(list(values.values()), terms.confidence)


def difference(
    first: Mapping[int, float], second: Mapping[int, float], terms: Terms
) -> Estimate | None:
    """``first`` less ``second`` over the blocks both have; ``None`` without one."""
    common = [first[at] - second[at] for at in first if at in second]
    if not common:
        return None
    return intervals.mean_interval([round(one, 12) for one in common], terms.confidence)


def is_different(estimate: Estimate | None, terms: Terms) -> bool:
    """Whether a paired difference is clear: its interval excludes 0."""
    if estimate is None:
        return False
    if terms.provisional:
        return abs(estimate.mean) > terms.log_margin
    if estimate.low is None or estimate.high is None:
        return False
    return estimate.low > 0 or estimate.high < 0


def _tied_with_best(
    better: Mapping[str, Estimate], scores: Scores, terms: Terms
) -> tuple[str, ...]:
    """The best and those not clearly different from it, the preferred first."""
    ranked = sorted(better, key=lambda config: (-better[config].mean, config))
    best = ranked[0]
    group = [
        config
        for config in ranked
        if config == best
        or not is_different(difference(scores[best], scores[config], terms), terms)
    ]
    place = {config: at for at, config in enumerate(terms.prefer)}
    return tuple(sorted(group, key=lambda config: place.get(config, len(place))))


def _low(estimate: Estimate, terms: Terms) -> float:
    if terms.provisional or estimate.low is None:
        return estimate.mean
    return estimate.low


def _high(estimate: Estimate, terms: Terms) -> float:
    if terms.provisional or estimate.high is None:
        return estimate.mean
    return estimate.high


# --- limits --------------------------------------------------------------------------------------


def find_excluded(figures: Figures, cells: Sequence[Cell], limits: params.Limits) -> dict[str, str]:
    """Configurations beyond a hard limit, with the reason.

    Limits go by the estimate (mean over blocks, on the log scale), not by its interval: then they
    say the same for one block as for ten, and a noisy run neither saves a configuration nor
    condemns it. A limit that cannot be checked counts as not met. Raises ``BadInput`` for a
    limit at a concurrency that was not measured.
    """
    excluded = {}
    for config in figures.configs:
        reason = (
            _regress(figures, config, limits)
            or _slow_first_token(figures, cells, config, limits)
            or _errors(cells, config, limits)
        )
        if reason:
            excluded[config] = reason
    return excluded


def limited_points(figures: Figures, limits: params.Limits) -> dict[Point, float]:
    """Points with a limit on regress: the weighted ones of that concurrency, else all of it."""
    found = {}
    for text, most in limits.max_regress.items():
        at = [point for point in figures.points if str(point.concurrency) == text.strip()]
        if not at:
            measured = sorted({point.concurrency for point in figures.points})
            raise BadInput(
                f"choose.limits.max_regress is set at C={text}, which was not measured",
                "one of " + ", ".join(map(str, measured)),
                f"measure C={text}, or take the limit away",
            )
        weighed = [point for point in at if figures.weights.get(point, 0) > 0]
        found.update(dict.fromkeys(weighed or at, most))
    return found


def _regress(figures: Figures, config: str, limits: params.Limits) -> str:
    for point, most in limited_points(figures, limits).items():
        values = list(figures.at_point(config, point).values())
        if not values and figures.weights.get(point, 0) > 0:
            continue  # not choosable for that reason already: void is not slow
        if not values:
            return f"limit: regress at {point.label} cannot be checked, no usable cell"
        loss = 1 - math.exp(math.fsum(values) / len(values))
        if loss > most + 1e-9:
            said = f"loses {percentage(loss)} at {point.label}"
            return f"limit: {said}, at most {percentage(most)} allowed"
    return ""


def _slow_first_token(
    figures: Figures, cells: Sequence[Cell], config: str, limits: params.Limits
) -> str:
    if limits.ttft_p99_ms is None:
        return ""
    for point in (point for point, share in figures.weights.items() if share > 0):
        here = [
            cell.ttft_p99_ms
            for cell in cells
            if cell.config == config and cell.usable and point_of(cell) == point
        ]
        if not here:
            continue  # void everywhere: out for that reason already
        known = [ttft_ms for ttft_ms in here if ttft_ms is not None]
        if len(known) < len(here):
            return f"limit: TTFT p99 at {point.label} cannot be checked, it is unknown"
        middle = math.exp(math.fsum(math.log(max(one, 1e-6)) for one in known) / len(known))
        if middle > limits.ttft_p99_ms:
            return (
                f"limit: TTFT p99 {middle:.0f} ms at {point.label}, "
                f"at most {limits.ttft_p99_ms:g} ms allowed"
            )
    return ""


def _errors(cells: Sequence[Cell], config: str, limits: params.Limits) -> str:
    own = [cell for cell in cells if cell.config == config]
    counted = [cell for cell in own if cell.requests]
    failed, sent = sum(cell.errors for cell in counted), sum(cell.requests for cell in counted)
    unknown = sum(cell.errors for cell in own if not cell.requests)
    allowed = f"at most {percentage(limits.error_share)} allowed"
    if unknown and limits.error_share < 1:
        return (
            f"limit: {unknown} requests failed, and the figures do not say of how many, {allowed}"
        )
    if failed > sent:
        return f"limit: {failed} failed requests are told of {sent} sent: one of them is wrong"
    if failed and failed / sent > limits.error_share:
        return f"limit: {failed} of {sent} requests failed ({percentage(failed / sent)}), {allowed}"
    return ""
