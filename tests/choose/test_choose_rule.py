import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import params
from runbook.cells import Cell
from runbook.choose import decide, equal_mix, final_choice, from_json, verdict
from runbook.errors import BadInput

MIX = {1: 70, 8: 30}


def void(cells, config, block, concurrency):
    return [
        replace(cell, status="void")
        if (cell.config, cell.block, cell.concurrency) == (config, block, concurrency)
        else cell
        for cell in cells
    ]


# --- the published figures ---------------------------------------------------------------------


def test_published_figures_choose_provisionally_and_say_what_it_costs(published, production):
    decision = decide(published, production)
    effect = decision.effect("eagle3-topk1-spec-v2")
    assert (decision.status, decision.choice) == ("provisional", "eagle3-topk1-spec-v2")
    assert effect.ratio == pytest.approx(1.0499, abs=1e-4)
    assert (effect.low, effect.high) == (None, None)
    assert "No interval can be given" in decision.reason
    assert decision.costs == ("C=1 loses 6.4 %", "C=100 is a tie (+0.2 %)")
    (said,) = decision.notes
    assert "1 block: it cannot be excluded that the luck of one server life" in said


def test_two_blocks_say_in_figures_what_they_cannot_exclude(session, rule):
    """+4 % and +6 %: twelve times their distance to each side of +5 %."""
    cells = [
        Cell(config, 2 * block + at, block, 1, requests=10, output_tok_s=speed)
        for block, gained in ((0, 104.0), (1, 106.0))
        for at, (config, speed) in enumerate((("baseline", 100.0), ("lean", gained)))
    ]
    decision = decide(cells, rule({1: 1}))
    assert (decision.status, decision.choice) == ("provisional", "lean")
    (said,) = decision.notes
    one, two = math.log(1.04), math.log(1.06)
    half = 12.7062 * (two - one) / 2
    low, high = (math.expm1((one + two) / 2 + side * half) * 100 for side in (-1, 1))
    assert f"here nothing from {low:+.1f} % to {high:+.1f} % is excluded" in said
    assert -8 < low < -6 and 17 < high < 20
    assert decide(session({"lean": {1: 1.1}}, 3, 0.01), rule({1: 1})).notes == ()


def test_failed_requests_of_what_is_chosen_are_never_silent(session, rule):
    cells = [
        replace(cell, requests=1000, errors=int(cell.config == "lean"))
        for cell in session({"lean": {1: 1.3, 8: 1.3}}, 3, 0.003)
    ]
    decision = decide(cells, rule(MIX))
    assert decision.choice == "lean"
    assert "lean: 6 of 6000 requests failed in 6 cells; they count in no figure" in decision.notes


def test_published_figures_fail_a_tighter_limit(published, rule):
    strict = rule({1: 15, 30: 60, 100: 25}, limits=params.Limits(max_regress={"1": 0.05}))
    decision = decide(published, strict)
    assert (decision.status, decision.choice) == ("provisional", "baseline")
    assert "loses 6.4 % at C=1" in decision.effect("eagle3-topk1-spec-v2").excluded


def test_a_provisional_choice_installs_only_by_override(published, production):
    decision = decide(published, production)
    assert not verdict(decision, production).ok
    assert final_choice(decision, production) is None
    assert verdict(decision, production, to_install=False).ok
    forced = production.model_copy(
        update={
            "override": params.Override(
                choose="eagle3-topk1-spec-v2", reason="weeks of tuning", by="ops"
            )
        }
    )
    said = verdict(decision, forced)
    assert said.ok and "weeks of tuning" in said.text and "ops" in said.text
    assert final_choice(decision, forced) == "eagle3-topk1-spec-v2"


# --- chosen, baseline, undecided ---------------------------------------------------------------


