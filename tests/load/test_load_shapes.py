"""Every shape of a response, over a real socket, gives the record with the right value."""

from __future__ import annotations

import json
import urllib.request

import pytest
from paced_server import SHAPES

from runbook.load import Record, run_load

#: shape -> what the record must say. ``kind``: of the error, None for a whole answer.
WANTED: dict[str, dict[str, object]] = {
    "complete": {"tokens_out": 3, "tokens_in": 7, "chunks": 3, "text": "one two three"},
    "usage-choices-null": {"tokens_out": 3},
    "usage-choices-missing": {"tokens_out": 3},
    "usage-with-finish": {"tokens_out": 3, "finish_reason": "stop"},
    "usage-null": {"tokens_out": None, "tokens_in": None, "chunks": 3},
    "usage-nonsense": {"tokens_out": None, "tokens_in": None},
    "usage-cached": {"tokens_out": 3, "tokens_cached": 5},
    "usage-continuous": {"tokens_out": 6, "tokens_first": 2, "chunks": 3},
    "no-usage": {"tokens_out": None, "tokens_in": None, "chunks": 3},
    "reasoning-only": {
        "tokens_out": 4,
        "text": "",
        "reasoning": "hm" * 4,
        "chunks": 4,
        "finish_reason": "length",
        "first_answer_s": None,
    },
    "reasoning-other-key": {"tokens_out": 4, "text": "", "reasoning": "hm" * 4, "chunks": 4},
    "reasoning-then-content": {"chunks": 4, "text": "one two three", "reasoning": "hm"},
    "tool-call": {"chunks": 2, "text": "", "calls": '\nf {"a": 1}', "tokens_out": 9},
    "delta-null": {"chunks": 3, "text": "one two three"},
    "no-answer-text": {"chunks": 0, "text": "", "tokens_out": 1, "first_token_s": None},
    "error-in-stream": {"kind": "stream_error", "error": "KV cache is full (code 503)"},
    "error-first": {"kind": "stream_error", "error": "no slot", "first_token_s": None},
    "error-without-wrapper": {"kind": "stream_error", "error": "too long (code 400)"},
    "error-text": {"kind": "stream_error", "error": "out of memory"},
    "error-as-json": {"kind": "stream_error", "error": "no model"},
    "abort": {"kind": "abort", "finish_reason": "abort"},
    "cut-framed": {"kind": "cut", "text": "one two three"},
    "cut-unframed": {"kind": "cut"},
    "cut-in-event": {"kind": "malformed"},
    "cut-after-finish": {"kind": "cut", "finish_reason": "length"},
    "done-without-finish": {"kind": "cut"},
    "no-done": {"tokens_out": 3},
    "no-done-unframed": {"tokens_out": 3},
    "close-after-done": {"tokens_out": 3},
    "late-close-after-done": {"tokens_out": 3, "text": "one two three"},
    "late-close-after-done-without-blank": {"tokens_out": 3},
    "late-close-without-done": {"tokens_out": 3},
    "drip-after-done": {"tokens_out": 3},
    "hang-after-done": {"tokens_out": 3},
    "reset-after-done": {"tokens_out": 3},
    "done-in-two-reads": {"tokens_out": 3},
    "done-without-space": {"tokens_out": 3},
    "bytes-after-done": {"tokens_out": 3, "text": "one two three"},
    "bytes-behind-done": {"tokens_out": 3, "text": "one two three"},
    "done-within-text": {"tokens_out": 9, "text": "\ndata: [DONE]\n\none two three", "chunks": 4},
    "reset-after-usage": {"tokens_out": 3},
    "close-after-usage": {"tokens_out": 3},
    "no-http-after-usage": {"tokens_out": 3},
    "hang-after-usage": {"kind": "timeout", "text": "one two three"},
    "drip-after-usage": {"kind": "timeout"},
    "trailers-drip": {"kind": "timeout"},
    "trailer-endless": {"kind": "too_large", "text": ""},
    "usage-beyond-asked": {
        "tokens_out": None,
        "doubt": "usage counts 1000000000 output tokens, 8 were asked for",
    },
    "usage-twice-asked": {
        "tokens_out": None,
        "doubt": "usage counts 16 output tokens, 8 were asked for",
    },
    "usage-one-more": {"tokens_out": 9, "doubt": None},
    "bang": {"text": "!" * 8, "is_empty": False},
    "bang-thought": {"reasoning": "!" * 8, "is_empty": False},
    "mute": {"text": "", "first_token_s": None, "is_empty": True, "tokens_out": 8},
    "blank": {"text": "\n" * 8, "is_empty": True},
    "reset-in-stream": {"kind": "reset", "text": "one"},
    "reset-at-once": {"kind": "reset", "status": None},
    "close-at-once": {"kind": "reset", "status": None},
    "silence": {"kind": "timeout", "status": None, "first_byte_s": None},
    "silence-after-head": {"kind": "timeout", "status": 200},
    "silence-in-stream": {"kind": "timeout", "text": "one"},
    "garbage": {"kind": "malformed", "status": None},
    "garbage-body": {"kind": "malformed"},
    "garbage-event": {"kind": "malformed"},
    "event-no-object": {"kind": "malformed"},
    "bad-utf8": {"kind": "malformed"},
    "huge-event": {"kind": "too_large", "text": ""},
    "huge-head": {"kind": "too_large"},
    "endless": {"kind": "too_large", "text": "", "tokens_out": None},
    "drip": {"kind": "timeout", "status": 200, "text": ""},
    "comments": {"tokens_out": 3, "chunks": 3},
    "other-fields": {"tokens_out": 3, "chunks": 3},
    "crlf": {"tokens_out": 3, "text": "one two three"},
    "no-blank": {"tokens_out": 3, "text": "one two three"},
    "one-packet": {"tokens_out": 3, "chunks": 3},
    "one-chunk": {"tokens_out": 3, "chunks": 3},
    "two-data-lines": {"text": "one two three", "tokens_out": 3},
    "no-final-newline": {"tokens_out": 3},
    "status-400-plain": {"kind": "status", "status": 400, "error": "too long (code 400)"},
    "status-400-wrapped": {"kind": "status", "status": 400, "error": "bad model"},
    "status-422-detail": {"kind": "status", "status": 422, "error": "no messages"},
    "status-500-html": {"kind": "status", "status": 500, "error": "<html>oops</html>"},
    "status-503-empty": {"kind": "status", "status": 503, "error": "an empty body"},
    "status-redirect": {"kind": "status", "status": 307},
    "interim-100": {"tokens_out": 3, "status": 200},
}


