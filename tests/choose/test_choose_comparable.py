"""Figures of unequal work, or of requests that waited, are not chosen from."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import params
from runbook.cells import Cell, from_csv
from runbook.choose import comparable, decide, verdict
from runbook.choose.figure_guards import find_notes, request_caps


def cell(config, concurrency=8, figure=100.0, life=1, **more):
    return Cell(config, life, life, concurrency, output_tok_s=figure, **more)


def held(*cells, caps=None, timed=()):
    return comparable.hold_against(cells, comparable.Terms("baseline", caps or {}, timed))


def is_out(found, config):
    return {one.status for one in found.cells if one.config == config} == {"void"}


@pytest.mark.parametrize("others", [1, 60, 1050, 3000])
@pytest.mark.parametrize("swap", [False, True])
def test_requests_up_to_five_percent_apart_are_compared_and_told(others, swap):
    near, far = round(others * 1.05) if others > 60 else others, round(others * 1.06) + 1
    for more, out in ((near, False), (far, True)):
        one, two = (more, others) if swap else (others, more)
        found = held(cell("baseline", requests=one), cell("lean", requests=two))
        assert is_out(found, "lean") == out and not is_out(found, "baseline")
        assert bool(found.notes) == (not out and one != two)


@pytest.mark.parametrize("what", ["tokens_in", "tokens_out"])
@pytest.mark.parametrize(
    ("base", "own", "out", "told"),
    [
        (200.0, 201.0, False, False),
        (200.0, 212.0, False, True),
        (200.0, 220.0, False, True),
        (200.0, 221.0, True, False),
        (221.0, 200.0, True, False),
        (90.0, 700.0, True, False),
        (700.0, 90.0, True, False),
    ],
)
def test_tokens_up_to_ten_percent_apart_are_compared_and_told(what, base, own, out, told):
    found = held(cell("baseline", **{what: base}), cell("lean", **{what: own}))
    assert (is_out(found, "lean"), bool(found.notes)) == (out, told)


def test_one_concurrency_of_unequal_work_does_not_hide_another(rule):
    cells = [
        cell("baseline", 1, 50.0, requests=40),
        cell("lean", 1, 70.0, requests=40),
        cell("baseline", 8, requests=400),
        cell("lean", 8, 130.0, requests=220),
    ]
    found = held(*cells).cells
    assert [one.status for one in found] == ["ok", "ok", "ok", "void"]
    assert decide(found, rule({1: 1})).choice == "lean"
    both = decide(found, rule({1: 1, 8: 1}))
    assert both.choice is None and not verdict(both, rule({1: 1, 8: 1})).ok
    assert "completed 220 requests at C=8, baseline 400" in both.reason
    assert any("number of requests" in advice for advice in both.advice)


def test_another_configuration_may_still_be_chosen(rule):
    cells = [cell("baseline", requests=64), cell("a", figure=130.0, requests=64)]
    found = held(*cells, cell("b", figure=900.0, requests=64, errors=31)).cells
    decision = decide(found, rule({8: 1}))
    assert decision.choice == "a" and "not the same work" not in decision.reason
    assert decision.effect("b").excluded


def test_unknown_counts_are_not_compared_and_runs_bounded_by_time_may_differ():
    assert not is_out(held(cell("baseline", requests=64), cell("a")), "a")
    pair = cell("baseline", requests=64), cell("a", requests=90)
    assert is_out(held(*pair), "a")
    assert not is_out(held(*pair, timed={"a", "baseline"}), "a")


def test_one_life_that_lost_requests_is_out_of_its_block_alone():
    cells = [
        cell(config, life=life, requests=64, errors=30 if (config, life) == ("a", 2) else 0)
        for config in ("baseline", "a")
        for life in (1, 2, 3)
    ]
    assert [one.life for one in held(*cells).cells if one.status == "void"] == [2]


# --- requests that wait


@pytest.mark.parametrize(
    ("args", "cap"),
    [
        (["--max-running-requests", "48"], 48),
        (["--max-running-requests=16", "--max_running_requests", "24"], 24),
        (["--max-num-seqs", "64"], 64),
        (["--parallel", "4"], 4),
        (["--max-running-requests", "8", "--dp-size", "2"], None),
        (["--max-running-requests"], None),
        ([], None),
    ],
)
def test_declared_caps(args, cap):
    assert request_caps({"a": args}) == ({} if cap is None else {"a": cap})


@pytest.mark.parametrize("how", ["cap", "running", "of the baseline"])
def test_a_decision_that_hangs_on_a_queue_is_undecided(rule, how):
    base, own = cell("baseline", 100, 700.0), cell("a", 100, 900.0)
    caps = {"a": 48} if how == "cap" else {"baseline": 64} if how == "of the baseline" else {}
    if how == "running":
        own = replace(own, running=61.0)
    cells = [cell("baseline", 8, 50.0), cell("a", 8, 60.0), base, own]
    found = held(*cells, caps=caps).cells
    decision = decide(found, rule({8: 1, 100: 1}))
    assert (decision.status, decision.choice) == ("undecided", None)
    assert "queue-limited" in decision.reason and "C=100" in decision.reason
    assert not verdict(decision, rule({8: 1, 100: 1})).ok
    assert decide(found, rule({8: 1})).choice == "a"


@pytest.mark.parametrize("how", ["unequal work", "queue"])
def test_a_limit_at_a_point_that_is_not_comparable_chooses_no_baseline(rule, how):
    """What cannot be compared is not slow: the limit does not take the candidate's place."""
    lost = 30 if how == "unequal work" else 0
    cells = [cell("baseline", requests=64), cell("a", requests=64, errors=lost)]
    found = held(*cells, caps={"a": 4} if how == "queue" else {}).cells
    terms = rule({8: 1}, limits=params.Limits(max_regress={"8": 0.1}, error_share=1.0))
    decision = decide(found, terms)
    assert decision.choice is None and not verdict(decision, terms).ok


