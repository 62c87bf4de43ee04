"""``runbook bench``: a server that is up is measured, and what cannot be is refused."""

import contextlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paced_servers import started

from runbook.cells import from_csv
from runbook.errors import BadInput, NotHere
from runbook.load import Record
from runbook.verbs.benching import (
    Asked,
    accept_length,
    base_url,
    bench,
    cached_remark,
    find_model,
    parse_concurrencies,
    parse_rates,
)
from runbook.verbs.choosing import choose_from_files

RUNBOOK = Path(sys.executable).with_name("runbook")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with started("--step-ms", "2") as url:
        yield url


def test_open_loops_by_rate_and_by_log_are_measured_and_not_chosen_from(url, tmp_path):
    log = tmp_path / "log.jsonl"
    begins = (10.0, 10.02, 10.05, 10.3)
    log.write_text("\n".join(json.dumps({"sent_s": at}) for at in begins))
    out = tmp_path / "out"
    said: list[str] = []
    bench(
        Asked(url, (1,), 4, 8, name="baseline", model="m", client_lag_ms=1000.0), out, said.append
    )
    poisson = bench(
        Asked(url, (), 20, 8, name="baseline", model="m", rates_s=(40.0,), client_lag_ms=1000.0),
        out,
        said.append,
    )
    recorded = bench(
        Asked(url, (), 9, 8, name="baseline", model="m", arrivals=log, client_lag_ms=1000.0),
        out,
        said.append,
    )
    assert poisson.verdict().ok and recorded.verdict().ok
    (by_rate,), (by_log,) = poisson.cells, recorded.cells
    assert (by_rate.rate_s, by_rate.requests, by_log.requests) == (40.0, 20, 4)
    assert by_log.rate_s == pytest.approx(4 / 0.3) and by_rate.ttft_p50_ms
    assert "rate /s 40" in said[1] and "rate" not in said[0]
    decision, _ = choose_from_files([out], None)
    assert [weight.point.concurrency for weight in decision.weights] == [1]
    assert "left out: baseline at 40/s: an open loop" in decision.notes


@pytest.mark.parametrize("text", ["", "fast", "0", "1,-2", "1e9"])
def test_rates_that_are_none(text):
    with pytest.raises(BadInput, match="--rate"):
        parse_rates(text)
    assert parse_rates("0.5, 2") == (0.5, 2.0)


