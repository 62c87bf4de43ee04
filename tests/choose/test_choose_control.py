"""A/A: one launch under two names."""

from __future__ import annotations

import pytest

from runbook import params
from runbook.choose import decide, final_choice, find_controls, verdict, with_controls

MIX = {1: 70, 8: 30}
LAUNCHES = {"baseline": "a", "again": "a", "lean": "b", "lean-too": "b", "other": "c"}


def test_only_equal_launches_are_controls(session, rule):
    names = {name: {1: 1.2, 8: 1.2} for name in ("lean", "lean-too", "other")}
    cells = session(names | {"again": {1: 1.0, 8: 1.0}}, 5, 0.01, seed=2)
    controls = find_controls(decide(cells, rule(MIX)), LAUNCHES)
    assert {(one.first, one.second) for one in controls} == {
        ("again", "baseline"),
        ("lean", "lean-too"),
    }
    assert all(one.equal for one in controls)
    assert all(one.sentence.startswith("A/A control held") for one in controls)
    assert find_controls(decide(cells, rule(MIX)), {}) == ()


def test_a_difference_between_equal_launches_fails_the_control(session, rule):
    cells = session({"again": {1: 1.1, 8: 1.1}}, 5, 0.005)
    (control,) = find_controls(decide(cells, rule(MIX)), LAUNCHES)
    assert not control.equal
    assert "A/A control failed" in control.sentence and "by chance" in control.sentence


def test_nothing_is_installed_by_figures_that_fail_their_control(session, rule):
    """Equal launches 10 % apart, and one that truly gains: whatever sets the figures, it is not
    the configuration alone."""
    cells = session({"again": {1: 1.1, 8: 1.1}, "lean": {1: 1.3, 8: 1.3}}, 5, 0.005)
    decision = with_controls(decide(cells, rule(MIX)), LAUNCHES)
    assert decision.choice == "lean" and len(decision.failed_controls) == 1
    answer = verdict(decision, rule(MIX))
    assert not answer.ok and "A/A control failed" in answer.text
    assert final_choice(decision, rule(MIX)) is None
    override = params.Override(choose="lean", reason="seen twice", by="ops")
    assert final_choice(decision, rule(MIX, override=override)) == "lean"
    within = session({"again": {1: 1.01, 8: 1.01}, "lean": {1: 1.3, 8: 1.3}}, 5, 0.001)
    decision = with_controls(decide(within, rule(MIX)), LAUNCHES)
    assert decision.failed_controls == () and final_choice(decision, rule(MIX)) == "lean"
    assert any("A/A control failed" in note for note in decision.notes)


@pytest.mark.parametrize(("factor", "held"), [(1.01, True), (1.05, False)])
def test_without_an_interval_the_margin_decides(session, rule, factor, held):
    cells = session({"again": {1: factor, 8: factor}}, 1, 0.0)
    (control,) = find_controls(decide(cells, rule(MIX)), LAUNCHES)
    assert control.equal is held and "no interval" in control.sentence


def test_controls_of_noise_hold_about_nineteen_times_in_twenty(session, rule):
    same = {"again": {1: 1.0, 8: 1.0}}
    held = sum(
        find_controls(decide(session(same, 4, 0.03, seed), rule(MIX)), LAUNCHES)[0].equal
        for seed in range(200)
    )
    assert 0.9 * 200 <= held <= 0.99 * 200
