from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_in import params_of

from runbook import params
from runbook.benchmark import Measurements, estimate, longest_s, verdict
from runbook.benchmark.figures import (
    Evidence,
    cached_of,
    completed,
    failures_said,
    judge_cell,
    quantile,
    say,
)
from runbook.benchmark.measurements import (
    compare_settings,
    compare_totals,
    find_cold,
    find_drift,
    key_of,
    load_measurements,
)
from runbook.benchmark.request_log import PackedLog, RequestLog, read_answers
from runbook.benchmark.throughput import tokens_per_second
from runbook.cells import Cell
from runbook.checks import Check
from runbook.engines.base import Counters
from runbook.errors import BadInput, NotHere
from runbook.load import LoadResult, Record
from runbook.load.way import Way

CELL = Cell("baseline", 1, 1, 2)


def record(start: float = 0.0, tokens: int | None = 11, **fields) -> Record:
    """11 tokens: the first 0.5 s after the start, the last 1 s later."""
    whole = Record("p", start, start, start + 0.4, start + 0.5, start + 1.5, start + 2.0, 7, tokens)
    return replace(whole, **{"text": "an answer"} | fields)


def load(*records: Record, **fields) -> LoadResult:
    return replace(LoadResult(records, 0.0, 10.0, 0.1, 1.0, 2), **fields)


def test_figures_of_a_cell() -> None:
    records = record(chunks=6), record(2.0, chunks=6)
    cell = judge_cell(CELL, load(*records), Evidence(accept_length=1.5))
    assert cell.usable and cell.note == ""
    assert cell.output_tok_s == pytest.approx(22 / 4.0)
    assert cell.ttft_p50_ms == pytest.approx(500) and cell.tpot_p50_ms == pytest.approx(100)
    assert cell.chunk_gap_p50_ms == pytest.approx(200)
    assert (cell.requests, cell.errors, cell.accept_length) == (2, 0, 1.5)
    assert (cell.e2e_p50_ms, cell.e2e_p99_ms, cell.chunk_gap_max_ms) == (2000, 2000, None)
    slower = [*records, record(4.0, end_s=9.0, longest_gap_s=3.5), record(longest_gap_s=0.25)]
    cell = judge_cell(CELL, load(*slower), Evidence())
    assert cell.e2e_p50_ms == pytest.approx(2000) and cell.e2e_p99_ms == pytest.approx(4910)
    assert cell.chunk_gap_max_ms == pytest.approx(3500)


def test_tokens_per_second_is_of_usage_and_of_wall_clock() -> None:
    failed = record(2.0, None, error_kind="cut", error="cut")
    unsent = Record("p", 0.0, error_kind="connect", error="refused")
    assert tokens_per_second([record(), failed]) == pytest.approx(11 / 4.0)
    assert tokens_per_second([record(), record(2.0, None)]) is None
    assert tokens_per_second([failed]) is None
    assert tokens_per_second([unsent]) is None
    assert tokens_per_second([]) is None


@pytest.mark.parametrize(
    ("result", "evidence", "said"),
    [
        (load(record(), record(tokens=None)), Evidence(), "1 of 2 answers came without usage"),
        (load(), Evidence(), "no request was answered"),
        (load(record(text="ab" * 40), record()), Evidence(), "answers without sense: 1 of 2"),
        (load(record(text=" "), record()), Evidence(), "answers without sense: 1 of 2 (no text"),
        (
            load(record(tokens=None, doubt="usage counts 9 output tokens, 4 were asked for")),
            Evidence(),
            "usage that cannot be, 1 of 1 answers: usage counts 9 output tokens",
        ),
        (
            load(record(), record(start=3.0)),
            Evidence(steady=True),
            "no time with all streams at work: throughput is unknown",
        ),
        (load(record(kind="random"), record()), Evidence(), "random tokens: they may be measured"),
        (
            load(record(), record(error_kind="abort", error="e")),
            Evidence(error_share=0.4),
            "1 of 2 failed, at most 40.0% may",
        ),
        (load(record()), Evidence(max_concurrency=1), "queue-limited"),
        (load(record(), client_share=0.6), Evidence(), "the client used 60% of a core"),
        (
            load(record(chunks=11), loop_lag_ms=20.1),
            Evidence(),
            "its event loop by 20.1 ms at the 99th percentile, 100.0 ms from chunk to chunk",
        ),
        (
            load(record(), record(), max_in_flight=1),
            Evidence(),
            "only 1 of 2 requests were in flight at once",
        ),
        (
            load(record()),
            Evidence(checks=(Check("draft used", "fail", "1.00", "more"),)),
            "check draft used failed: found 1.00, wanted more",
        ),
    ],
)
def test_what_voids_a_cell(result: LoadResult, evidence: Evidence, said: str) -> None:
    cell = judge_cell(CELL, result, evidence)
    assert cell.status == "void" and not cell.usable and said in cell.note