def test_the_clearly_better_one_is_chosen_with_its_interval(session, rule):
    cells = session({"lean": {1: 1.3, 8: 0.9}, "wide": {1: 1.2, 8: 0.8}}, 5, 0.01, seed=1)
    decision = decide(cells, rule(MIX))
    effect = decision.effect("lean")
    assert (decision.status, decision.choice) == ("chosen", "lean")
    true_ratio = math.exp(0.7 * math.log(1.3) + 0.3 * math.log(0.9))
    assert effect.low < true_ratio < effect.high and effect.blocks == 5
    assert decision.comparisons[0].different
    assert verdict(decision, rule(MIX)).ok and final_choice(decision, rule(MIX)) == "lean"


def test_baseline_is_the_choice_when_nothing_can_exceed_the_margin(session, rule):
    cells = session({"lean": {1: 1.0, 8: 0.9}, "wide": {1: 0.95, 8: 0.8}}, 5, 0.005)
    decision = decide(cells, rule(MIX, expected="lean"))
    assert (decision.status, decision.choice) == ("chosen", "baseline")
    assert not verdict(decision, rule(MIX, expected="lean")).ok
    assert final_choice(decision, rule(MIX, expected="lean")) is None
    assert verdict(decision, rule(MIX)).ok


def test_noise_leaves_it_undecided_and_says_how_many_blocks_would_do(session, rule):
    cells = session({"lean": {1: 1.06, 8: 1.06}}, 3, 0.04, seed=3)
    decision = decide(cells, rule(MIX))
    assert (decision.status, decision.choice) == ("undecided", None)
    assert not verdict(decision, rule(MIX)).ok
    assert "benchmark.blocks: " in decision.advice[0]


def test_clearly_better_than_nothing_is_not_enough_within_the_margin(session, rule):
    cells = session({"lean": {1: 1.03, 8: 1.03}}, 5, 0.004)
    assert decide(cells, rule(MIX, margin=0.02)).choice == "lean"
    assert decide(cells, rule(MIX, margin=0.03)).status == "undecided"
    assert decide(cells, rule(MIX, margin=0.06)).choice == "baseline"


@pytest.mark.parametrize("prefer", [["lean", "wide"], ["wide", "lean"]])
def test_a_tie_goes_by_preference(session, rule, prefer):
    cells = session({"lean": {1: 1.3, 8: 1.3}, "wide": {1: 1.3, 8: 1.3}}, 4, 0.01)
    decision = decide(cells, rule(MIX, prefer=prefer))
    assert decision.choice == prefer[0]
    assert "not clearly different" in decision.reason


def test_preference_does_not_lift_a_clearly_worse_one(session, rule):
    cells = session({"lean": {1: 1.3, 8: 1.3}, "wide": {1: 1.1, 8: 1.1}}, 4, 0.005)
    assert decide(cells, rule(MIX, prefer=["wide", "lean"])).choice == "lean"


def test_a_tie_with_one_that_is_not_clearly_better_is_none(session, rule):
    """Preference chooses only among those that are clearly better than the baseline."""
    cells = session({"lean": {1: 1.2, 8: 1.2}}, 3, 0.003)
    noisy = [1.0, 1.5, 1.2]
    cells += [
        Cell("wild", 90 + block, block, c, requests=10, output_tok_s=20 * noisy[block - 1])
        for block in (1, 2, 3)
        for c in MIX
    ]
    assert decide(cells, rule(MIX, prefer=["wild", "lean"])).choice == "lean"


# --- A/A -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("blocks", "sd"), [(3, 0.01), (3, 0.03), (5, 0.03), (8, 0.06)])
def test_the_same_configuration_under_three_names_is_hardly_ever_chosen(session, rule, blocks, sd):
    same = {"a": {1: 1.0, 8: 1.0}, "b": {1: 1.0, 8: 1.0}}
    terms = rule(MIX, margin=0.0)
    wrong = sum(
        decide(session(same, blocks, sd, seed), terms).choice in ("a", "b") for seed in range(200)
    )
    assert wrong <= 0.08 * 200  # 5 % and the scatter of 200 draws
    declared = rule(MIX)
    wrong = sum(
        decide(session(same, blocks, sd, seed), declared).choice in ("a", "b")
        for seed in range(200)
    )
    assert wrong <= 0.05 * 200


