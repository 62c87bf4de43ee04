import math

import pytest

from runbook import intervals
from runbook.cells import Cell
from runbook.choose import decide
from runbook.verbs.choosing import as_text


def test_the_smallest_move_of_traffic_has_its_closed_form(published, production):
    """Moving d from C=30 to C=1 changes the score by d * (gain at 1 - gain at 30)."""
    flip = decide(published, production).flips[0]
    one, thirty = math.log(86.8 / 92.7), math.log(759.3 / 689.4)
    hundred = math.log(775.0 / 773.1)
    score = 0.15 * one + 0.6 * thirty + 0.25 * hundred
    assert (flip.kind, flip.source.concurrency, flip.target.concurrency) == ("mix", 30, 1)
    assert flip.amount == pytest.approx((score - math.log(1.02)) / (thirty - one), abs=1e-6)
    assert flip.choice == "baseline"
    assert flip.sentence == "17.8 % of the time moved from C=30 to C=1: baseline"


def test_beyond_the_flip_the_rule_answers_as_foretold(published, rule):
    decision = decide(published, rule({1: 15, 30: 60, 100: 25}))
    flip = decision.flips[0]
    for nudge, choice in ((-1e-4, decision.choice), (1e-4, flip.choice)):
        moved = 100 * (flip.amount + nudge)
        assert decide(published, rule({1: 15 + moved, 30: 60 - moved, 100: 25})).choice == choice


def test_a_flip_of_a_measured_choice_obeys_the_interval(session, rule):
    """With intervals the first flip is to undecided, before the estimate reaches the margin."""
    cells = session({"lean": {1: 1.2, 8: 0.9}}, 4, 0.01, seed=5)
    decision = decide(cells, rule({1: 70, 8: 30}))
    mix, figure = decision.flips[0], next(f for f in decision.flips if f.kind == "figure")
    assert (decision.choice, mix.status, figure.status) == ("lean", "undecided", "undecided")
    moved = 100 * (mix.amount + 1e-4)
    assert decide(cells, rule({1: 70 - moved, 8: 30 + moved})).status == "undecided"
    assert figure.target is None
    expected = math.log(decision.effect("lean").low) - math.log(1.02)
    assert -math.log1p(figure.amount) == pytest.approx(expected, abs=1e-6)


def test_a_limit_can_be_what_flips_the_figure(published, production):
    """86.8 against 92.7 may fall to 90 % of it before the limit at C=1 excludes."""
    flips = [f for f in decide(published, production).flips if f.kind == "figure"]
    at_one = next(flip for flip in flips if flip.target and flip.target.concurrency == 1)
    assert at_one.amount == pytest.approx(0.9 * 92.7 / 86.8 - 1, abs=1e-6)


def test_a_baseline_flips_when_its_own_figures_fall(session, rule):
    cells = session({"lean": {1: 1.0, 8: 1.0}}, 3)
    flips = decide(cells, rule({1: 70, 8: 30})).flips
    assert flips and {flip.kind for flip in flips} == {"figure"}
    assert flips[0].config == "baseline" and flips[0].choice == "lean"
    assert flips[0].amount == pytest.approx(1 / 1.02 - 1, abs=1e-6)


def test_a_rise_of_another_than_the_chosen_flips_too(session, rule):
    factors = {"lean": {1: 1.3, 8: 1.1}, "wide": {1: 1.2, 8: 1.0}}
    terms = rule({1: 70, 8: 30})
    decision = decide(session(factors, 4, 0.005, seed=5), terms)
    assert decision.choice == "lean"
    rise = next(f for f in decision.flips if f.config == "wide" and f.target is None)
    assert 0 < rise.amount < 0.1
    for nudge, same in ((-1e-3, True), (1e-3, False)):
        risen = {at: factor * (1 + rise.amount + nudge) for at, factor in factors["wide"].items()}
        then = decide(session({**factors, "wide": risen}, 4, 0.005, seed=5), terms)
        assert ((then.status, then.choice) == (decision.status, decision.choice)) is same
    assert (rise.status, rise.choice) == (then.status, then.choice)


