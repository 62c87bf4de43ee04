"""A server that answers like SGLang 0.5.10: every answer is 8 tokens in 3 verify steps, of which
only its log tells."""

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS, VERIFY_STEPS = 8, 3

#: At no time at all the client would be the limit, and the benchmark would void the cell.
ANSWER_S = 0.5


def parse():
    parser = argparse.ArgumentParser()
    for option in ("--model-path", "--host", "--api-key", "--speculative-algorithm"):
        parser.add_argument(option)
    parser.add_argument("--speculative-draft-model-path")
    for option in ("--port", "--max-running-requests", "--speculative-eagle-topk"):
        parser.add_argument(option, type=int)
    for option in ("--speculative-num-steps", "--speculative-num-draft-tokens"):
        parser.add_argument(option, type=int)
    parser.add_argument("--enable-metrics", action="store_true")
    return parser.parse_args()


class State:
    def __init__(self, options):
        self.options = options
        self.requests = 0
        self.lock = threading.Lock()

    def info(self):
        options = vars(self.options)
        speculates = self.options.speculative_algorithm is not None
        v2 = os.environ.get("SGLANG_ENABLE_SPEC_V2") == "True"
        cap = self.options.max_running_requests or (48 if speculates else 2048)
        return {
            **options,
            "served_model_name": self.options.model_path,
            "version": "0.5.10",
            "disable_overlap_schedule": speculates and not v2,
            "launch_command": " ".join(sys.argv[1:]),
            "internal_states": [{"effective_max_running_requests_per_dp": cap}],
        }

    def metrics(self):
        lines = [
            f'sglang:generation_tokens_total{{model_name="m"}} {self.requests * TOKENS}.0',
            f'sglang:num_requests_total{{model_name="m"}} {self.requests}.0',
        ]
        return "\n".join(lines)

    def answered(self):
        with self.lock:
            self.requests += 1
        told = f"accept len: {(TOKENS - 1) / VERIFY_STEPS:.2f}, accept rate: 0.33, "
        told = told if self.options.speculative_algorithm else ""
        line = f"#running-req: 2, #token: {self.requests}, {told}cuda graph: True, #queue-req: 0"
        print(f"[2026-11-30 01:04:57 TP0] Decode batch, {line}", flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def send(self, status, body, kind="application/json"):
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refused(self):
        key = self.state.options.api_key
        if self.path in ("/health", "/metrics") or key is None:
            return False
        return self.headers.get("Authorization") != f"Bearer {key}"

    def do_GET(self):
        if self.refused():
            return self.send(401, "{}")
        pages = {
            "/health": lambda: "",
            "/v1/models": lambda: json.dumps({"data": [{"id": self.state.options.model_path}]}),
            "/server_info": lambda: json.dumps(self.state.info()),
        }
        if self.state.options.enable_metrics:
            pages["/metrics"] = self.state.metrics
        page = pages.get(self.path)
        return self.send(200, page()) if page else self.send(404, "{}")

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.refused():
            return self.send(401, "{}")
        deltas = [{"role": "assistant", "content": ""}, *[{"content": "word "}] * TOKENS]
        events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        usage = {"prompt_tokens": 5, "completion_tokens": TOKENS, "total_tokens": 5 + TOKENS}
        events.append({"choices": [], "usage": usage})
        time.sleep(ANSWER_S)
        self.state.answered()
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        return self.send(200, text + "data: [DONE]\n\n", "text/event-stream")

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    options = parse()
    Handler.state = State(options)
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    print("The server is fired up and ready to roll!", flush=True)
    server.serve_forever()
