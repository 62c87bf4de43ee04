"""The readiness ladder against a local HTTP server that answers as scripted."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from runbook.engines.ladder import Endpoint, first_model, wait_ready
from runbook.errors import ServerFailed

MODELS = (200, {"object": "list", "data": [{"id": "m"}]})
DONE = b"data: [DONE]\n\n"


def sse(*events, done=True):
    return b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + DONE * done


def text(content, key="content"):
    return {"choices": [{"index": 0, "delta": {key: content}}]}


def usage(tokens):
    return {"choices": [], "usage": {"completion_tokens": tokens}}


SERVED = sse(text("One, two, three"), usage(4))


@contextlib.contextmanager
def scripted(**answers):
    """A server; each answer is ``(status, body)`` or a list of them, the last one repeated."""
    queues = {"health": (200, {}), "models": MODELS, "completions": (200, SERVED)} | answers
    queues = {k: list(v) if isinstance(v, list) else [v] for k, v in queues.items()}
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.rsplit("/", 1)[-1]
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append((name, dict(self.headers), body))
            queue = queues[name]
            status, body = queue.pop(0) if len(queue) > 1 else queue[0]
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_loading_is_waited_for():
    loading = (503, {"error": {"message": "Loading model"}})
    with scripted(health=[loading, loading, (200, {})]) as (url, seen):
        assert 0.1 < wait_ready(Endpoint(url), lambda: True, 10) < 10
    assert [name for name, _, _ in seen] == ["health"] * 3 + ["models", "completions"]


def test_the_completion_is_streamed_asks_for_usage_and_names_the_model():
    with scripted() as (url, seen):
        wait_ready(Endpoint(url), lambda: True, 10)
    asked = json.loads(seen[-1][2])
    assert (asked["model"], asked["stream"]) == ("m", True)
    assert asked["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "stream",
    [
        sse(text("one"), text(" two")),
        sse(text("hm", "reasoning_content"), text("hm", "reasoning")),
        sse(text("one two three four"), usage(4)),
        b": ping\n\n" + sse({"choices": None}, text("a"), {"choices": [None]}, text("b")),
    ],
)
def test_two_tokens_of_any_kind_are_ready(stream):
    with scripted(completions=(200, stream)) as (url, _):
        wait_ready(Endpoint(url), lambda: True, 10)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"health": (503, b"")}, "health answered 503"),
        ({"models": (200, {"data": []})}, "model list is empty"),
        ({"models": (200, b"<html>")}, "model list is empty"),
        ({"completions": (500, b"boom")}, "the completion answered 500 boom"),
        ({"completions": (200, sse(text("a"), usage(1)))}, "held 1 tokens"),
        ({"completions": (200, sse({"choices": [{"delta": {"role": "x"}}]}))}, "held 0 tokens"),
        ({"completions": (200, sse({"error": {"message": "no memory"}}))}, "no memory"),
        ({"completions": (200, sse(text("a"), text("b"), done=False))}, "cut before"),
        ({"completions": (200, b"data: {broken\n\n")}, "no JSON"),
    ],
)
def test_what_is_not_ready_is_said_at_the_end_of_the_time(answers, said):
    with scripted(**answers) as (url, _), pytest.raises(ServerFailed) as caught:
        wait_ready(Endpoint(url), lambda: True, 0.5)
    assert said in str(caught.value)
    assert "not ready after" in str(caught.value)


def test_a_first_completion_that_fails_is_tried_again():
    with scripted(completions=[(500, b""), (200, SERVED)]) as (url, _):
        wait_ready(Endpoint(url), lambda: True, 10)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("rung", ["health", "models", "completions"])
def test_a_refused_key_ends_the_wait_at_once(rung, status):
    started = time.monotonic()
    with scripted(**{rung: (status, {})}) as (url, _), pytest.raises(ServerFailed, match="key"):
        wait_ready(Endpoint(url), lambda: True, 60)
    assert time.monotonic() - started < 30


def test_a_server_that_died_is_not_ready_whoever_answers_at_its_port():
    lives = iter([True, False])
    with scripted() as (url, _), pytest.raises(ServerFailed, match="before it was ready"):
        wait_ready(Endpoint(url), lambda: next(lives, False), 60)


def test_the_key_goes_as_a_header_and_a_proxy_is_never_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    file = tmp_path / "key"
    file.write_text("secret\n")
    with scripted() as (url, seen):
        wait_ready(Endpoint(url, str(file)), lambda: True, 10)
    assert {headers["Authorization"] for _, headers, _ in seen} == {"Bearer secret"}


@pytest.mark.parametrize("status", [404, 501])
def test_a_page_that_is_not_there_is_none(status):
    with scripted(props=(status, b"File not found")) as (url, _):
        assert Endpoint(url).get_json("/props") is None


@pytest.mark.parametrize(("status", "body"), [(500, b"{}"), (200, b"<html>"), (503, b"")])
def test_a_page_that_is_broken_is_an_error_with_its_address(status, body):
    with (
        scripted(props=(status, body)) as (url, _),
        pytest.raises(ServerFailed, match=f"{url}/props answered {status}"),
    ):
        Endpoint(url).get_json("/props")


@pytest.mark.parametrize(
    "listing", [None, [], {}, {"data": None}, {"data": ["m"]}, {"data": [{"id": 7}]}]
)
def test_a_listing_without_a_model_has_none(listing):
    assert first_model(listing) is None
