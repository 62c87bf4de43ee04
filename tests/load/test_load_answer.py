"""The reader gives the same answer however the bytes come in pieces."""

from __future__ import annotations

import asyncio
import re
from dataclasses import fields as fields_of
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paced_server import DONE, HEAD, chunk, delta, event, usage

from runbook.benchmark.throughput import tokens_per_second
from runbook.load.answer import Answer, AnswerReader, doubt_usage, error_message
from runbook.load.exchange import Exchange
from runbook.load.records import Record

ends = st.sampled_from([b"\n\n", b"\r\n\r\n"])
fields = st.sampled_from([b"data: ", b"data:"])
values = st.one_of(
    st.builds(lambda text: delta(content=text), st.text(max_size=9)),
    st.builds(lambda text: delta(reasoning_content=text), st.text(max_size=9)),
    st.builds(usage, st.integers(0, 99)),
    st.builds(lambda reason: delta(finish=reason), st.sampled_from(["stop", "length", "abort"])),
    st.just({"error": {"message": "late"}}),
    st.binary(max_size=12).filter(lambda data: b"\n" not in data and b"\r" not in data),
)
events = st.one_of(
    st.builds(event, values, ends, fields), st.just(b": ping\n\n"), st.just(DONE), st.just(b"\n")
)
streams = st.lists(events, max_size=12).map(b"".join)


def pieces_at(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[first:last] for first, last in pairwise(edges)]


def read(pieces: list[bytes], whole: bool = True) -> Answer:
    reader = AnswerReader()
    for number, piece in enumerate(pieces):
        reader.feed(float(number), piece)
    return reader.finish(float(len(pieces)), whole)


def without_times(answer: Answer) -> Answer:
    times = ("first_token_s", "first_answer_s", "last_token_s", "last_event_s", "longest_gap_s")
    return replace(answer, **dict.fromkeys(times))


@given(streams, st.lists(st.integers(0, 10_000), max_size=20), st.booleans())
def test_any_split_gives_the_same_answer(data: bytes, cuts: list[int], whole: bool) -> None:
    assert without_times(read(pieces_at(data, cuts), whole)) == without_times(read([data], whole))


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8))
def test_any_bytes_give_an_answer_and_the_same_one(data: bytes, cuts: list[int]) -> None:
    assert without_times(read(pieces_at(data, cuts))) == without_times(read([data]))


@given(st.integers(0, 10_000))
def test_a_token_bears_the_time_of_the_piece_that_ended_its_line(cut: int) -> None:
    first, second = event(delta(content="a")), event(delta(content="b"))
    data = first + second + event(delta(finish="stop")) + DONE
    cut %= len(data)
    answer = read([data[:cut], data[cut:]])
    line_ends = [len(first) - 2, len(first) + len(second) - 2]  # the first newline of the two
    assert answer.first_token_s == float(cut <= line_ends[0])
    assert answer.last_token_s == float(cut <= line_ends[1])


class Wire:
    """Stands for the transport below an exchange."""

    def write(self, data: bytes) -> None:
        self.sent = data

    def abort(self) -> None:
        pass


@given(streams.filter(bool), st.lists(st.integers(0, 10_000), max_size=20))
def test_any_split_of_the_http_bytes_gives_the_same_body(data: bytes, cuts: list[int]) -> None:
    """Up to ``[DONE]``; what came in one read with it may be behind it."""

    def body_of(pieces: list[bytes]) -> bytes:
        loop = asyncio.new_event_loop()
        try:
            exchange = Exchange(b"GET", 10**6, loop.create_future())
            exchange.connection_made(Wire())  # type: ignore[arg-type]
            for piece in pieces:
                exchange.data_received(piece)
        finally:
            loop.close()
        assert exchange.whole and exchange.status == 200 and exchange.kind is None
        return b"".join(piece for _, piece in exchange.pieces)

    answer = HEAD + chunk(data) + b"0\r\n\r\n"
    assert body_of([answer]) == data
    found = body_of(pieces_at(answer, cuts))
    done = re.search(rb"^data: ?\[DONE\]", data, re.MULTILINE)
    assert data.startswith(found) and len(found) >= (done.end() if done else len(data))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "m", "code": 503}}, "m (code 503)"),
        ({"error": "m"}, "m"),
        ({"error": {}}, None),
        ({"error": None, "choices": []}, None),
        ({"error": True}, "True"),
        ({"object": "error", "message": "m"}, "m"),
        ({"object": "chat.completion.chunk"}, None),
        ({"error": {"code": 1}}, "an error without a message (code 1)"),
        ([], None),
    ],
)
def test_error_bodies(body: object, message: str | None) -> None:
    assert error_message(body) == message


def test_tokens_of_the_first_chunk_are_known_only_where_usage_came_with_it() -> None:
    along = [event({**delta(content="x"), **usage(n)}) for n in (4, 8)]
    before = [event({**delta(role="assistant", content=""), **usage(0)}), event(delta(content="x"))]
    end = [event(delta(finish="stop")), event(usage(8)), DONE]
    assert read([*along, *end]).tokens_first == 4
    assert read([*before, *along[1:], *end]).tokens_first is None
    assert read([event(delta(content="x")), *end]).tokens_first is None


