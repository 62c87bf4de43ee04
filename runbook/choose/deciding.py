"""``decide``: from the cells of a benchmark to the decision, whole and in words (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from runbook import intervals, params
from runbook.cells import Cell
from runbook.choose import figures as _figures
from runbook.choose import rule as _rule
from runbook.choose import sensitivity, words
from runbook.choose.figures import Figures
from runbook.choose.rule import Answer, Terms
from runbook.decision import (
    Comparison,
    Decision,
    Effect,
    Point,
    PointEffect,
    PointWinner,
    Weight,
    Word,
)
from runbook.intervals import MIN_BLOCKS, Estimate

_ALPHA = 1 - intervals.CONFIDENCE


def decide(
    cells: Sequence[Cell],
    rule: params.Choose,
    configurations: Sequence[str] | None = None,
    baseline: str = params.BASELINE,
) -> Decision:
    """Decide by the declared rule.

    ``configurations``: the names compared (``None``: those of the cells). Raises ``BadInput``
    where the mix, a limit, ``expected`` or ``override`` names what was not measured, where the
    baseline is missing, and where a context must be named.
    """
    figures, terms = _prepare(cells, rule, configurations, baseline)
    scores = {config: figures.scores(config) for config in figures.configs}
    by_rule = answer = _rule.ask(scores, terms)
    if words.hanging_on_a_queue(answer, figures, cells):
        answer = Answer("undecided", None)
    estimates = {config: _rule.estimate_of(own, terms) for config, own in scores.items()}
    effects = tuple(
        _effect(config, scores[config], terms, figures, cells) for config in figures.others
    )
    points = tuple(
        one for config in figures.others for one in _point_effects(figures, config, terms)
    )
    comparisons = _compare(scores, figures, terms)
    limited = _rule.limited_points(figures, rule.limits)
    return Decision(
        status=answer.status,
        choice=answer.choice,
        reason=words.reason(answer, effects, comparisons, terms, figures, cells),
        baseline=baseline,
        margin=rule.margin,
        blocks=figures.blocks,
        weights=tuple(Weight(point, share) for point, share in figures.weights.items()),
        effects=effects,
        comparisons=comparisons,
        points=points,
        winners=_winners(figures, terms),
        costs=words.costs(answer.choice, points),
        flips=sensitivity.find_flips(figures, terms, by_rule, limited),
        crossovers=sensitivity.find_crossovers(figures),
        advice=words.advice(*(answer, estimates, effects, terms, figures, rule.expected or "")),
        notes=(*words.notes(figures, terms, scores, cells), *words.look(rule, figures)),
    )


def ask(
    cells: Sequence[Cell],
    rule: params.Choose,
    configurations: Sequence[str] | None = None,
    baseline: str = params.BASELINE,
) -> Answer:
    """The bare answer of the rule, for simulations: ``decide`` without what explains it."""
    figures, terms = _prepare(cells, rule, configurations, baseline)
    return _rule.ask({config: figures.scores(config) for config in figures.configs}, terms)


def block_scores(
    cells: Sequence[Cell], rule: params.Choose, config: str, baseline: str = params.BASELINE
) -> tuple[float, ...]:
    """The primary endpoint of one configuration: a weighted log-ratio for each complete block."""
    figures = _figures.tabulate(cells, rule.mix, [baseline, config], baseline)
    return tuple(figures.scores(config).values())


def _prepare(
    cells: Sequence[Cell],
    rule: params.Choose,
    configurations: Sequence[str] | None,
    baseline: str,
) -> tuple[Figures, Terms]:
    """The table of log-ratios and the terms of the rule; all refusals are made here."""
    configs = tuple(configurations or _figures.names_in(cells))
    for name, what in _named(rule):
        _figures.require_name(name, configs, what)
    figures = _figures.tabulate(cells, rule.mix, configs, baseline)
    terms = Terms(
        baseline,
        math.log1p(rule.margin),
        tuple(rule.prefer),
        _rule.find_excluded(figures, cells, rule.limits),
        figures.blocks < MIN_BLOCKS,
        intervals.look_confidence(rule.looks, figures.blocks),
    )
    return figures, terms


def _named(rule: params.Choose) -> list[tuple[str, str]]:
    named = [(rule.expected, "choose.expected")] if rule.expected else []
    return [*named, *([(rule.override.choose, "choose.override")] if rule.override else [])]


def _effect(
    config: str,
    scores: Mapping[int, float],
    terms: Terms,
    figures: Figures,
    cells: Sequence[Cell],
) -> Effect:
    if not scores:
        missing = f"no block of {figures.blocks} has all weighted cells"
        lacking = words.lacking(config, figures, cells)
        why = terms.excluded.get(config, f"not choosable: {missing} ({lacking})")
        return Effect(config, None, None, None, 0, "unknown", why)
    estimate = intervals.mean_interval(list(scores.values()), terms.confidence)
    excluded = terms.excluded.get(config, "")
    if not excluded and _rule.estimate_of(scores, terms) is None:
        excluded = (
            f"not choosable: {len(scores)} of {figures.blocks} blocks have all weighted cells, "
            f"at least {MIN_BLOCKS} are needed"
        )
    return Effect(
        config,
        math.exp(estimate.mean),
        _exp(estimate.low),
        _exp(estimate.high),
        len(scores),
        _primary_word(estimate, terms),
        excluded,
    )


def _primary_word(estimate: Estimate, terms: Terms) -> Word:
    margin = terms.log_margin
    if estimate.low is None or estimate.high is None:
        return _word_of_figure(estimate.mean, margin)
    if estimate.low > margin:
        return "better"
    if -margin < estimate.low and estimate.high < margin:
        return "no difference"
    return "worse" if estimate.high < 0 else "undecided"


def _word_of_figure(mean: float, margin: float) -> Word:
    if abs(mean) <= margin:
        return "no difference"
    return "better" if mean > 0 else "worse"


def _point_effects(figures: Figures, config: str, terms: Terms) -> list[PointEffect]:
    """The secondary effects of one configuration, Holm-adjusted over its points."""
    values = [list(figures.at_point(config, point).values()) for point in figures.points]
    differs = intervals.holm([intervals.p_value(one) for one in values])
    within = intervals.holm([intervals.equivalence_p(one, terms.log_margin) for one in values])
    return [
        _point_effect(config, point, one, p, equal, terms)
        for point, one, p, equal in zip(figures.points, values, differs, within, strict=True)
    ]


def _point_effect(
    config: str,
    point: Point,
    values: list[float],
    p: float | None,
    equal: float | None,
    terms: Terms,
) -> PointEffect:
    if not values:
        return PointEffect(config, point, None, None, None, 0, None, "unknown")
    estimate = intervals.mean_interval(values)
    word: Word = "undecided"
    if p is None or equal is None:
        word = _word_of_figure(estimate.mean, terms.log_margin)
    elif equal < _ALPHA:
        word = "no difference"
    elif p < _ALPHA:
        word = "better" if estimate.mean > 0 else "worse"
    low, high = _exp(estimate.low), _exp(estimate.high)
    return PointEffect(config, point, math.exp(estimate.mean), low, high, len(values), p, word)


def _compare(scores: _rule.Scores, figures: Figures, terms: Terms) -> tuple[Comparison, ...]:
    """Every two configurations but the baseline against each other, in the declared mix."""
    found = []
    for at, first in enumerate(figures.others):
        for second in figures.others[at + 1 :]:
            estimate = _rule.difference(scores[first], scores[second], terms)
            if estimate is None:
                continue
            low, high = _exp(estimate.low), _exp(estimate.high)
            different = _rule.is_different(estimate, terms)
            ratio = math.exp(estimate.mean)
            found.append(Comparison(first, second, ratio, low, high, estimate.n, different))
    return tuple(found)


def _winners(figures: Figures, terms: Terms) -> tuple[PointWinner, ...]:
    """The rule's answer with all the time at one point, for each point."""
    found = []
    for point in figures.points:
        scores = {config: figures.scores(config, {point: 1.0}) for config in figures.configs}
        answer: Answer = _rule.ask(scores, terms)
        found.append(PointWinner(point, answer.status, answer.choice))
    return tuple(found)


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
