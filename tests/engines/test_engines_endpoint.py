"""Control calls to a server that is not trusted."""

import gzip
import itertools
import json
import time

import pytest
from hostile import HEAD, hostile, whole

from runbook.engines import endpoint, ladder
from runbook.engines.endpoint import Endpoint
from runbook.errors import ServerFailed
from runbook.probe.completion import MOST_BYTES, parse_answer

MIB = bytes(1 << 20)


def endless_body(_):
    yield HEAD + b"\r\n"
    yield from itertools.repeat(MIB)


def endless_chunks(_):
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    yield from itertools.repeat(b"10000\r\n" + b"[" * 65536 + b"\r\n")


def endless_interim(_):
    yield from itertools.repeat(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000)


def endless_head(_):
    yield HEAD
    yield from itertools.repeat(b"X-More: " + b"m" * 8000 + b"\r\n")


def endless_trailers(_):
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    yield from itertools.repeat(b"X-Trailer: " + b"t" * 8000 + b"\r\n")


@pytest.mark.parametrize(
    "answer", [endless_body, endless_chunks, endless_interim, endless_head, endless_trailers]
)
def test_an_answer_without_end_is_an_error_after_a_bounded_part_of_it(answer, monkeypatch):
    monkeypatch.setattr(endpoint, "CALL_TIMEOUT_S", 5.0)
    with hostile(answer) as server:
        with pytest.raises(ServerFailed, match=r"does not answer|answered 200"):
            Endpoint(server.url).get_json("/v1/models")
        assert server.sent < MOST_BYTES + (16 << 20)  # and what the sockets hold


def trickle(first):
    def answer(_):
        yield first
        while True:
            time.sleep(0.05)
            yield b"1"

    return answer


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX-Slow: ",
        HEAD + b"\r\n",
        HEAD + b"Content-Length: 100000\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Trailer: ",
    ],
)
def test_one_byte_now_and_then_is_waited_for_as_long_as_a_whole_answer(first, monkeypatch):
    monkeypatch.setattr(endpoint, "CALL_TIMEOUT_S", 0.6)
    with hostile(trickle(first)) as server:
        began = time.monotonic()
        with pytest.raises(ServerFailed, match="does not answer"):
            Endpoint(server.url).get("/health")
        assert 0.5 < time.monotonic() - began < 10


def test_a_completion_that_trickles_ends_with_the_time_for_it():
    def answer(_):
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            time.sleep(0.05)
            yield b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'

    with hostile(answer) as server:
        began = time.monotonic()
        with pytest.raises(ServerFailed, match="broken off"):
            ladder.stream(Endpoint(server.url), "m", 8, 0.6)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
def test_a_compressed_answer_was_not_asked_for_and_is_not_unpacked(encoding):
    body, asked = gzip.compress(bytes(1 << 24)), []

    def answer(request):
        asked.append(request.lower())
        yield whole(body, head=b"Content-Encoding: " + encoding.encode() + b"\r\n")

    with hostile(answer) as server, pytest.raises(ServerFailed, match="encoded"):
        Endpoint(server.url).get_json("/server_info")
    assert b"accept-encoding: identity\r\n" in asked[0]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 900 + b"1" + b"}" * 900,
        b'{"data":' + b"[" * 70 + b"]" * 70 + b"}",
    ],
)
def test_an_answer_that_is_nested_deeply_is_an_error_for_people(body):
    failed = pytest.raises(ServerFailed, match="no JSON that can be read")
    with hostile(lambda _: iter([whole(body)])) as server, failed:
        Endpoint(server.url).get_json("/v1/models")


@pytest.mark.parametrize("depth", [1, 10, 50])
def test_an_answer_that_is_nested_as_those_of_servers_are_is_read(depth):
    text = "[" * depth + "1" + "]" * depth
    assert parse_answer(text) == json.loads(text)


@pytest.mark.parametrize(
    ("body", "head"),
    [
        (b'{"id": "\xff\xfe"}', b""),
        (b'{"id": "\\ud800"}', b""),
        (b'{"id": "\\u001b[31mred\\u0007"}', b""),
        ('{"id": "\u202egnp"}'.encode(), b"Content-Type: application/json; charset=zlib\r\n"),
        (json.dumps({"id": "n" * (5 << 20)}).encode(), b""),
    ],
)
def test_texts_can_be_shown_and_written_whatever_they_hold(body, head):
    with hostile(lambda _: iter([whole(body, head=head)])) as server:
        said = Endpoint(server.url).get_json("/v1/models")["id"]
    assert len(said.encode()) < 20_000
    assert not set(said) & set("\x1b\x07\u202e")


def test_a_redirect_is_not_followed():
    asked = []

    def answer(request):
        asked.append(request)
        yield whole(b"", b"302 Found", b"Location: /elsewhere\r\n")

    with hostile(answer) as server, pytest.raises(ServerFailed, match="answered 302"):
        Endpoint(server.url).get_json("/v1/models")
    assert len(asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 99999 \r\n\r\n",
        b"",
    ],
)
def test_what_is_no_http_is_an_error_for_people(answer):
    with hostile(lambda _: iter([answer])) as server, pytest.raises(ServerFailed):
        Endpoint(server.url).get_json("/v1/models")