@pytest.mark.parametrize(
    ("told", "steps"),
    [
        ({"meta_info": {"spec_verify_ct": 5}}, 5),
        ({"choices": [{"meta_info": {"spec_verify_ct": 5}}]}, 5),
        ({"timings": {"predicted_n": 64, "draft_n": 50, "draft_n_accepted": 40}}, 24),
        ({"timings": {"predicted_n": 64}}, None),
        ({"timings": {"predicted_n": 4, "draft_n_accepted": 9}}, None),
        ({"meta_info": {"spec_verify_ct": "5"}, "timings": [1]}, None),
        ({}, None),
    ],
)
def test_verify_steps_are_those_the_server_tells(told: dict, steps: int | None) -> None:
    answer = read([event(delta(content="x")), event(delta(finish="stop")), event(told), DONE])
    assert answer.verify_steps == steps


def test_the_time_of_a_token_leaves_out_all_that_came_first() -> None:
    record = Record("p", 0.0, first_token_s=1.0, last_token_s=2.6, tokens_out=20, chunks=5)
    assert record.tpot_ms == pytest.approx(1600 / 19)
    assert replace(record, tokens_first=4).tpot_ms == pytest.approx(100)
    assert replace(record, tokens_first=20).tpot_ms is None
    assert record.chunk_gap_ms == pytest.approx(400)
    assert replace(record, chunks=1).chunk_gap_ms is None


def record_of(stamps_s: list[float], pieces: list[bytes]) -> Record:
    reader = AnswerReader()
    for stamp_s, piece in zip(stamps_s, pieces, strict=True):
        reader.feed(stamp_s, piece)
    answer = reader.finish(stamps_s[-1], True)
    names = {one.name for one in fields_of(Record)} & {one.name for one in fields_of(Answer)}
    return Record("p", 0.0, sent_s=0.0, **{name: getattr(answer, name) for name in names})


def test_one_or_four_tokens_a_chunk_at_one_rate_differ_in_their_chunks_alone() -> None:
    """160 tokens a second: one each 6.25 ms, or four each 25 ms."""

    def at(per_chunk: int) -> Record:
        counts = range(per_chunk, 201, per_chunk)
        along = [event({**delta(content=" word" * per_chunk), **usage(n)}) for n in counts]
        stamps_s = [n * 0.00625 for n in counts]
        return record_of([*stamps_s, 1.3], [*along, event(delta(finish="length")) + DONE])

    one, four = at(1), at(4)
    assert (one.tokens_out, one.chunks, four.tokens_out, four.chunks) == (200, 200, 200, 50)
    assert one.tpot_ms == pytest.approx(6.25) and four.tpot_ms == pytest.approx(6.25)
    assert one.chunk_gap_ms == pytest.approx(6.25) and four.chunk_gap_ms == pytest.approx(25)


def test_a_hundred_chunks_of_293_tokens_in_a_second() -> None:
    pieces = [event(delta(content="x"))] * 100
    end = event(delta(finish="stop")) + event(usage(293)) + DONE
    record = record_of([1 + n / 99 for n in range(100)] + [2.0], [*pieces, end])
    assert record.tpot_ms == pytest.approx(3.4, abs=0.05)
    assert record.chunk_gap_ms == pytest.approx(10, abs=0.2)


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_a_thought_of_512_tokens_cut_by_its_length(key: str) -> None:
    pieces = [event(delta(role="assistant", content=""))]
    pieces += [event(delta(**{key: "hm "}))] * 512
    pieces += [event(delta(finish="length")), event(usage(512)) + DONE]
    record = record_of([float(n) for n in range(len(pieces))], pieces)
    assert (record.ttft_ms, record.tokens_out, record.text) == (1000, 512, "")
    assert (record.finish_reason, record.error_kind, record.ttfat_ms) == ("length", None, None)


def test_the_first_token_may_be_a_thought_and_the_answers_first_one_has_a_time_of_its_own() -> None:
    pieces = [delta(role="assistant", content=""), delta(reasoning_content="hm")]
    pieces += [delta(content="one"), delta(finish="stop")]
    record = record_of([0.1, 1.2, 183.0, 183.1], [event(one) for one in pieces])
    assert record.ttft_ms == pytest.approx(1200) and record.ttfat_ms == pytest.approx(183_000)
    call = delta(tool_calls=[{"function": {"name": "f"}}])
    assert record_of([2.0], [event(call)]).ttfat_ms == 2000


def test_a_prefill_of_80_s_is_in_no_decode_rate() -> None:
    """At 100,000 tokens of context: 9 tok/s by the wall clock, 33 of decoding."""
    record = Record(
        "p", 0.0, sent_s=0.0, first_token_s=80.0, last_token_s=110.0, tokens_out=991, end_s=110.0
    )
    assert 1000 / (record.tpot_ms or 1) == pytest.approx(33.0)
    assert tokens_per_second([record]) == pytest.approx(9.0, abs=0.05)


