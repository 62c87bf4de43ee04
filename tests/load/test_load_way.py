"""The way to a server, as small requests tell it."""

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from runbook.load.way import Way, look_at_way, worse


@pytest.fixture
def slow():
    """A server whose way takes 20 ms, and once 60 ms."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            asked.append(self.path)
            time.sleep(0.06 if len(asked) == 5 else 0.02)
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_round_trip_and_lag_are_those_of_the_way(slow):
    """Also where the answer is no: a key is not needed to measure a way."""
    way = look_at_way(f"http://127.0.0.1:{slow}")
    assert way.round_trip_ms >= 20
    assert way.round_trip_ms + way.lag_ms >= 60


def test_a_server_that_does_not_answer_has_an_unknown_way():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert look_at_way(f"http://127.0.0.1:{free.getsockname()[1]}") is None


def test_of_two_looks_the_worst_of_each_counts():
    assert worse(Way(1.0, 9.0), Way(2.0, 3.0)) == Way(2.0, 9.0)
    assert worse(None, Way(2.0, 3.0)) == worse(Way(2.0, 3.0), None) == Way(2.0, 3.0)
    assert worse(None, None) is None