def test_equal_figures_are_no_difference(session, rule):
    decision = decide(session({"same": {1: 1.0, 8: 1.0}}, 3), rule(MIX))
    assert (decision.status, decision.choice) == ("chosen", "baseline")
    assert decision.effect("same").word == "no difference"
    assert {point.word for point in decision.points} == {"no difference"}


# --- void cells, lives, blocks ---------------------------------------------------------------


def test_a_void_cell_takes_its_configuration_out_of_the_block(session, rule):
    cells = session({"lean": {1: 1.3, 8: 1.0}, "wide": {1: 1.2, 8: 1.0}}, 4, 0.004)
    decision = decide(void(cells, "lean", 2, 8), rule(MIX))
    assert decision.effect("lean").blocks == 3 and decision.effect("wide").blocks == 4
    assert decision.choice == "lean"
    assert any("lean is out of 1 of 4 blocks" in note for note in decision.notes)


def test_fewer_than_three_blocks_left_is_not_choosable_and_said(session, rule):
    cells = session({"lean": {1: 1.3, 8: 1.0}, "wide": {1: 1.2, 8: 1.0}}, 3, 0.004)
    decision = decide(void(cells, "lean", 2, 8), rule(MIX))
    assert decision.effect("lean").excluded.startswith("not choosable: 2 of 3 blocks")
    assert decision.choice == "wide"
    alone = [cell for cell in void(cells, "lean", 2, 8) if cell.config != "wide"]
    assert decide(alone, rule(MIX)).status == "not_choosable"


def test_an_unknown_configuration_keeps_baseline_from_being_chosen(session, rule):
    cells = session({"lean": {1: 1.3, 8: 1.0}, "wide": {1: 0.8, 8: 0.8}}, 3, 0.004)
    decision = decide(void(cells, "lean", 2, 8), rule(MIX))
    assert (decision.status, decision.choice) == ("undecided", None)
    assert "why cells of lean are void" in decision.advice[0]


def test_a_void_baseline_leaves_nothing_to_compare_with(session, rule):
    cells = session({"lean": {1: 1.3, 8: 1.0}}, 3, 0.004)
    decision = decide(void(cells, "baseline", 1, 1), rule(MIX))
    assert decision.status == "not_choosable"
    assert "baseline has all weighted cells in 2 of 3 blocks" in decision.reason
    assert "why cells of baseline are void" in decision.advice[0]


def test_weights_are_not_renormalised_over_missing_cells(session, rule):
    """Where C=8 is missing, the gain at C=1 alone must not stand for the mix."""
    cells = session({"lean": {1: 1.5, 8: 0.5}}, 4)
    decision = decide(void(cells, "lean", 1, 8), rule(MIX))
    expected = math.exp(0.7 * math.log(1.5) + 0.3 * math.log(0.5))
    assert decision.effect("lean").ratio == pytest.approx(expected)


def test_a_void_cell_without_weight_changes_nothing_but_its_own_point(session, rule):
    cells = session({"lean": {1: 1.3, 8: 1.0, 4: 1.2}}, 3, 0.004)
    before, after = decide(cells, rule(MIX)), decide(void(cells, "lean", 1, 4), rule(MIX))
    assert before.effects == after.effects and before.choice == after.choice
    assert [p.blocks for p in after.points if p.point.concurrency == 4] == [2]


@pytest.mark.parametrize("figure", [None, 0.0])
def test_a_cell_without_a_figure_is_void(session, rule, figure):
    cells = session({"lean": {1: 1.3, 8: 1.0}}, 3, 0.004)
    cells[2] = replace(cells[2], output_tok_s=figure)
    assert cells[2].config == "lean"
    assert decide(cells, rule(MIX)).effect("lean").blocks == 2


def test_blocks_of_one_life_are_one_block(session, rule):
    cells = [replace(cell, life=1) for cell in session({"lean": {1: 1.3, 8: 1.0}}, 5, 0.004)]
    decision = decide(cells, rule(MIX))
    assert (decision.status, decision.choice, decision.blocks) == ("provisional", "lean", 1)