@pytest.fixture
def models() -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives the answers in a list, in turn."""
    answers: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers.pop(0))

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()


def test_a_server_is_measured_and_the_next_one_beside_it(url, tmp_path):
    said: list[str] = []
    for name, tokens in (("baseline", 8), ("shorter", 4)):
        asked = Asked(f"{url}/v1/", (1, 3), 4, tokens, name=name, model="m", client_lag_ms=1000.0)
        measured = bench(asked, tmp_path, said.append)
        assert measured.verdict().ok, measured.verdict()
        assert [cell.requests for cell in measured.cells] == [4, 4]
    assert len(said) == 4 and "tok/s" in said[0]
    cells = from_csv((tmp_path / "cells.csv").read_text())
    assert [(cell.config, cell.concurrency, cell.life) for cell in cells] == [
        ("baseline", 1, 1),
        ("baseline", 3, 1),
        ("shorter", 1, 1),
        ("shorter", 3, 1),
    ]
    assert all(cell.usable and cell.ttft_p50_ms and cell.tpot_p50_ms for cell in cells)
    lines = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert Counter(line["config"] for line in lines) == {"baseline": 8, "shorter": 8}
    assert {line["tokens_out"] for line in lines} == {8, 4}
    asked_for = json.loads((tmp_path / "workload.json").read_text())
    assert asked_for["prompts"] >= 60
    decision, _ = choose_from_files([tmp_path], None)
    assert decision.choice is None and "baseline 8.0, shorter 4.0" in decision.reason


def test_a_life_that_is_measured_again_is_asked_other_prompts(url, tmp_path):
    """Or the prefix cache of the same server would answer."""
    prompts = tmp_path / "own.jsonl"
    own = [{"role": "user", "content": "x"}]
    lines = [{"id": f"p{n}", "kind": "edit", "messages": own} for n in range(8)]
    prompts.write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "out"
    for life in (1, 1, 2):
        asked = Asked(url, (1,), 4, 8, name="baseline", model="m", life=life, prompts=str(prompts))
        bench(asked, out, lambda text: None)
    rows = [json.loads(line) for line in (out / "requests.jsonl").read_text().splitlines()]
    sent = [row["prompt_id"] for row in rows]
    assert len(set(sent[:8])) == 8  # the fifth was the second one's warm-up
    assert sum(name.endswith("~2") for name in sent[:8]) == 2
    assert sent[8:] == sent[:4]  # a new life is asked what the first one was


def test_what_the_prefix_cache_answered_is_told():
    def answer(cached, asked=1000):
        return Record("p", 0.0, tokens_in=asked, tokens_cached=cached)

    assert cached_remark([answer(970), answer(970)]).startswith("97% of prompt tokens")
    assert cached_remark([answer(32), answer(None)]) == cached_remark([answer(None)]) == ""
    # Left out where it is 0: one of 16 is 6 %, three are 18 %.
    assert cached_remark([answer(970), *[answer(None)] * 15]) == ""
    assert cached_remark([*[answer(970)] * 3, *[answer(None)] * 13]).startswith("18% of")


def test_acceptance_is_known_where_every_answer_tells_its_steps():
    def answer(tokens, steps):
        return Record("p", 0.0, tokens_out=tokens, verify_steps=steps)

    assert accept_length([answer(64, 16), answer(64, 48)]) == 2.0
    assert accept_length([answer(64, 16), answer(64, None)]) is None
    assert accept_length([]) is None


def test_the_verb_prints_json_and_ends_with_its_verdict(url):
    words = [
        "bench",
        url,
        "--model",
        "m",
        "-c",
        "2",
        "--requests",
        "4",
        "--output-tokens",
        "4",
        "--client-lag-ms",
        "1000",
    ]
    ended = subprocess.run([RUNBOOK, *words, "--json"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    shown = json.loads(ended.stdout)
    assert [cell["concurrency"] for cell in shown["cells"]] == [2]
    (cell,) = shown["cells"]
    assert cell["ttft_p50_ms"] < cell["e2e_p50_ms"] <= cell["e2e_p99_ms"]
    assert 0 < cell["chunk_gap_max_ms"] < cell["e2e_p99_ms"]
    assert shown["verdict"]["ok"] is True and "all usable" in shown["verdict"]["text"]
    assert "VERDICT ok" in ended.stderr


def test_a_server_that_fails_gives_a_negative_verdict(tmp_path):
    with started("--shape", "abort", "--shape-every", "1") as address:
        measured = bench(Asked(address, (1,), 2, 4, model="m"), tmp_path, print)
    assert not measured.verdict().ok
    assert measured.cells[0].status == "void" and measured.cells[0].errors == 2


@pytest.mark.parametrize(
    ("shape", "every", "said"),
    [
        ("bang", 1, "answers without sense: 16 of 16 (a loop of '!'"),
        ("bang-thought", 1, "answers without sense: 16 of 16 (a loop of '!'"),
        ("mute", 1, "answers without sense: 16 of 16 (no text"),
        ("mute", 2, "answers without sense: 8 of 16 (no text"),
        ("blank", 4, "answers without sense: 4 of 16 (no text"),
        ("usage-twice-asked", 9, "usage counts 16 output tokens, 8 were asked for"),
        ("usage-beyond-asked", 9, "usage that cannot be"),
        ("status-503-empty", 9, "failed (HTTP 503), first: an empty body"),
    ],
)
def test_a_server_whose_answers_make_no_sense_is_not_usable(shape, every, said):
    said_lines: list[str] = []
    with started("--step-ms", "2", "--shape", shape, "--shape-every", str(every)) as address:
        asked = Asked(address, (1,), None, 8, model="m", client_lag_ms=1000.0)
        measured = bench(asked, None, said_lines.append)
    (cell,) = measured.cells
    assert cell.status == "void" and said in cell.note and said in said_lines[0]
    assert not measured.verdict().ok and measured.as_json()["verdict"]["ok"] is False
    assert "usage" not in shape or cell.output_tok_s is None


def test_a_warm_up_that_fails_is_told():
    """The 17th request is the last of the cell, the first its warm-up."""
    asked = Asked("", (1,), None, 8, model="m", client_lag_ms=1000.0)
    with started("--step-ms", "2", "--shape", "status-503-empty", "--shape-every", "17") as address:
        (cell,) = bench(replace(asked, url=address), None, print).cells
    assert "of the warm-up" not in cell.note and "1 failed (HTTP 503)" in cell.note
    with started("--step-ms", "2", "--shape", "status-503-empty", "--shape-every", "1") as address:
        (cell,) = bench(replace(asked, url=address), None, print).cells
    assert "1 of the warm-up failed (HTTP 503), first: an empty body" in cell.note


@pytest.mark.parametrize(
    ("concurrency", "requests", "sent", "usable"),
    [(1, 1, 1, True), (1, None, 16, True), (2, 3, 3, True), (9, None, 18, True), (4, 3, 3, False)],
)
def test_as_many_requests_are_sent_as_asked_for(url, concurrency, requests, sent, usable):
    asked = Asked(url, (concurrency,), requests, 4, model="m", client_lag_ms=1000.0)
    (cell,) = bench(asked, None, lambda text: None).cells
    assert (cell.requests, cell.usable) == (sent, usable), cell.note
    assert usable or "found 3 requests, wanted 4 or more, one a stream" in cell.note


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            [f"model-{n}" for n in range(200_000)],
            "names 'model-0', 'model-1', 'model-2' and 199997 more",
        ),
        (["a", "b", "c"], "names 'a', 'b', 'c'"),
        (["x" * 5000, "y"], "names '" + "x" * 100 + "', 'y'"),
    ],
)
def test_of_many_models_a_few_are_named_and_counted(models, names, said):
    url, answers = models
    answers.append(json.dumps({"data": [{"id": name} for name in names]}).encode())
    with pytest.raises(BadInput) as refused:
        find_model(url, None)
    assert said in str(refused.value) and len(str(refused.value)) < 500


def test_the_only_model_is_found_and_several_are_not_guessed_between(models):
    url, answers = models
    answers += [b'{"data": [{"id": "one"}]}', b'{"data": [{"id": "a"}, {"id": "b"}]}', b"[]", b"{"]
    assert find_model(url, None) == "one"
    with pytest.raises(BadInput, match="names 'a', 'b'"):
        find_model(url, None)
    with pytest.raises(BadInput, match="names no model"):
        find_model(url, None)
    with pytest.raises(NotHere):
        find_model(url, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "is no URL"),
        (["ftp://host"], "is no URL"),
        (["http://host:99999"], "is no URL"),
        (["http://me:secret@host"], "--api-key-file"),
        (["http://127.0.0.1:1"], "does not answer"),
        (["http://127.0.0.1:1", "-c", "0"], "whole numbers"),
        (["http://127.0.0.1:1", "-c", "1,1"], "twice"),
        (["http://127.0.0.1:1", "--prompts", "absent.jsonl"], "No such file"),
        (["http://127.0.0.1:1", "--model", "m", "--out", "/proc/nowhere"], "cannot be written"),
        (["http://127.0.0.1:1", "--api-key-file", "absent"], "cannot be used"),
        (["http://127.0.0.1:1", "--requests", "0"], "x>=1"),
    ],
)
def test_what_cannot_be_measured_is_bad_input(words, said):
    ended = subprocess.run([RUNBOOK, "bench", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr and "secret" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("https://h/v1", "https://h"),
        ("http://h:1/v1/chat/completions", "http://h:1"),
        ("http://h/proxy/v1/", "http://h/proxy"),
        (" http://[::1]:8/v1", "http://[::1]:8"),
    ],
)
def test_the_base_of_a_url(text, base):
    assert base_url(text) == base


@given(st.text())
def test_any_text_is_a_url_and_concurrencies_or_bad_input(text):
    for parse in (base_url, parse_concurrencies):
        with contextlib.suppress(BadInput):
            assert parse(text)