def test_a_fifth_of_the_time_between_chunks_or_5_ms_are_let_pass():
    assert judge_cell(CELL, load(record(chunks=11), loop_lag_ms=20.0), Evidence()).note == ""
    quick = load(record(chunks=501), loop_lag_ms=5.0)
    assert judge_cell(CELL, quick, Evidence()).usable
    assert not judge_cell(CELL, replace(quick, loop_lag_ms=5.1), Evidence()).usable


@pytest.mark.parametrize(("failed", "status"), [(5, "ok"), (6, "void")])
def test_more_than_half_a_percent_of_failures_voids(failed: int, status: str) -> None:
    assert params.Limits().error_share == 0.005
    broken = [record(error_kind="stream_error", error="KV cache is full")] * failed
    evidence = Evidence(error_share=params.Limits().error_share)
    cell = judge_cell(CELL, load(*[record()] * (1000 - failed), *broken), evidence)
    assert (cell.status, cell.errors) == (status, failed) and f"{failed} failed" in cell.note


@pytest.mark.parametrize(
    ("running", "said"), [(107.1, "(107/128): the server ran 107.1 at once"), (127.0, "")]
)
def test_fewer_than_the_cell_is_called_are_told_in_its_note(running: float, said: str) -> None:
    full = load(*[record()] * 128, max_in_flight=128)
    cell = judge_cell(replace(CELL, concurrency=128), full, Evidence(running=running))
    assert cell.usable and cell.note.startswith(said) and bool(said) == bool(cell.note)
    assert cell.running == running


def test_the_first_wave_is_in_no_latency_where_the_window_is_steady() -> None:
    """Two that began together had to wait for one another's prefill."""
    wave = [record(ttft) for ttft in (0.0, 0.0)]
    wave = [replace(one, first_token_s=1.4) for one in wave]
    later = [record(2.0), record(2.0)]
    steady = judge_cell(CELL, load(*wave, *later), Evidence(steady=True))
    assert (steady.ttft_p50_ms, steady.ttft_p99_ms) == (pytest.approx(500), pytest.approx(500))
    assert judge_cell(CELL, load(*wave, *later), Evidence()).ttft_p99_ms > 1300
    assert judge_cell(CELL, load(*wave), Evidence(steady=True)).ttft_p50_ms == pytest.approx(1400)


@pytest.mark.parametrize(("stall_s", "told"), [(24.0, True), (0.4, False)])
def test_a_kernel_that_compiles_within_the_cell_is_told(stall_s: float, told: bool) -> None:
    """Four of six requests of one stream come after a stall of the first."""
    slow = replace(record(), first_token_s=0.1, last_token_s=stall_s, end_s=stall_s)
    rest = [
        record(stall_s + 2 * n, last_token_s=stall_s + 2 * n + 1.9, first_token_s=stall_s + 2 * n)
        for n in range(5)
    ]
    alone = replace(CELL, concurrency=1)
    cell = judge_cell(alone, load(slow, *rest, max_in_flight=1), Evidence())
    assert ("warm up longer" in cell.note) == told and cell.usable


def test_a_client_that_is_a_little_late_blurs() -> None:
    cell = judge_cell(
        CELL,
        load(record(chunks=11), loop_lag_ms=30.0),
        Evidence(remarks=("and so",), client_lag_ms=30.0),
    )
    assert cell.usable and cell.note.startswith("latencies are blurred by the client")
    assert cell.note.endswith("; and so")
    assert (cell.loop_lag_ms, cell.max_in_flight, cell.client_share) == (30.0, 2, 0.0)