def test_speculation_without_a_declared_cap_is_told(rule):
    cells = [cell("baseline", 100), cell("a", 100, 140.0)]
    args = {"a": ["--speculative-algorithm", "EAGLE3"], "baseline": []}
    told = find_notes(decide(cells, rule({100: 1})), cells, args)
    assert any("a: without --max-running-requests SGLang runs 48" in note for note in told)
    args["a"] += ["--max-running-requests=128"]
    assert not find_notes(decide(cells, rule({100: 1})), cells, args)


def test_a_cap_as_great_as_the_load_limits_nothing():
    cells = cell("baseline", 48), replace(cell("a", 48), running=47.2)
    assert not is_out(held(*cells, caps={"a": 48}), "a")


# --- what figures say against themselves


@pytest.mark.parametrize(
    ("length", "args", "said"),
    [
        (1.0, [], "the draft is not used: its gain cannot come from it"),
        (3.98, ["--speculative-num-steps", "3"], "3.98, of at most 4"),
        (3.98, [], "3.98, which is all where 3 are drafted"),
        (2.6, ["--speculative-num-steps", "3"], None),
        (3.1, [], None),
    ],
)
def test_acceptance_of_figures(rule, length, args, said):
    cells = [cell("baseline"), cell("a", figure=140.0, accept_length=length)]
    notes = find_notes(decide(cells, rule({8: 1})), cells, {"baseline": [], "a": args})
    assert [said in note for note in notes] == ([True] if said else [])


def test_what_is_declared_and_not_measured_and_the_reverse(rule):
    cells = [cell("baseline"), cell("a", figure=140.0)]
    notes = find_notes(decide(cells, rule({8: 1})), cells, {"baseline": [], "b": []})
    assert any(note.startswith("b: not measured") for note in notes)
    assert any(note.startswith("a: measured, and not among") for note in notes)


def test_drift_and_blocks_of_one_life_are_told(rule, session):
    cells = [
        replace(one, output_tok_s=one.output_tok_s * (1 - 0.02 * one.life))
        for one in session({"a": {8: 1.1}}, blocks=5, sd=0.002, seed=3)
    ]
    notes = find_notes(decide(cells, rule({8: 1})), cells, {})
    assert any("over the lives" in note and "−" in note for note in notes)
    shared = [replace(one, life=1) for one in cells]
    notes = find_notes(decide(shared, rule({8: 1})), shared, {})
    assert "a: 5 blocks of one server life count as one, by their mean" in notes


# --- said as it is


def test_failed_requests_of_an_unknown_number_are_not_all_of_them(rule):
    cells = from_csv("config,concurrency,output_tok_s,errors\nbaseline,8,90,0\na,8,95,185\n")
    excluded = decide(cells, rule({8: 1})).effect("a").excluded
    assert "185 requests failed, and the figures do not say of how many" in excluded
    assert "185 of 185" not in excluded
    cells = [cell("baseline", requests=40), cell("a", requests=40, errors=41)]
    assert "41 failed requests are told of 40" in decide(cells, rule({8: 1})).effect("a").excluded


@pytest.mark.parametrize(
    ("status", "figure", "note", "said"),
    [
        ("not_run", None, "", "C=8: not measured"),
        ("ok", None, "", "C=8: not measured"),
        ("server_died", None, "", "C=8: the server died"),
        ("void", 120.0, "two clocks", "C=8: two clocks"),
    ],
)
def test_a_figure_that_is_lacking_is_named_as_what_it_is(rule, status, figure, note, said):
    cells = [cell("baseline"), replace(cell("a", figure=figure), status=status, note=note)]
    assert said in decide(cells, rule({8: 1})).reason
    assert "a: not choosable" in decide(cells, rule({8: 1})).reason
    alone = decide([cell("baseline")], rule({8: 1}), ["baseline", "a"])
    assert "C=8: not measured" in alone.reason


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from([30, 60, 62, 64, 90]), min_size=4, max_size=4),
    st.lists(st.floats(80, 140), min_size=4, max_size=4),
)
def test_the_order_of_cells_changes_nothing(seed, requests, figures):
    cells = [
        cell(config, concurrency, figures[at], requests=requests[at], tokens_out=figures[at])
        for at, (config, concurrency) in enumerate(
            (config, concurrency) for config in ("baseline", "a") for concurrency in (1, 8)
        )
    ]
    mixed = random.Random(seed).sample(cells, len(cells))
    mix = [params.MixShare(concurrency=1, share=0.5), params.MixShare(concurrency=8, share=0.5)]
    rule = params.Choose(mix=mix)
    one, two = (decide(held(*some).cells, rule) for some in (cells, mixed))
    assert (one.status, one.choice, one.effects) == (two.status, two.choice, two.effects)
