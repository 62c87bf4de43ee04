"""The sentences of a decision: reason, costs, advice and notes (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from runbook import intervals, params
from runbook.cells import UNLIKE_WORK, Cell
from runbook.checks import counted
from runbook.choose import sensitivity
from runbook.choose.figures import Figures, point_of
from runbook.choose.rule import Answer, Scores, Terms
from runbook.decision import Comparison, Effect, PointEffect, percent
from runbook.intervals import MIN_BLOCKS, Estimate, too_few

_NOTE_CHARACTERS = 300


def reason(
    answer: Answer,
    effects: Sequence[Effect],
    comparisons: Sequence[Comparison],
    terms: Terms,
    figures: Figures,
    cells: Sequence[Cell],
) -> str:
    """Why the rule answers so, in one to three sentences."""
    by_name = {effect.config: effect for effect in effects}
    margin = f"{math.expm1(terms.log_margin) * 100:g} %"
    if queued := hanging_on_a_queue(answer, figures, cells):
        return queued
    if answer.status == "not_choosable":
        return _nothing_to_choose(effects, terms, figures)
    if answer.choice is None:
        return _undecided(effects, terms, margin)
    if answer.choice == terms.baseline:
        said = _baseline(effects, terms, margin)
    else:
        effect = by_name[answer.choice]
        said = f"{answer.choice} gives {show(effect)} over {terms.baseline} in the declared mix, "
        said += f"{'' if terms.provisional else 'clearly '}more than the margin of {margin}"
        said += _against_the_rest(answer, by_name, comparisons, terms)
    if terms.provisional:
        said += f". No interval can be given ({too_few(figures.blocks)}): the choice is provisional"
    return said + "."


def hanging_on_a_queue(answer: Answer, figures: Figures, cells: Sequence[Cell]) -> str:
    """Why no choice can be made where requests waited; empty where one is, or none waited."""
    if answer.choice is not None:
        return ""
    weighed = [cell for cell in cells if cell.queue_limited and point_of(cell) in figures.weighed]
    at = dict.fromkeys(
        f"{cell.config} at {point_of(cell).label} ({_short(cell.note)})" for cell in weighed
    )
    if not at:
        return ""
    return (
        f"the choice hangs on figures that are queue-limited: {', '.join(at)}. "
        "Such a figure is that of a lower concurrency."
    )


def show(effect: Effect) -> str:
    """``+16.2 % (95 %: +11.0 % to +21.7 %)``; without the brackets where there is no interval."""
    if effect.ratio is None:
        return "no figure"
    if effect.low is None or effect.high is None:
        return percent(effect.ratio)
    return f"{percent(effect.ratio)} (95 %: {percent(effect.low)} to {percent(effect.high)})"


def _against_the_rest(
    answer: Answer,
    by_name: Mapping[str, Effect],
    comparisons: Sequence[Comparison],
    terms: Terms,
) -> str:
    tied = [config for config in answer.group if config != answer.choice]
    said = ""
    if tied:
        listed = ", ".join(f"{config} {show(by_name[config])}" for config in tied)
        preferred = answer.choice in terms.prefer
        why = "preferred by choose.prefer" if preferred else "ahead by the figures alone"
        said += f"; not clearly different from {listed}, {why}"
    less = [
        other
        for one in comparisons
        if one.different and answer.choice in (one.first, one.second)
        for other in (one.second if one.first == answer.choice else one.first,)
        if other not in tied and not by_name[other].excluded
    ]
    if less:
        listed = ", ".join(f"{config} {show(by_name[config])}" for config in less)
        said += f"; {'' if terms.provisional else 'clearly '}better than {listed}"
    return said


def _baseline(effects: Sequence[Effect], terms: Terms, margin: str) -> str:
    compared = [effect for effect in effects if not effect.excluded]
    out = [f"{effect.config} is out ({effect.excluded})" for effect in effects if effect.excluded]
    if compared:
        listed = ", ".join(f"{effect.config} {show(effect)}" for effect in compared)
        what = "gain" if terms.provisional else "upper limit"
        said = (
            f"no other configuration's {what} over {terms.baseline} reaches the margin of {margin}"
        )
        return "; ".join([f"{said}: {listed}", *out])
    return "; ".join([f"{terms.baseline} is all that is left to choose", *out])


def _undecided(effects: Sequence[Effect], terms: Terms, margin: str) -> str:
    listed = ", ".join(f"{effect.config} {show(effect)}" for effect in effects)
    out = [f"{effect.config}: {effect.excluded}" for effect in effects if effect.excluded]
    if terms.baseline in terms.excluded:
        out.append(f"{terms.baseline}: {terms.excluded[terms.baseline]}")
    said = f"no configuration is clearly better than {terms.baseline} by {margin}, and not all are "
    said += f"clearly no better: {listed}"
    return "; ".join([said, *out]) + "."


def _nothing_to_choose(effects: Sequence[Effect], terms: Terms, figures: Figures) -> str:
    left, all_of_them = len(figures.scores(terms.baseline)), counted(figures.blocks, "block")
    if left < (1 if terms.provisional else MIN_BLOCKS):
        return (
            f"{terms.baseline} has all weighted cells in {left} of {all_of_them}: "
            "there is nothing to compare with."
        )
    out = [f"{effect.config}: {effect.excluded}" for effect in effects if effect.excluded]
    if terms.baseline in terms.excluded:
        out.append(f"{terms.baseline}: {terms.excluded[terms.baseline]}")
    return "no configuration is left to choose from: " + "; ".join(out) + "."


def costs(choice: str | None, points: Sequence[PointEffect]) -> tuple[str, ...]:
    """What the choice costs: where it is slower than the baseline, then where it only ties."""
    own = [point for point in points if point.config == choice and point.ratio is not None]
    losses = [p for p in own if p.word == "worse" or (p.word == "undecided" and (p.ratio or 1) < 1)]
    ties = [p for p in own if p.word == "no difference"]
    return tuple(point.sentence for point in [*losses, *ties])


def advice(
    answer: Answer,
    estimates: Mapping[str, Estimate | None],
    effects: Sequence[Effect],
    terms: Terms,
    figures: Figures,
    expected: str = "",
) -> tuple[str, ...]:
    """What to do next, where the answer is no clear choice, or not the ``expected`` one."""
    if answer.status == "chosen" and expected in ("", answer.choice):
        return ()
    decide_yourself = "decide yourself, with a name and a reason: choose.override in the parameters"
    if answer.status == "chosen":
        return (
            f"see in the benchmark why {expected} falls short (acceptance, latencies, notes); then "
            f"plan with {answer.choice} (choose.expected), or {decide_yourself}",
        )
    if answer.status == "provisional":
        blocks = f"benchmark.blocks: {max(3, figures.blocks)}"
        return (f"measure with at least {blocks}, each block in server lives of its own",)
    out = {effect.config: effect.excluded for effect in effects}
    void = [config for config, why in out.items() if why.startswith("not choosable")]
    unlike = [config for config in void if UNLIKE_WORK in out[config]]
    if estimates[terms.baseline] is None:
        void = [terms.baseline]
    found = [
        f"see why cells of {config} are void or missing (cells.csv, column note), then measure "
        "again: runbook run PARAMS --from benchmark"
        for config in void
        if config not in unlike
    ]
    if unlike:
        found.append(
            f"measure {', '.join(unlike)} and {terms.baseline} with the same prompts, number of "
            "requests and length of answers"
        )
    if answer.status == "undecided" and not void:
        found.append(_more_blocks(estimates, terms, figures))
    found.append(f"or {decide_yourself}")
    return tuple(found)


def _more_blocks(estimates: Mapping[str, Estimate | None], terms: Terms, figures: Figures) -> str:
    others = {
        config: estimate
        for config, estimate in estimates.items()
        if config != terms.baseline and config not in terms.excluded
    }
    needed = sensitivity.blocks_to_decide(others, terms.log_margin)
    if needed is None:
        return (
            "the effect lies too near the margin for its scatter: a hundred blocks would not "
            "decide; longer cells or a quieter machine may"
        )
    blocks = max(needed, figures.blocks + 1)
    return (
        f"measure afresh, on a machine that does nothing else, with benchmark.blocks: {blocks}; "
        "with the effect and scatter seen, that "
        "decides in four runs of five (adding blocks to these until it fits would not be honest)"
    )


def notes(figures: Figures, terms: Terms, scores: Scores, cells: Sequence[Cell]) -> tuple[str, ...]:
    """What a reader should know about the figures themselves."""
    found = [*_open(figures, terms, scores), *_failures(figures, terms, cells)]
    base = terms.excluded.get(terms.baseline)
    if base:
        found.append(f"{terms.baseline} itself is beyond a limit and cannot be chosen ({base})")
    for config in figures.others:
        values = list(scores[config].values())
        if len(values) >= MIN_BLOCKS and max(values) == min(values):
            found.append(
                f"the figures of {config} do not scatter at all over {len(values)} blocks: "
                "they look copied, not measured"
            )
        missing = figures.blocks - len(values)
        if missing and values:
            out_of = f"{missing} of {counted(figures.blocks, 'block')}"
            found.append(f"{config} is out of {out_of}: {_kinds_lacking(config, figures, cells)}")
    return tuple(found)


def lacking(config: str, figures: Figures, cells: Sequence[Cell]) -> str:
    """Which weighted figures a configuration lacks against the baseline, each with its reason."""
    found = []
    for point in figures.weighed:
        for name in dict.fromkeys((config, figures.baseline)):
            own = [cell for cell in cells if cell.config == name and point_of(cell) == point]
            reasons = dict.fromkeys(_why_unusable(cell) for cell in own if not cell.usable)
            if not own or reasons:
                whose = "" if name == config else f" of {name}"
                found.append(f"{point.label}{whose}: {'; '.join(reasons) or 'not measured'}")
    return ", ".join(found)


def _kinds_lacking(config: str, figures: Figures, cells: Sequence[Cell]) -> str:
    """Void, dead or never measured: the kinds of the cells that are lacking."""
    own = [one for one in cells if one.config in (config, figures.baseline)]
    own = [one for one in own if point_of(one) in figures.weighed]
    kinds = {
        "cells that were not measured" if one.unmeasured else "void cells"
        for one in own
        if not one.usable
    }
    return " and ".join(sorted(kinds)) or "cells that were not measured"


def _why_unusable(cell: Cell) -> str:
    if cell.unmeasured:
        return "not measured" + (f" ({_short(cell.note)})" if cell.note else "")
    if cell.status == "server_died":
        return "the server died"
    return _short(cell.note) or ("no figure" if cell.status == "ok" else "void")


def _short(note: str) -> str:
    """The first line of a note, cut where it is long."""
    line = note.strip().split("\n")[0]
    return line if len(line) <= _NOTE_CHARACTERS else line[: _NOTE_CHARACTERS - 3] + "..."


def _open(figures: Figures, terms: Terms, scores: Scores) -> list[str]:
    """What one or two blocks cannot exclude, of each configuration that has them."""
    values = {
        config: list(scores[config].values())
        for config in figures.others
        if terms.provisional and scores[config]
    }
    return [
        f"{config} over {terms.baseline}, {counted(len(own), 'block')}: "
        f"{intervals.cannot_exclude(len(own), own)}"
        for config, own in values.items()
    ]


def _failures(figures: Figures, terms: Terms, cells: Sequence[Cell]) -> Iterator[str]:
    """Failed requests of what may be chosen: nobody is the best silently with them."""
    for config in figures.configs:
        own = [cell for cell in cells if cell.config == config and cell.errors]
        failed, sent = sum(one.errors for one in own), sum(one.requests for one in own)
        if failed and config not in terms.excluded:
            yield (
                f"{config}: {failed} of {sent or 'an unknown number of'} requests failed in "
                f"{counted(len(own), 'cell')}; they count in no figure"
            )


def look(rule: params.Choose, figures: Figures) -> list[str]:
    """That the run may have ended at a declared look, and what its interval is then."""
    if not rule.looks:
        return []
    declared = ", ".join(map(str, rule.looks))
    alone = 100 * intervals.look_confidence(rule.looks, figures.blocks)
    return [
        f"looks were declared at {declared} blocks, this one is at {figures.blocks}: its 95 % "
        f"interval is a single one of {alone:.4g} %, so that all looks together err in 5 % at most"
    ]