#: Of shapes that only end with it.
PATIENCE_S = dict.fromkeys([name for name in WANTED if WANTED[name].get("kind") == "timeout"], 0.4)


def sent_to(url: str) -> int:
    with urllib.request.urlopen(url + "/stats") as answer:
        return int(json.load(answer)["requests"])


def record_of(plan_of, **extra: object) -> Record:
    patience_s = PATIENCE_S.get(str(extra.get("shape")), 20.0)
    (record,) = run_load(plan_of(request_timeout_s=patience_s, **extra)).records
    return record


@pytest.mark.parametrize("shape", SHAPES)
def test_shape(plan_of, server_url: str, shape: str) -> None:
    """The right record, within its time; whatever came back, nothing is sent twice."""
    wanted, before = dict(WANTED[shape]), sent_to(server_url)
    record = record_of(plan_of, shape=shape)
    assert record.error_kind == wanted.pop("kind", None), record.error
    assert record.ok == (record.error is None)
    for name, value in wanted.items():
        assert getattr(record, name) == value, name
    assert record.sent_s is not None and record.end_s is not None
    assert record.scheduled_s <= record.sent_s <= record.end_s
    assert record.end_s - record.scheduled_s < PATIENCE_S.get(shape, 10.0) + 5
    assert sent_to(server_url) == before + 1


@pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES if "after-done" in shape or "done-in" in shape]
)
def test_a_request_ends_with_done_whatever_the_connection_does_then(plan_of, shape: str) -> None:
    """The pause of the server after it is 700 ms."""
    record = record_of(plan_of, shape=shape)
    assert record.ok and record.last_token_s and record.end_s
    assert record.last_token_s <= record.end_s < record.last_token_s + 0.5


def test_a_request_without_done_ends_with_its_last_event(plan_of) -> None:
    record = record_of(plan_of, shape="late-close-without-done")
    assert record.ok and record.last_token_s and record.end_s
    assert record.end_s < record.last_token_s + 0.5


@pytest.mark.parametrize("shape", ["complete", "reasoning-only", "reasoning-then-content"])
def test_an_empty_role_delta_is_no_first_token(plan_of, shape: str) -> None:
    record = record_of(plan_of, shape=shape)
    assert record.first_byte_s is not None and record.first_token_s is not None
    assert record.first_token_s > record.first_byte_s


def test_split_at_every_byte(plan_of) -> None:
    record = record_of(plan_of, byte_by_byte=True)
    assert (record.text, record.tokens_out, record.chunks) == ("one two three", 3, 3)


def test_time_per_token_counts_tokens_not_chunks(plan_of) -> None:
    """One or four tokens an event: a quarter of the chunks, TPOT by usage."""
    one, four = (record_of(plan_of, tokens_per_event=size, output_tokens=40) for size in (1, 4))
    assert (one.tokens_out, one.chunks) == (40, 40)
    assert (four.tokens_out, four.chunks) == (40, 10)
    assert one.last_token_s is not None and one.first_token_s is not None
    assert one.tpot_ms == pytest.approx((one.last_token_s - one.first_token_s) * 1000 / 39)
    assert four.tpot_ms is not None and one.tpot_ms is not None and four.tpot_ms < one.tpot_ms


def test_a_server_that_stops_at_half_reports_half(plan_of) -> None:
    assert record_of(plan_of, tokens=4).tokens_out == 4
