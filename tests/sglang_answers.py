"""A local HTTP server that answers with what a real SGLang answered."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CASES = Path(__file__).parent / "cases" / "sglang"


def case(name):
    text = (CASES / name).read_text()
    return json.loads(text) if name.endswith(".json") else text


def pages(kind="baseline", **changes):
    """The pages of a captured server; ``None`` takes one away, a list is answered in turn."""
    info = case(f"server_info-{kind}.json")
    return {
        "/health": (200, b""),
        "/v1/models": (200, {"object": "list", "data": [{"id": info["served_model_name"]}]}),
        "/v1/chat/completions": (200, case("chat.txt").encode()),
        "/server_info": (200, info),
        "/metrics": (200, case(f"metrics-{kind}.txt").encode()),
        **changes,
    }


@contextlib.contextmanager
def answering(answers):
    """The base URL of a server with these pages, and the list of what was asked, as it grows."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.path, dict(self.headers)))
            answer = answers.get(self.path) or (404, {"detail": "Not Found"})
            if isinstance(answer, list):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
            status, body = answer
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
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
