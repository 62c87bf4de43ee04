"""A stand-in for an LLM server: OpenAI-like streaming, and faults on request.

usage: standin_server.py PORT [--load S] [--model ID] [--die-after S] [--exit CODE] [--deaf]
       [--children N] [--workers N] [--hang-after N] [--dead-inside] [--one-token] [--no-health]
       [--drain S] [--no-drain] [--fill-shm MIB] [--chatter LINES] [--stumble FILE]
       [--stumble-while FILE] [--full-while FILE] [--no-metrics]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("--load", type=float, default=0.0)
parser.add_argument("--model", default="standin")
parser.add_argument("--speculation", default="none")
parser.add_argument("--die-after", type=float)
parser.add_argument("--exit", type=int)
parser.add_argument("--stumble", type=Path, help="take this file away and die")
parser.add_argument("--stumble-while", type=Path, help="die while this file is there")
parser.add_argument("--full-while", type=Path, help="work on for others alone")
parser.add_argument("--no-metrics", action="store_true")
parser.add_argument("--deaf", action="store_true")
parser.add_argument("--children", type=int, default=0)
parser.add_argument("--hang-after", type=int)
parser.add_argument("--one-token", action="store_true")
parser.add_argument("--no-health", action="store_true")
parser.add_argument("--drain", type=float, default=0.0)
parser.add_argument("--no-drain", action="store_true")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--dead-inside", action="store_true")
parser.add_argument("--fill-shm", type=int, default=0)
parser.add_argument("--chatter", type=int, default=0)
options, rest = parser.parse_known_args()

began = time.monotonic()
key_file = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent"), "api-key")
key = key_file.read_text().strip() if key_file.exists() else None
served = under_way = decoded = 0
lock = threading.Lock()


def loading():
    return time.monotonic() - began < options.load


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, form, *values):
        print(form % values, flush=True)

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            return self.answer(404 if options.no_health else 503 if loading() else 200, {})
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            return self.answer(401, {"error": "no key"})
        if self.path == "/metrics" and not options.no_metrics:
            return self.tell_counters()
        if self.path == "/v1/models":
            return self.answer(200, {"data": [{"id": options.model}]})
        if self.path == "/info":
            return self.answer(200, {"model": options.model, "speculation": options.speculation})
        return self.answer(404, {})

    def tell_counters(self):
        global decoded
        if options.full_while and options.full_while.exists():
            decoded += 1
        counted = f"llamacpp:n_decode_total {decoded}\nllamacpp:requests_processing {under_way}\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(counted)))
        self.end_headers()
        self.wfile.write(counted.encode())

    def do_POST(self):
        global served, under_way
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length))
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            return self.answer(401, {"error": "no key"})
        if loading():
            return self.answer(503, {"error": "loading"})
        with lock:
            served += 1
            number = served
        while options.full_while and options.full_while.exists():
            time.sleep(0.05)
        if options.dead_inside or (options.hang_after is not None and number > options.hang_after):
            time.sleep(3600)
        with lock:
            under_way += 1
        try:
            return self.complete(body)
        finally:
            with lock:
                under_way -= 1

    def complete(self, body):
        global decoded
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = 1 if options.one_token else min(body.get("max_tokens", 8), 64)
        for at in range(count):
            self.event({"choices": [{"delta": {"content": f"w{at} "}, "finish_reason": None}]})
            decoded += 1
            time.sleep(0.01 if count > 32 else 0)
        self.event({"choices": [{"delta": {}, "finish_reason": "length"}]})
        self.event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": count}})
        self.chunk(b"data: [DONE]\n\n")
        return self.chunk(b"")

    def event(self, value):
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n" % len(data) + data + b"\r\n")


def stop(*_):
    if options.drain:
        time.sleep(options.drain)
    while under_way and not options.no_drain:
        time.sleep(0.01)
    print("drained", flush=True)
    os._exit(0)


signal.signal(signal.SIGTERM, signal.SIG_IGN if options.deaf else stop)
if options.die_after is not None:
    threading.Timer(options.die_after, lambda: os._exit(9)).start()
if options.stumble and options.stumble.exists():
    options.stumble.unlink()
    sys.exit("stumbled")
if options.stumble_while and options.stumble_while.exists():
    sys.exit("stumbled")
if options.exit is not None:
    print("dying at once", flush=True)
    sys.exit(options.exit)
own = {**os.environ, "SET_BY_SERVER": "1", "ITS_TOKEN": "hidden"}


def start_child():
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], env=own)


for _ in range(options.children):
    start_child()
workers = [start_child() for _ in range(options.workers)]


def watch():
    while all(worker.poll() is None for worker in workers):
        time.sleep(0.1)
    print("a worker is gone", flush=True)
    os._exit(1)


if workers:
    threading.Thread(target=watch, daemon=True).start()
if options.fill_shm:
    Path("/dev/shm", f"leftover-{os.getpid()}").write_bytes(bytes(options.fill_shm << 20))
print("\n".join(f"chatter {at}" for at in range(options.chatter)), flush=True)
print(f"stand-in serves {options.model} on {options.port}", flush=True)
server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
server.serve_forever()
