"""The unit of times in a log: told apart, or asked for, never guessed in silence."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.errors import BadInput
from runbook.traffic import Log, derive_mix, parse_units, read_log

EPOCH_S = 1_764_000_000
IN = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def lines(*rows):
    return "\n".join(json.dumps(row) for row in rows)


def spans(log):
    return [round(one.end_s - one.begin_s, 6) for one in log.served()]


@pytest.mark.parametrize("unit", list(IN))
@pytest.mark.parametrize("name", ["timestamp", "start", "created", "startTime"])
def test_times_since_1970_show_their_unit(unit, name):
    rows = [{name: (EPOCH_S + n) * IN[unit], "duration_s": 4.5} for n in range(5)]
    log = Log(lines(*rows), "log")
    assert log.units[name.lower()] == unit
    assert spans(log) == [4.5] * 5
    assert [one.begin_s for one in log.served()] == pytest.approx([EPOCH_S + n for n in range(5)])


@pytest.mark.parametrize(
    ("took", "unit"), [(4.5, "s"), (0.7, "s"), (18, "s"), (5400, "ms"), (45_000, "ms")]
)
def test_lengths_that_make_sense_in_one_unit_are_read_in_it(took, unit):
    log = Log(lines(*[{"start": EPOCH_S, "latency": took}] * 3), "log")
    assert log.units["latency"] == unit


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"start": EPOCH_S, "latency": 300}, "latency"),
        ({"start": EPOCH_S, "duration": 75}, "duration"),
        ({"start": EPOCH_S, "e2e_latency": 3_000_000}, "e2e_latency"),
        ({"timestamp": 27_482, "duration_s": 3}, "timestamp"),
        ({"start": 0.5, "end": 4.5}, "start"),
        ({"sent_s": EPOCH_S * 1000, "duration_s": 3}, "sent_s"),
        ({"start_ms": EPOCH_S, "end_ms": EPOCH_S}, "start_ms"),
        ({"sent_s": 1e12, "end_s": 1e12}, "sent_s"),
    ],
)
def test_what_cannot_be_told_is_asked_for_and_can_be_declared(row, field):
    with pytest.raises(BadInput, match=f"--traffic-unit {field}=") as caught:
        read_log(lines(row, row), "log")
    assert str(caught.value).startswith(f"log: {field} is ")
    declared = {name: "ms" for name in row if not name.startswith("duration_s")}
    assert read_log(lines(row, row), "log", declared)


def test_two_units_under_one_name_are_refused():
    rows = [{"start": EPOCH_S, "duration_s": 1}, {"start": EPOCH_S * 1000, "duration_s": 1}]
    with pytest.raises(BadInput, match="of several units or clocks"):
        read_log(lines(*rows), "log")


def test_clocks_that_count_from_elsewhere_are_read_by_their_name():
    log = Log(lines({"start_ms": 0, "end_ms": 2500}, {"start_ms": 4e8, "end_ms": 4e8 + 500}), "log")
    assert spans(log) == [2.5, 0.5]
    nanoseconds = 5 * 10**14  # of a machine that is up for six days
    rows = [{"request_start_ns": nanoseconds, "request_end_ns": nanoseconds + 10**9}]
    assert spans(Log(lines(*rows), "log")) == [1.0]


def test_csv_and_iso_and_begins_alone():
    text = "TIMESTAMP,ContextTokens\n2026-05-10 00:00:00.25+00:00,90\n2026-05-10 00:00:02,91\n"
    assert Log(text, "log", ends=False).begins_s()[1] == pytest.approx(1778371202.0)
    with pytest.raises(BadInput, match="log: line 2: a begin and no end"):
        read_log(text, "log")
    text = f"start,end,prompt_tokens\n{EPOCH_S}000,{EPOCH_S}900,77\n"
    (one,) = read_log(text, "log")
    assert one.end_s - one.begin_s == pytest.approx(0.9) and one.tokens_in == 77


@pytest.mark.parametrize("words", [["ms"], ["start=h"], ["=ms"], ["start"]])
def test_a_declared_unit_is_checked(words):
    with pytest.raises(BadInput, match="--traffic-unit"):
        parse_units(words)


def test_a_unit_of_a_field_that_is_not_there_is_refused():
    assert parse_units(["a=ms", "b=s"]) == {"a": "ms", "b": "s"}
    with pytest.raises(BadInput, match="no time is called colour"):
        read_log(lines({"start": EPOCH_S, "duration_s": 1}), "log", {"colour": "ms"})


REQUESTS = st.lists(
    st.tuples(st.integers(0, 500_000), st.integers(400, 90_000)), min_size=1, max_size=30
)


@settings(deadline=None)
@given(REQUESTS, st.sampled_from(list(IN)), st.sampled_from(["duration_s", "duration_ms", "end"]))
def test_the_unit_of_the_times_leaves_the_mix(requests, unit, ended):
    def mix(unit, ended):
        rows = []
        for begin_ms, took_ms in requests:
            start = EPOCH_S * 10**9 + begin_ms * 10**6
            end = {
                "duration_s": took_ms / 1000,
                "duration_ms": took_ms,
                "end": (start + took_ms * 10**6) / 10**9 * IN[unit],
            }
            rows.append({"start": start / 10**9 * IN[unit], ended: end[ended]})
        served = read_log(lines(*rows), "log")
        found = derive_mix(served, [(1, None), (4, None), (16, None)], "log").mix
        return {one.concurrency: one.share for one in found}

    want = mix("s", "duration_s")
    found = mix(unit, ended)
    assert all(found.get(at, 0) == pytest.approx(want.get(at, 0), abs=1e-3) for at in (1, 4, 16))
