"""Whether there is sense in a short answer: one table for the runner's wait and for the gate."""

import json

import pytest
from hostile import hostile, whole
from hypothesis import given
from hypothesis import strategies as st

from runbook.engines.endpoint import Endpoint
from runbook.engines.ladder import wait_ready
from runbook.errors import ServerFailed
from runbook.probe import gate
from runbook.probe.completion import (
    NotServed,
    name_few,
    read_completion,
    read_lines,
    why_senseless,
)

COUNTED = "One, two, three, four, five, six, seven, eight"
#: tokens (``None``: the server tells none), pieces of text, the field they come in, what is said.
CASES = [
    (16, ["!"] * 16, "content", "only repeats '!'"),
    (16, ["!!!!"] * 4, "content", "only repeats '!'"),
    (None, ["0"] * 12, "content", "only repeats '0'"),
    (16, ["Sure"] + ["!"] * 15, "content", "only repeats '!'"),
    (16, [" the"] * 16, "content", "only repeats"),
    (16, ["<unk>"] * 16, "reasoning_content", "only repeats"),
    (16, ["\n"] * 16, "content", "holds no text but"),
    (2, ["\n\n", " "], "content", "holds no text but"),
    (5, ["\u3000"] * 5, "reasoning", "holds no text but"),
    (16, ["\u00e9\ufffd"] * 8, "content", "only repeats"),
    (16, [], "content", "holds no text"),
    (2, [""], "content", "holds no text"),
    (9, [], "reasoning", "holds no text"),
    (16, [COUNTED], "content", ""),
    (16, COUNTED.split(" "), "reasoning_content", ""),
    (2, ["Hi", "!"], "content", ""),
    (4, ["!!!!"], "content", ""),
    (7, ["!"] * 7, "content", ""),
    (16, ["1, 2, 3, 4, 5, 6"], "content", ""),
    (16, ["\n\n", "One", "\n", "Two", "\n", "Three"], "content", ""),
    (12, ["Well....... one, two, three"], "content", ""),
]
IDS = [f"{tokens}-{''.join(pieces)[:12]!r}" for tokens, pieces, _, _ in CASES]


def stream_of(tokens, pieces, field):
    events = [{"choices": [{"delta": {field: one}}]} for one in pieces]
    events.append({"choices": [{"delta": {}, "finish_reason": "length"}]})
    events += [{"choices": [], "usage": {"completion_tokens": tokens}}] if tokens else []
    lines = [f"data: {json.dumps(one)}\n\n" for one in events]
    return "".join(lines).encode() + b"data: [DONE]\n\n"


def serving(stream):
    def answer(request):
        path = request.split(b" ")[1]
        body = {b"/health": b"{}", b"/v1/models": b'{"data": [{"id": "m"}]}'}.get(path, stream)
        yield whole(body)

    return hostile(answer)


@pytest.mark.parametrize(("tokens", "pieces", "field", "said"), CASES, ids=IDS)
def test_the_wait_and_the_gate_call_the_same_server_ready(
    tokens, pieces, field, said, monkeypatch, capsys
):
    monkeypatch.setattr("runbook.engines.ladder._POLL_S", 0.001)
    monkeypatch.setattr(gate, "SENSELESS_PAUSE_S", 0.01)
    with serving(stream_of(tokens, pieces, field)) as server:
        if said:
            with pytest.raises(ServerFailed, match=said) as caught:
                wait_ready(Endpoint(server.url), lambda: True, 60)
            assert "3 times in turn" in caught.value.found
        else:
            wait_ready(Endpoint(server.url), lambda: True, 60)
        code = gate.wait(gate.Ladder(server.url, "", 2, 0, None), 0, 60)
        assert code == (gate.REFUSED if said else 0)
        assert said in capsys.readouterr().out


def test_a_server_that_finds_sense_while_it_warms_up_is_ready(monkeypatch):
    monkeypatch.setattr("runbook.engines.ladder._POLL_S", 0.001)
    streams = [stream_of(16, ["!"] * 16, "content")] * 2 + [stream_of(16, [COUNTED], "content")]

    def answer(request):
        path = request.split(b" ")[1]
        if path == b"/v1/chat/completions":
            yield whole(streams.pop(0))
        else:
            yield whole(b'{"data": [{"id": "m"}]}')

    with hostile(answer) as server:
        wait_ready(Endpoint(server.url), lambda: True, 60)
    assert streams == []


@given(
    st.text(max_size=6, min_size=1).filter(lambda one: one == one.strip()),
    st.integers(8, 40),
)
def test_whatever_is_repeated_often_is_repetition(piece, times):
    assert "only repeats" in why_senseless(times, piece * times)


@given(st.integers(0, 10**12), st.text(max_size=200))
def test_any_text_is_judged(tokens, text):
    assert isinstance(why_senseless(tokens, text), str)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_completion_or_none(data):
    pieces = [data[at : at + 7] for at in range(0, len(data), 7)] + [b""]
    try:
        tokens, text = read_completion(read_lines(lambda: pieces.pop(0)))
    except NotServed:
        return
    assert tokens >= 0 and isinstance(text, str)


@pytest.mark.parametrize("piece", [b"x" * 65536, b"data: {}\n" * 5000])
def test_a_stream_without_end_is_none(piece):
    with pytest.raises(NotServed, match="larger"):
        list(read_lines(lambda: piece))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "no name"),
        (["a"], "'a'"),
        (["a", "b", "c"], "'a', 'b', 'c'"),
        ([f"model-{n}" for n in range(200_000)], "and 199997 more"),
        (["n" * 10**6], "n'"),
    ],
)
def test_a_few_names_and_a_count(names, said):
    assert name_few(names).endswith(said) and len(name_few(names)) < 400
