"""A server that answers like SGLang 0.5.10, without a model: as many tokens as asked for, seven
in three verify steps, of which only its log tells, at the pace of its kind, with one worker process
a card."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sglang.srt.server_args import prepare_server_args

#: Output tokens a second of all streams together, by topk and the most streams it holds for.
PACES = {
    None: ((1, 92.7), (10, 500.0), (30, 689.4), (1 << 10, 773.1)),
    4: ((1, 76.0), (10, 470.0), (30, 650.0), (1 << 10, 720.0)),
    1: ((1, 86.8), (10, 560.0), (30, 759.3), (1 << 10, 775.0)),
}
#: What a worker has that its parent was not given.
SET_FOR_WORKERS = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "8",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
}
WORKER = """
import ctypes, signal, sys
ctypes.CDLL(None).prctl(15, b"sglang::schedul", 0, 0, 0)
signal.pause()
"""


def start_workers(count):
    """Workers that end with their parent."""

    def follow():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)

    env = {**os.environ, **{k: os.environ.get(k, v) for k, v in SET_FOR_WORKERS.items()}}
    env["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"
    words = [sys.executable, "-IS", "-c", WORKER]
    return [subprocess.Popen(words, env=env, preexec_fn=follow) for _ in range(count)]


class State:
    def __init__(self, options):
        self.options = options
        self.stopping = False
        self.requests = self.tokens = self.running = self.most = 0
        self.lock = threading.Lock()

    def pace(self):
        topk = self.options.speculative_eagle_topk
        running = max(1, self.running)
        return next(pace for most, pace in PACES[topk] if running <= most) / running

    def info(self):
        speculates = self.options.speculative_algorithm is not None
        cap = self.options.max_running_requests or (48 if speculates else 2048)
        return {
            **vars(self.options),
            "served_model_name": self.options.model_path,
            "version": "0.5.10",
            "launch_command": " ".join(sys.argv[1:]),
            "internal_states": [{"effective_max_running_requests_per_dp": cap}],
        }

    def metrics(self):
        counts = {
            "generation_tokens_total": self.tokens,
            "num_requests_total": self.requests,
            "num_running_reqs": self.running,
        }
        return "\n".join(
            f'sglang:{name}{{model_name="m"}} {count}.0' for name, count in counts.items()
        )

    def answered(self, tokens):
        with self.lock:
            self.requests += 1
            self.tokens += tokens
        length = (tokens - 1) / max(1, round((tokens - 1) * 3 / 7))
        told = f"accept len: {length:.2f}, accept rate: 0.33, "
        told = told if self.options.speculative_algorithm else ""
        line = f"#running-req: {self.most}, #token: {self.tokens}, {told}cuda graph: True"
        print(f"[2026-11-30 01:04:57 TP0] Decode batch, {line}, #queue-req: 0", flush=True)


class Handler(BaseHTTPRequestHandler):
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
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        if self.refused():
            return self.send(401, "{}")
        if self.path == "/abort_request":
            return self.send(200, "{}")
        with self.state.lock:
            self.state.running += 1
            self.state.most = max(self.state.most, self.state.running)
        try:
            return self.complete(asked)
        finally:
            with self.state.lock:
                self.state.running -= 1
                self.state.most = self.state.most if self.state.running else 0

    def complete(self, asked):
        """A stream: the first token, then two or three at a time."""
        state, tokens = self.state, asked["max_tokens"]
        prompt = sum(len(one["content"].split()) for one in asked["messages"])
        pause_s, left = 1 / state.pace(), tokens
        if asked.get("stream"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.tell({"role": "assistant", "content": ""})
        step = 1
        while left > 0:
            step = min(step, left)
            time.sleep(pause_s * step)
            said = range(tokens - left, tokens - left + step)
            left -= step
            self.tell({"content": "".join(f"word{at} " for at in said)})
            step = 2 if step == 3 else 3
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
        usage["total_tokens"] = prompt + tokens
        state.answered(tokens)
        self.event([{"index": 0, "delta": {}, "finish_reason": "length"}])
        self.event([], usage=usage)
        self.wfile.write(b"data: [DONE]\n\n")

    def tell(self, delta):
        self.event([{"index": 0, "delta": delta}])

    def event(self, choices, **more):
        self.wfile.write(f"data: {json.dumps({'choices': choices, **more})}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = False  # an order to stop waits for the answers under way


def end_with(worker):
    """A worker that dies takes the server with it."""
    worker.wait()
    if not Handler.state.stopping:
        os._exit(1)


def main():
    options = prepare_server_args(sys.argv[1:])
    Handler.state = state = State(options)
    server = Server((options.host, options.port), Handler)
    workers = start_workers(options.tp_size if options.tp_size > 1 else 0)
    for worker in workers:
        threading.Thread(target=end_with, args=(worker,), daemon=True).start()
    if options.speculative_algorithm:
        v1 = "Spec v1 is used for eagle/eagle3 speculative decoding."
        v2 = "Spec v2 is enabled for eagle/eagle3 speculative decoding and overlap schedule."
        print(v1 if options.disable_overlap_schedule else v2, flush=True)
    print("The server is fired up and ready to roll!", flush=True)

    def stop(*_):
        state.stopping = True
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, stop)
    server.serve_forever(0.05)
    server.server_close()
    for worker in workers:
        worker.kill()


if __name__ == "__main__":
    main()