@pytest.mark.parametrize(
    ("extension", "steps"),
    [
        ({"spec_tokens_details": {"spec_verify_ct": 39}}, 39),
        ({"spec_tokens_details": {"spec_verify_ct": "39"}}, None),
        ({"spec_tokens_details": [1]}, None),
        ("text", None),
        (None, None),
    ],
)
def test_verify_steps_of_a_server_that_tells_them(extension: object, steps: int | None) -> None:
    told = event({"choices": [], "usage": None, "sglext": extension})
    answer = read([event(delta(content="a")), event(delta(finish="stop")), told, DONE])
    assert (answer.verify_steps, answer.error) == (steps, None)


def exchange_of(pieces: list[bytes]) -> Exchange:
    """What an exchange makes of bodies that arrive as ``pieces``, a chunk each."""
    loop = asyncio.new_event_loop()
    try:
        exchange = Exchange(b"GET", 10**6, loop.create_future())
        exchange.connection_made(Wire())  # type: ignore[arg-type]
        for piece in [HEAD, *map(chunk, pieces)]:
            exchange.data_received(piece)
        exchange.ended.cancel()
    finally:
        loop.close()
    return exchange


@given(
    st.lists(st.text().map(lambda text: text + "data: [DONE]\n\ndata: [DONE]"), max_size=3),
    st.lists(st.integers(0, 10_000), max_size=9),
)
def test_done_ends_it_at_the_begin_of_a_line_alone(texts: list[str], cuts: list[int]) -> None:
    """However it is split; within JSON it is text."""
    said = b"".join(event(delta(content=text)) for text in texts) + b"\n"
    assert not exchange_of(pieces_at(said, cuts)).whole
    ended = exchange_of(pieces_at(said + DONE, cuts))
    assert ended.whole and b"".join(piece for _, piece in ended.pieces).startswith(said + DONE[:12])


@pytest.mark.parametrize(
    ("fields", "asked", "doubt"),
    [
        ({"tokens_out": 64, "text": "w" * 64}, 64, None),
        ({"tokens_out": 65, "text": "w" * 64}, 64, None),  # one for the end
        ({"tokens_out": 68, "text": "w" * 64}, 64, None),  # the last step of speculation
        ({"tokens_out": 70, "text": "w" * 64}, 64, "usage counts 70 output tokens, 64 were asked"),
        ({"tokens_out": 3, "text": "w"}, 1, "usage counts 3 output tokens, 1 were asked for"),
        ({"tokens_out": 10**9, "text": "one two"}, 64, "usage counts 1000000000 output tokens, 64"),
        ({"tokens_out": 60, "text": "one two"}, 64, "usage counts 60 output tokens, 7 bytes of"),
        ({"tokens_out": 64}, 64, "usage counts 64 output tokens, 0 bytes of text came"),
        ({"tokens_out": 1}, 64, None),  # the end at once
        ({"tokens_out": 30, "calls": "\nlook {}"}, 64, None),  # marks of calls are not sent
        ({"tokens_out": 60, "text": "\u6f22\u5b57" * 8}, 64, None),  # three bytes a character
        ({"tokens_out": 60, "reasoning": "w" * 30}, 64, None),
        ({"tokens_out": 60, "text": "4", "tokens_hidden": 58}, 64, None),
        ({"tokens_out": 60, "text": "4", "reasoning": "hm", "tokens_hidden": 58}, 64, "60 output"),
        ({"tokens_out": None, "text": "w"}, 64, None),
        ({"tokens_out": 0}, 64, None),
    ],
)
def test_usage_that_cannot_be_is_doubted(fields: dict, asked: int, doubt: str | None) -> None:
    found = doubt_usage(Answer(**fields), asked)
    assert (found is None) if doubt is None else (found is not None and doubt in found)


@pytest.mark.parametrize(
    "told",
    [
        {"completion_tokens_details": {"reasoning_tokens": 5}},
        {"reasoning_tokens": 5},
        {"completion_tokens_details": {"reasoning_tokens": 5}, "reasoning_tokens": 0},
    ],
)
def test_hidden_reasoning_is_read_where_usage_tells_it(told: dict) -> None:
    assert read([event(usage(9, **told))]).tokens_hidden == 5


def test_the_longest_gap_is_between_events_with_text() -> None:
    reader = AnswerReader()
    for stamp_s, text in ((1.0, "a"), (1.5, "b"), (3.0, ""), (3.5, "c"), (3.6, "d")):
        reader.feed(stamp_s, event(delta(content=text)))
    reader.feed(9.0, event(delta(finish="stop")) + DONE)
    answer = reader.finish(9.0, True)
    assert answer.longest_gap_s == pytest.approx(2.0) and answer.last_event_s == 9.0