def test_within_one_life_a_void_cell_leaves_the_complete_blocks(session, rule):
    cells = [replace(cell, life=1) for cell in session({"lean": {1: 1.3, 8: 1.0}}, 3)]
    cells = [
        replace(cell, output_tok_s=99.0) if (cell.config, cell.block) == ("lean", 2) else cell
        for cell in cells
    ]
    effect = decide(void(cells, "lean", 2, 8), rule(MIX)).effect("lean")
    assert effect.ratio == pytest.approx(math.exp(0.7 * math.log(1.3)))


def test_a_server_that_never_came_up_joins_no_blocks(session, rule):
    cells = [
        replace(cell, life=0, status="not_run", output_tok_s=None)
        if cell.config == "wide"
        else cell
        for cell in session({"lean": {1: 1.3, 8: 1.0}, "wide": {1: 1.2, 8: 1.0}}, 3, 0.004)
    ]
    decision = decide(cells, rule(MIX))
    assert (decision.status, decision.choice, decision.blocks) == ("chosen", "lean", 3)
    assert decision.effect("wide").excluded.startswith("not choosable: no block of 3")


def test_blocks_chained_by_lives_are_one(session, rule):
    """A life over blocks 1 and 2, another over 2 and 3, one more over 4 and 5: two blocks."""
    shared = {("baseline", 2): ("baseline", 1), ("lean", 3): ("lean", 2), ("lean", 5): ("lean", 4)}
    cells = session({"lean": {1: 1.3, 8: 1.0}}, 5, 0.004)
    lives = {(cell.config, cell.block): cell.life for cell in cells}
    cells = [
        replace(c, life=lives[shared.get((c.config, c.block), (c.config, c.block))]) for c in cells
    ]
    assert decide(cells, rule(MIX)).blocks == 2


@pytest.mark.parametrize("blocks", [1, 2])
def test_one_or_two_blocks_give_a_provisional_choice(session, rule, blocks):
    decision = decide(session({"lean": {1: 1.3, 8: 1.0}}, blocks, 0.004), rule(MIX))
    assert (decision.status, decision.choice) == ("provisional", "lean")
    assert f"{blocks} block" in decision.reason and decision.effect("lean").low is None


def test_the_baseline_alone_is_the_choice(session, rule):
    cells = [c for c in session({"x": {1: 1.0, 8: 1.0}}, 3, 0.01) if c.config == "baseline"]
    decision = decide(cells, rule(MIX))
    assert (decision.status, decision.choice, decision.effects) == ("chosen", "baseline", ())


# --- limits ------------------------------------------------------------------------------------


def test_a_regress_beyond_its_limit_excludes_whatever_the_gain(session, rule):
    cells = session({"lean": {1: 0.88, 8: 2.0}, "wide": {1: 0.95, 8: 1.5}}, 3, 0.003)
    decision = decide(cells, rule({1: 30, 8: 70}, limits=params.Limits(max_regress={"1": 0.1})))
    assert "at C=1, at most 10 % allowed" in decision.effect("lean").excluded
    assert decision.choice == "wide"


def test_a_slow_first_token_excludes(session, rule):
    cells = [
        replace(cell, ttft_p99_ms=900.0 if cell.config == "lean" else 100.0)
        for cell in session({"lean": {1: 1.3, 8: 1.3}, "wide": {1: 1.1, 8: 1.1}}, 3, 0.003)
    ]
    decision = decide(cells, rule(MIX, limits=params.Limits(ttft_p99_ms=500.0)))
    assert decision.effect("lean").excluded.startswith("limit: TTFT p99 900 ms")
    assert decision.choice == "wide"


def test_a_limit_that_cannot_be_checked_is_not_met(session, rule):
    cells = session({"lean": {1: 1.3, 8: 1.3}}, 3, 0.003)
    decision = decide(cells, rule(MIX, limits=params.Limits(ttft_p99_ms=500.0)))
    assert "cannot be checked" in decision.effect("lean").excluded
    assert decision.status == "not_choosable"