@pytest.mark.parametrize(
    ("way", "status", "said"),
    [
        (Way(5.0, 1.0), "ok", ""),
        (Way(15.0, 1.0), "ok", "in the figures: a round trip of 15.0 ms, a request takes 2000 ms"),
        (Way(50.0, 1.0), "void", "was the limit: a round trip of 50.0 ms, a request takes 2000 ms"),
        (Way(5.0, 20.0), "ok", ""),
        (Way(5.0, 40.0), "ok", "late by 40.0 ms, 100.0 ms from chunk to chunk"),
        (Way(5.0, 201.0), "void", "late by 201.0 ms, 100.0 ms from chunk to chunk"),
        (None, "void", "the way to the server's host is unknown"),
    ],
)
def test_the_way_to_another_host_is_told_and_voids_where_it_is_the_limit(way, status, said):
    whole = load(record(chunks=11), record(chunks=11))
    cell = judge_cell(CELL, whole, Evidence(is_far=True, way=way, client_lag_ms=200.0))
    assert cell.status == status and said in cell.note and bool(said) == bool(cell.note)
    assert cell.round_trip_ms == (way.round_trip_ms if way else None)


def test_a_first_token_that_waits_for_the_way_alone_is_void():
    quick = record(first_token_s=0.06, last_token_s=20.0, end_s=20.0, chunks=11)
    cell = judge_cell(CELL, load(quick, quick), Evidence(is_far=True, way=Way(40.0, 1.0)))
    assert "40.0 ms, the time to a first token takes 60 ms" in cell.note
    assert cell.status == "void"


def test_what_runs_down_is_cut_off() -> None:
    """Two streams, one of them through after 2 s: the last 2 s are of the other alone."""
    short, long = record(), record(last_token_s=4.0, end_s=4.0, tokens_out=36)
    assert tokens_per_second([short, long]) == pytest.approx(47 / 4.0)
    # Until 2 s: all 11, and of 36 tokens the first and 35 * 1.5 s / 3.5 s.
    assert tokens_per_second([short, long], 2) == pytest.approx((11 + 1 + 15) / 2.0)
    assert tokens_per_second([short, long], 3) is None
    burst = record(tokens_out=9, last_token_s=0.5)
    assert tokens_per_second([burst, burst], 2) == pytest.approx(18 / 2.0)
    first = record(tokens_out=11, tokens_first=6)
    assert tokens_per_second([first], 1) == pytest.approx(11 / 2.0)


def test_peak_is_no_less_than_mean_with_four_tokens_a_chunk() -> None:
    """Chunks are never counted as tokens: a window of the answer has its share of usage."""
    four = record(tokens_out=41, chunks=11, tokens_first=1)
    (mean, window) = (tokens_per_second([four]), tokens_per_second([four], 1))
    assert mean is not None and window is not None and window >= mean == pytest.approx(41 / 2)


@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 5)), min_size=1, max_size=12),
    st.integers(1, 5),
)
def test_a_window_never_holds_more_than_all(spans, streams: int) -> None:
    records = [record(sent_s=a, first_token_s=a, last_token_s=a + d, end_s=a + d) for a, d in spans]
    found = tokens_per_second(records, streams)
    most = len(records) * 11
    begin, end = min(a for a, _ in spans), max(a + d for a, d in spans)
    assert found is None or found >= 0
    whole = tokens_per_second(records)
    assert whole == pytest.approx(most / (end - begin))


