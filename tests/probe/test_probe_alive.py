"""When a late answer is a sign of death."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.probe.alive import STUCK, judge_late, totals_in
from runbook.probe.gate import LATE


def counters(decoded: str, life: str = "a") -> dict[str, str]:
    return {"life": life, "n_decode_total": decoded}


@pytest.mark.parametrize(
    ("before", "now", "strike", "code"),
    [
        (counters("5"), counters("5"), None, LATE),
        (counters("5"), counters("5"), counters("5"), STUCK),
        (None, counters("5"), counters("5"), STUCK),
        (counters("5"), counters("6"), counters("6"), 0),
        (counters("6"), counters("6"), counters("5"), LATE),
        (counters("0", "b"), counters("0", "b"), counters("0", "a"), LATE),
        (counters("5"), None, counters("5"), LATE),
        (None, None, None, LATE),
    ],
)
def test_only_two_strikes_without_any_work_between_them_are_proof(before, now, strike, code):
    assert judge_late(before, now, strike)[0] == code


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from("01")))
def test_whatever_was_counted_between_the_strikes_is_a_sign_of_life(strike):
    now = {**strike, "moved": "1"}
    assert judge_late(now, now, strike)[0] == LATE


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('x:t{rank="0",m="a b"} 3\nx:t{rank="1"} 4.5\n', {"x:t": 7.5}),
        ("# HELP x:t of it\n# TYPE x:t counter\nx:t 1e3 1700000000000\n", {"x:t": 1000.0}),
        ("x:t\nx:t one\n<html>\n\nx:t 1 2 3\nx:t 1-2\n", {}),
    ],
)
def test_counters_are_summed_over_their_labels(text, found):
    assert totals_in(text) == found


@given(st.text())
def test_no_text_is_too_strange(text):
    assert all(isinstance(value, float) for value in totals_in(text).values())