def test_a_landslide_has_no_flip(session, rule):
    assert decide(session({"lean": {1: 9.0, 8: 9.0}}, 3), rule({1: 1, 8: 1})).flips == ()


def test_a_crossover_is_interpolated_in_the_logarithm(session, rule):
    cells = session({"lean": {1: 1.1, 4: 1 / 1.1}}, 1)
    (crossing,) = decide(cells, rule({1: 1, 4: 1})).crossovers
    assert crossing.concurrency == pytest.approx(2.0)
    assert (crossing.gains, crossing.interval, crossing.low) == ("below", False, None)
    assert "no interval" in crossing.sentence


def test_a_crossover_has_an_interval_where_blocks_allow(session, rule):
    cells = session({"lean": {1: 1.3, 4: 1.0, 16: 0.7}}, 4, 0.02, seed=1)
    (crossing,) = decide(cells, rule({1: 1, 4: 1})).crossovers
    assert 1 < crossing.low < crossing.concurrency < crossing.high < 16
    assert crossing.low < 4 < crossing.high


def test_a_crossover_in_the_noise_is_open_on_both_sides(rule):
    cells = [
        Cell(config, 2 * block + at, block, c, output_tok_s=20 * figures[c][block] if at else 20.0)
        for figures in ({1: (1.3, 0.8, 1.1), 16: (0.7, 1.3, 0.8)},)
        for block in range(3)
        for at, config in enumerate(("baseline", "lean"))
        for c in figures
    ]
    found = decide(cells, rule({1: 1, 16: 1})).crossovers
    assert found and all(one.interval for one in found)
    assert all((one.low, one.high) == (None, None) for one in found)
    assert "below the least measured" in found[0].sentence


def test_a_gain_that_never_crosses_has_no_crossover(session, rule):
    assert decide(session({"lean": {1: 1.3, 8: 1.1}}, 3, 0.01), rule({1: 1})).crossovers == ()


def test_points_are_judged_with_holm(session, rule):
    cells = session({"lean": {1: 1.3, 8: 1.0, 64: 0.8}}, 5, 0.004)
    words = {p.point.concurrency: p.word for p in decide(cells, rule({1: 1})).points}
    assert words == {1: "better", 8: "no difference", 64: "worse"}


def test_several_points_raise_the_bar_for_each(session, rule):
    """A point that is clear by itself is not clear among four that were looked at."""
    cells = session({"lean": {1: 1.04, 2: 1.0, 4: 1.0, 8: 1.0}}, 4, 0.012, seed=1)
    point = decide(cells, rule({1: 1})).points[0]
    values = [
        math.log(own.output_tok_s / base.output_tok_s)
        for base, own in zip(cells[0::8], cells[4::8], strict=True)
    ]
    alone = intervals.p_value(values)
    assert alone < 0.05 and point.low > 1
    assert point.p == pytest.approx(4 * alone) and point.p > 0.05 and point.word == "undecided"


def test_the_decision_in_plain_text(published, production):
    text = as_text(decide(published, production))
    assert text.startswith("provisional: eagle3-topk1-spec-v2\n")
    assert "over baseline, in the mix\n  eagle3-topk1-spec-v2: +" in text
    assert "1 block: better" in text
    assert "with all the time at one point\n  C=1: baseline\n" in text
    assert "what would flip it\n  " in text and ": baseline" in text
    assert "where the gain changes sign\n  eagle3-topk1-spec-v2 gains above C = 3.97 (no" in text


def test_undecided_figures_say_which_move_would_decide(session, rule):
    cells = session({"lean": {1: 1.3, 8: 0.8}}, 4, 0.02, seed=2)
    decision = decide(cells, rule({1: 50, 8: 50}))
    assert decision.status == "undecided"
    assert decision.flips[0].choice in ("lean", "baseline")