def test_drift_is_told_where_chance_does_not_explain_it() -> None:
    def run(slope: float, scatter: float) -> list[Cell]:
        return [
            Cell(
                c,
                life,
                life,
                1,
                output_tok_s=100 * (1 + slope * life + scatter * (-1) ** (life // 3)),
            )
            for life in range(1, 13)
            for c in ("baseline", "other")
        ]

    (said,) = find_drift(run(-0.01, 0.001))
    assert said.startswith("drift: throughput changed by -11") and "p = " in said
    assert find_drift(run(0.0, 0.01)) == []
    assert find_drift(run(-0.01, 0.0)[:2]) == []


def test_a_cell_far_below_its_repeats_is_pointed_out() -> None:
    cells = [
        Cell("baseline", n, n, 1, output_tok_s=tok) for n, tok in enumerate((76.2, 110, 123), 1)
    ]
    (said,) = find_cold(cells)
    assert said.startswith("baseline, block 1, C=1: 76.2 tok/s, 35% below its repeats")
    assert find_cold(cells[1:]) == [] and find_cold(cells[:1]) == []


def test_what_only_marks_a_cell() -> None:
    checks = (Check("draft used", "warn", "length 1.00"), Check("fine", "pass", "x"))
    failed = record(error_kind="cut", error="the line was cut")
    cell = judge_cell(CELL, load(record(), failed), Evidence(error_share=0.5, checks=checks))
    assert cell.usable and cell.errors == 1
    assert cell.note == (
        "1 failed (cut), first: the line was cut; draft used: warn, found length 1.00"
    )


def test_a_dead_servers_cell_has_no_throughput_but_its_log() -> None:
    result = load(record(), ended_early="the server died")
    cell = judge_cell(CELL, result, Evidence(log_tail="CUDA error\nbye"))
    assert (cell.status, cell.output_tok_s) == ("server_died", None)
    assert cell.note == "the server died, 1 requests answered; CUDA error | bye"


def test_notes_are_one_bounded_line() -> None:
    assert say(["a\nb", "", "c"]) == "a | b; c"
    assert len(say(["x" * 5000])) == 1000
    assert say(["\x1b[31mred\x07", "a\r\nb\x00 ü"]) == "?[31mred?; a | b? ü"


@given(st.lists(st.floats(0, 1e6), max_size=50), st.integers(1, 99))
def test_quantiles_lie_between_the_values(values: list[float], percent: int) -> None:
    found = quantile([*values, None], percent)
    if not values:
        assert found is None
    else:
        assert found is not None
        assert min(values) * (1 - 1e-9) <= found <= max(values) * (1 + 1e-9)


def test_quantiles_of_a_known_list() -> None:
    assert quantile([float(n) for n in range(101)], 99) == 99
    assert quantile([1.0, 3.0], 50) == 2
    assert quantile([5.0], 99) == 5


# --- totals, verdict, cost


def measured(*statuses: str) -> tuple[Cell, ...]:
    return tuple(
        Cell("baseline", n, n, 1, output_tok_s=1.0, status=status, note=f"why {n}")  # type: ignore[arg-type]
        for n, status in enumerate(statuses, 1)
    )


@pytest.mark.parametrize(
    ("statuses", "ok", "said"),
    [
        (["ok", "ok"], True, "2 cells, 1 configuration, 2 blocks, all usable"),
        (["ok", "void"], True, "1 void"),
        (["void", "void"], False, "baseline, block 1, C=1: void (and 1 more): why 1"),
        (["ok", "server_died"], False, "server_died: why 2"),
        (["ok", "not_run"], False, "not_run"),
        ([], False, "nothing was measured"),
    ],
)
def test_verdicts(statuses: list[str], ok: bool, said: str) -> None:
    answer = verdict(Measurements(measured(*statuses), {}))
    assert answer.ok == ok and said in answer.text


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], ""),
        ([record()], ""),
        ([record(error_kind="timeout", error="late")], "1 failed (timeout), first: late"),
        (
            [record(error_kind="status", status=503, error="busy")] * 2,
            "2 failed (HTTP 503), first: busy",
        ),
        (
            [
                record(error_kind="status", status=429, error="slow down"),
                record(),
                record(error_kind="status", status=503, error="busy"),
                record(error_kind="status", status=429, error="slow down"),
                record(error_kind="cut", status=200, error="cut"),
            ],
            "4 failed (HTTP 429 x 2, HTTP 503 x 1, cut x 1), first: slow down",
        ),
    ],
)
def test_failures_are_told_with_their_statuses(records: list[Record], said: str) -> None:
    assert failures_said(records) == said
    assert judge_cell(CELL, load(*records), Evidence(error_share=1.0)).note.endswith(said)