def test_errors_exclude_and_all_excluded_leaves_the_baseline(session, rule):
    cells = [
        replace(cell, errors=1 if cell.config == "lean" else 0)
        for cell in session({"lean": {1: 1.3, 8: 1.3}}, 3, 0.003)
    ]
    decision = decide(cells, rule(MIX))
    assert decision.effect("lean").excluded.startswith("limit: 6 of 60 requests failed")
    assert (decision.status, decision.choice) == ("chosen", "baseline")


def test_a_limit_where_nothing_was_measured_is_bad_input(session, rule):
    cells = session({"lean": {1: 1.3, 8: 1.3}}, 3)
    with pytest.raises(BadInput, match="C=4"):
        decide(cells, rule(MIX, limits=params.Limits(max_regress={"4": 0.1})))


# --- mix, contexts, names ----------------------------------------------------------------------


def contexts(ratios):
    """Single figures by (context, concurrency): the baseline is 100 everywhere."""
    return [
        Cell(config, 1, 1, c, context_tokens=context, output_tok_s=100 * ratio)
        for (context, c), measured in ratios.items()
        for config, ratio in (("baseline", 1.0), ("eagle", measured))
    ]


LONG = 65536
B12 = {
    (0, 1): 1.23,
    (0, 16): 1.18,
    (0, 128): 0.94,
    (LONG, 1): 1.41,
    (LONG, 16): 0.80,
    (LONG, 128): 0.64,
}


def share(concurrency, context, part=1.0):
    return params.MixShare(concurrency=concurrency, context_tokens=context, share=part)


def test_contexts_are_weighed_apart():
    cells = contexts(B12)
    assert decide(cells, params.Choose(mix=[share(16, LONG)])).choice == "baseline"
    assert decide(cells, params.Choose(mix=[share(16, 0)])).choice == "eagle"
    winners = {
        (w.point.context_tokens, w.point.concurrency): w.choice
        for w in decide(cells, params.Choose(mix=[share(16, 0)])).winners
    }
    assert winners[(LONG, 1)] == "eagle" and winners[(LONG, 16)] == "baseline"
    assert winners[(0, 128)] == "baseline"


def test_short_contexts_do_not_speak_for_long_ones():
    short = [cell for cell in contexts(B12) if cell.context_tokens == 0]
    with pytest.raises(BadInput, match="C=16 context 65536, which was not measured"):
        decide(short, params.Choose(mix=[share(16, LONG)]))


def test_a_missing_context_means_the_only_one(published, production):
    named = [replace(cell, context_tokens=2048) for cell in published]
    assert decide(named, production).choice == "eagle3-topk1-spec-v2"
    mix = [share(1, 2048, 1.0), share(30, 2048, 3.0)]
    assert decide(published, params.Choose(mix=mix)).choice == "eagle3-topk1-spec-v2"


def test_several_contexts_must_be_named(published):
    with pytest.raises(BadInput, match="names no context_tokens"):
        decide(contexts(B12), params.Choose(mix=[share(16, None)]))
    with pytest.raises(BadInput, match="several context_tokens"):
        decide(published, params.Choose(mix=[share(1, 0), share(30, LONG)]))


def test_what_was_not_measured_is_named(published, rule):
    with pytest.raises(BadInput, match="C=16"):
        decide(published, rule({1: 1, 16: 1}))
    with pytest.raises(BadInput, match=r"expected names eagle3-topk1-spec-v1.*not measured"):
        decide(published, rule({1: 1}, expected="eagle3-topk1-spec-v1"))
    override = params.Override(choose="other", reason="because", by="me")
    with pytest.raises(BadInput, match="override"):
        decide(published, rule({1: 1}, override=override))


