"""The traffic mix of a production log."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.errors import BadInput
from runbook.traffic import Served, derive_mix, read_log
from runbook.verbs.choosing import choose_from_files

CASES = Path(__file__).parents[1] / "cases" / "foreign"


def shares(served, points):
    return {
        (one.concurrency, one.context_tokens): one.share
        for one in derive_mix(served, points, "log").mix
    }


def test_time_is_weighed_by_what_is_in_flight_and_idle_time_counts_nowhere():
    served = [Served(0, 10), Served(0, 4), Served(100, 102)]
    found = derive_mix(served, [(1, None), (2, None), (30, None)], "log")
    assert {one.concurrency: one.share for one in found.mix} == pytest.approx(
        {1: 8 / 12, 2: 4 / 12}
    )
    assert "at work 11.8 % of" in found.sentence and "2 at most" in found.sentence


def test_loads_go_to_the_nearest_measured_one_by_ratio():
    served = [Served(0, 1)] * 6 + [Served(2, 3)] * 200
    found = derive_mix(served, [(1, None), (30, None), (100, None)], "log")
    assert {one.concurrency: one.share for one in found.mix} == pytest.approx({30: 0.5, 100: 0.5})
    assert "50 % of the time lay beyond C=100" in found.sentence


def test_contexts_are_weighed_by_the_requests_in_flight():
    points = [(c, context) for c in (1, 2) for context in (1000, 64000)]
    served = [Served(0, 2, 900), Served(0, 1, 70000)]
    assert shares(served, points) == pytest.approx(
        {(1, 1000): 0.5, (2, 1000): 0.25, (2, 64000): 0.25}
    )
    with pytest.raises(BadInput, match="without its input tokens"):
        derive_mix([Served(0, 1)], points, "log")


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=12),
    st.sets(st.integers(1, 16), min_size=1, max_size=4),
)
def test_shares_are_those_of_counting_moment_by_moment(spans, concurrencies):
    served = [Served(begin, begin + length) for begin, length in spans]
    loads = [sum(one.begin_s <= moment < one.end_s for one in served) for moment in range(61)]
    found = derive_mix(served, [(one, None) for one in concurrencies], "log").mix
    busy = sum(load > 0 for load in loads)
    if len(concurrencies) == 1:
        assert [one.share for one in found] == pytest.approx([1.0])
    exact = derive_mix(served, [(one, None) for one in range(1, 13)], "log").mix
    assert {one.concurrency: one.share for one in exact} == pytest.approx(
        {load: loads.count(load) / busy for load in set(loads) - {0}}
    )


@pytest.mark.parametrize(
    "line",
    [
        {"sent_s": 5.0, "end_s": 7.0, "tokens_in": 9},
        {"start_time": "2026-11-30T10:00:05+00:00", "duration_s": 2, "prompt_tokens": 9},
        {"created": 1790000005, "latency_ms": 2000.0, "usage": {"prompt_tokens": 9}},
        {
            "metadata": {"request_start_ns": 5 * 10**9, "request_end_ns": 7 * 10**9},
            "input_tokens": 9,
        },
    ],
)
def test_forms_of_a_line(line):
    (served,) = read_log(json.dumps(line), "log")
    assert served.end_s - served.begin_s == pytest.approx(2) and served.tokens_in == 9


def test_requests_that_were_never_sent_or_never_ended_are_left_out():
    lines = [{"sent_s": None, "end_s": 2}, {"sent_s": 1, "end_s": None}, {"sent_s": 1, "end_s": 3}]
    assert read_log("\n".join(map(json.dumps, lines)), "log") == [Served(1, 3)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "log: line 2: no JSON"),
        ("[]", "log: line 2: list"),
        ("{}", "log: line 2: no times"),
        ('{"sent_s": 1}', "log: line 2: a begin and no end"),
        ('{"sent_s": 3, "end_s": 1}', "log: line 2: it ends 2 s before it begins"),
        ('{"sent_s": "soon", "end_s": 1}', "log: line 2: sent_s is 'soon'"),
        ('{"sent_s": true, "end_s": 1}', "log: line 2: sent_s is True"),
        ('{"sent_s": [1], "end_s": 1}', "log: line 2: sent_s is"),
        ('{"sent_s": 1' + "0" * 400 + ', "end_s": 1}', "log: line 2: sent_s is"),
        ('{"sent_s": NaN, "end_s": 1}', "log: line 2: sent_s is"),
    ],
)
def test_a_damaged_line_is_refused_with_its_place(line, said):
    with pytest.raises(BadInput) as caught:
        read_log('{"sent_s": 1, "end_s": 2}\n' + line, "log")
    assert str(caught.value).startswith(said)


def test_logs_without_time_or_requests_are_refused():
    with pytest.raises(BadInput, match="no request that ended"):
        read_log("\n", "log")
    with pytest.raises(BadInput, match="took no time"):
        derive_mix([Served(1, 1)], [(1, None)], "log")


@given(st.text())
def test_any_text_is_requests_or_bad_input(text):
    try:
        assert read_log(text, "log")
    except BadInput as error:
        assert str(error).startswith("log")


def test_a_log_takes_the_place_of_the_declared_mix(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(
        "\n".join(json.dumps({"sent_s": n / 3, "end_s": n / 3 + 10}) for n in range(900))
    )
    decision, _ = choose_from_files([CASES / "sglang"], None, traffic_log=log)
    assert decision.choice == "topk1"
    weights = {weight.point.concurrency: weight.share for weight in decision.weights}
    assert weights[30] > 0.9
    assert any(note.startswith(f"weights from {log}") for note in decision.notes)