@pytest.mark.parametrize(
    ("cached", "total"),
    [
        ([None, None], None),
        ([0, None], 0),
        ([970, *[None] * 15], 970),  # left out where it is 0
        ([970, 970], 1940),
        ([5000, 10], 1010),  # no more than the prompt has
    ],
)
def test_cached_tokens_are_of_every_request_where_one_tells(cached, total) -> None:
    told = [record(tokens_in=1000, tokens_cached=one) for one in cached]
    assert cached_of([*told, record(tokens_cached=9, error_kind="cut")]) == total


def test_a_configuration_that_tells_of_its_cache_anywhere_had_none_elsewhere() -> None:
    cells = [Cell(c, 1, b, 8, output_tok_s=1.0) for c in ("baseline", "other") for b in (1, 2)]
    totals = {key_of(cell): {"prompt tokens": 900, "cached prompt tokens": None} for cell in cells}
    assert compare_totals(cells, totals) == []
    totals[key_of(cells[3])]["cached prompt tokens"] = 0
    assert compare_totals(cells, totals) == []
    totals[key_of(cells[3])]["cached prompt tokens"] = 700
    said = "C=8: cached prompt tokens of a cell differ: baseline untold, other 0 to 700"
    assert compare_totals(cells, totals) == [said]
    totals[key_of(cells[0])]["cached prompt tokens"] = 700
    assert compare_totals(cells, totals) == []


def test_totals_are_compared_over_configurations_not_over_blocks() -> None:
    cells = [Cell(c, 1, b, 8, output_tok_s=1.0) for c in ("baseline", "other") for b in (1, 2)]
    counts = [(100, 64), (100, 60), (100, 60), (100, 64)]
    totals = {
        key_of(cell): {"prompt tokens": prompt, "output tokens": out}
        for cell, (prompt, out) in zip(cells, counts, strict=True)
    }
    assert compare_totals(cells, totals) == []
    totals[key_of(cells[3])]["output tokens"] = 63
    assert compare_totals(cells, totals) == [
        "C=8: output tokens of a cell differ: baseline 60 to 64, other 60 to 63"
    ]
    for cell in cells:
        totals[key_of(cell)]["cached prompt tokens"] = 0 if cell.config == "other" else 90
    assert "C=8: cached prompt tokens of a cell differ: baseline 90, other 0" in compare_totals(
        cells, totals
    )
    for cell in cells:
        del totals[key_of(cell)]["cached prompt tokens"]
    totals[key_of(cells[3])]["output tokens"] = totals[key_of(cells[2])]["output tokens"] = None
    assert compare_totals(cells, totals) == []


def test_no_measurements_and_damaged_ones(tmp_path: Path) -> None:
    with pytest.raises(NotHere, match=r"cells\.csv"):
        load_measurements(tmp_path)
    (tmp_path / "cells.csv").write_text("config,concurrency,output_tok_s\nbaseline,1,92.7\n")
    found = load_measurements(tmp_path)
    assert (found.cells[0].output_tok_s, found.launches, found.notes) == (92.7, {}, ())
    (tmp_path / "launches.json").write_text("{")
    with pytest.raises(BadInput, match=r"launches\.json"):
        load_measurements(tmp_path)


def test_cost_grows_with_lives_and_says_what_it_assumes() -> None:
    one = estimate(params_of(1, benchmark={"blocks": 1}))
    three = estimate(params_of(1, benchmark={"blocks": 3}))
    assert (one.lives, three.lives) == (1, 3)
    assert three.seconds == pytest.approx(3 * one.seconds) and 0 < one.loading_s < one.seconds
    assert "tok/s" in one.assumes
    assert (one.least_s, one.most_s) == (one.seconds, one.seconds)
    agree = {"blocks": 8, "warmup_agree": 0.05}
    unsure = params_of(1, benchmark=agree, choose={"looks": [3, 5, 8]})
    found = estimate(unsure)
    assert found.least_s == pytest.approx(3 / 8 * found.seconds) and found.most_s > found.seconds
    assert found.loading_s == pytest.approx(8 * one.loading_s)
    assert "starts 8 server lives and takes about" in found.sentence
    for part in ("go to loading the model", "where the first look decides", "do not agree"):
        assert part in found.sentence
    # C=1 and 2, 4 requests of 20 s at the most and one to learn lengths: ten warm-ups, not two.
    plain = params_of(1, benchmark={"blocks": 1, "requests": 4})
    ten = params_of(1, benchmark={"blocks": 1, "requests": 4, "warmup_agree": 0.05})
    assert longest_s(ten) - longest_s(plain) == pytest.approx(2 * 9 * 20)
    tiny = params.load(Path(__file__).parents[2] / "params" / "rehearsal-sglang.yaml")
    assert 300 < estimate(tiny).seconds < 600  # measured: 391