def test_a_missing_baseline_is_bad_input_unless_another_is_named(published, rule):
    others = [replace(c, config="plain") if c.config == "baseline" else c for c in published]
    with pytest.raises(BadInput, match="no cell is of the reference baseline"):
        decide(others, rule({30: 1}))
    assert decide(others, rule({30: 1}), baseline="plain").choice == "eagle3-topk1-spec-v2"
    with pytest.raises(BadInput, match="reference"):
        decide([], rule({30: 1}))


def test_a_configuration_without_cells_is_not_choosable(published, rule):
    decision = decide(published, rule({30: 1}), ["baseline", "never-run"])
    assert decision.effect("never-run").excluded.startswith("not choosable")
    assert decision.status == "not_choosable"


def test_equal_mix_weighs_every_point_alike(published):
    decision = decide(published, equal_mix(published))
    assert [weight.share for weight in decision.weights] == pytest.approx([1 / 3] * 3)


def test_no_improvement_is_an_answer_and_stops_an_expected_one(rule):
    """EAGLE at 59 against 61 tok/s: the measured winner is the baseline."""
    cells = [
        Cell(config, life, block, 1, requests=10, output_tok_s=figure + block / 10)
        for block in (1, 2, 3)
        for life, config, figure in ((2 * block, "baseline", 61.0), (2 * block + 1, "eagle", 59.0))
    ]
    terms = rule({1: 1}, expected="eagle")
    decision = decide(cells, terms)
    assert (decision.status, decision.choice) == ("chosen", "baseline")
    said = verdict(decision, terms)
    assert not said.ok and "expected was eagle: that gives −3.3 % (95 %: " in said.text
    (advice,) = decision.advice
    assert "why eagle falls short" in advice and "choose.override" in advice
    assert decide(cells, rule({1: 1}, expected="baseline")).advice == ()


# --- what must not matter ----------------------------------------------------------------------

ratio = st.floats(0.5, 2.0)
runs = st.fixed_dictionaries(
    {
        "ratios": st.fixed_dictionaries(
            {name: st.fixed_dictionaries({1: ratio, 8: ratio}) for name in ("a", "b")}
        ),
        "blocks": st.integers(1, 5),
        "sd": st.sampled_from([0.0, 0.01, 0.05]),
        "seed": st.integers(0, 99),
    }
)


@settings(max_examples=60, deadline=None)
@given(runs, st.floats(0.01, 100), st.floats(0.01, 100), st.randoms(use_true_random=False))
def test_units_order_and_scale_of_weights_do_not_matter(session, rule, run, unit, weight, shuffler):
    cells = session(**run)
    expected = decide(cells, rule(MIX))
    rescaled = [replace(cell, output_tok_s=cell.output_tok_s * unit) for cell in cells]
    shuffler.shuffle(rescaled)
    found = decide(rescaled, rule({c: share * weight for c, share in MIX.items()}))
    assert (found.status, found.choice) == (expected.status, expected.choice)
    for one, other in zip(found.effects, expected.effects, strict=True):
        assert one.ratio == pytest.approx(other.ratio, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(runs)
def test_a_decision_survives_the_way_through_json(session, rule, run):
    decision = decide(session(**run), rule(MIX, limits=params.Limits(max_regress={"8": 0.2})))
    assert from_json(decision.to_json()) == decision


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"status": "maybe"}'])
def test_a_file_that_is_no_decision_is_bad_input(text):
    with pytest.raises(BadInput, match="is no decision"):
        from_json(text)


def test_a_look_widens_the_interval_and_says_so(rule, session):
    cells = session({"lean": {1: 1.06}}, 3, 0.006, 3)
    plain = decide(cells, rule({1: 1.0}))
    looked = decide(cells, rule({1: 1.0}, looks=[3, 5, 8]))
    (narrow,), (wide,) = plain.effects, looked.effects
    assert wide.ratio == narrow.ratio
    assert wide.low < narrow.low and wide.high > narrow.high
    (said,) = [note for note in looked.notes if "looks were declared" in note]
    assert "at 3, 5, 8 blocks, this one is at 3" in said and "98.12 %" in said
    assert not any("looks" in note for note in plain.notes)
