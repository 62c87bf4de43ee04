"""The reader gives the same answer however the bytes come in pieces."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paced_server import DONE, HEAD, chunk, delta, event, usage

from runbook.load.answer import Answer, AnswerReader, error_message
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
    return replace(answer, first_token_s=None, last_token_s=None)


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
    assert body_of(pieces_at(answer, cuts)) == data == body_of([answer])


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