# --- requests.jsonl


text = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20)


@given(
    lines=st.lists(text, max_size=5),
    torn=text,
)
def test_a_torn_last_line_goes_and_no_other(tmp_path_factory, lines: list[str], torn: str) -> None:
    path = tmp_path_factory.mktemp("log") / "requests.jsonl"
    log = RequestLog(path)
    for line in lines:
        log.append({"text": line})
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole + torn.encode())
    log = RequestLog(path)
    assert path.read_bytes() == whole
    log.append({"text": "next"})
    log.close()
    assert path.read_bytes() == whole + b'{"text":"next"}\n'


def test_a_torn_line_longer_than_one_read_goes_too(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b'{"a":1}\n' + b"x" * 200_000)
    RequestLog(path).close()
    assert path.read_bytes() == b'{"a":1}\n'
    path.write_bytes(b"x" * 200_000)
    RequestLog(path).close()
    assert path.read_bytes() == b""


@given(lines=st.lists(text, min_size=1, max_size=6), data=st.data())
def test_packed_answers_are_read_up_to_where_a_killed_writer_came(
    tmp_path_factory, lines: list[str], data
) -> None:
    path = tmp_path_factory.mktemp("log") / "answers.jsonl.gz"
    ends = []
    for part in (lines[:2], lines[2:]):
        log = PackedLog(path)
        for line in part:
            log.append({"text": line})
            ends.append(path.stat().st_size)
        log.close()
    wanted = [{"text": line} for line in lines]
    assert list(read_answers(path)) == wanted
    assert [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()] == wanted
    cut = data.draw(st.integers(0, path.stat().st_size))
    path.write_bytes(path.read_bytes()[:cut])
    kept = list(read_answers(path))
    assert kept == wanted[: len(kept)] and len(kept) >= sum(end <= cut for end in ends)
    log = PackedLog(path)
    log.append({"text": "next"})
    assert list(read_answers(path)) == [*kept, {"text": "next"}]  # before it is closed
    log.close()
    assert len(gzip.decompress(path.read_bytes()).splitlines()) == len(kept) + 1


def test_what_servers_resolved_differently_beside_speculation_is_told() -> None:
    def launch(**settings: object) -> dict[str, object]:
        return {"info": {"settings": settings}}

    found = compare_settings(
        {
            "baseline": launch(mem_fraction_static=0.9, dtype="auto", topk=None),
            "eagle": launch(mem_fraction_static=0.85, dtype="auto", topk=4, graphs=32),
            "broken": {"info": None},
        },
        ("mem_fraction_static", "dtype", "graphs"),
    )
    (said,) = found
    assert said.endswith("mem_fraction_static: baseline 0.9, eagle 0.85")


def test_what_a_server_does_not_count_is_taken_from_its_requests_or_its_log() -> None:
    """Failed requests have no part in it; one that does not tell makes the sum unknown."""
    told = [record(verify_steps=4), record(tokens=6, verify_steps=2)]
    failed = record(error_kind="abort", error="e")
    of_requests = Counters(predicted=17, verify_steps=6, requests=2)
    assert completed(None, [*told, failed], 9.0) == of_requests
    assert completed(Counters(predicted=40, requests=3), told, 9.0) == of_requests
    counted = Counters(predicted=40, requests=3)
    silent = [*told, record()]
    assert completed(counted, silent, 2.5) == replace(counted, accept_length=2.5)
    assert completed(None, silent, None) == Counters(predicted=28, requests=3)
    assert completed(None, [], None) == Counters(requests=0)
