"""Stands in for the wheel of llama.cpp in tests: its pages and counters at once, and no model.

The launcher, the unit and everything that looks at the server are the real ones. It answers with
the words of the prompt, counted, a word a token: nothing repeats, and another prompt gets another
answer.
Where a speculation is asked for, half of what is drafted is accepted. With STANDIN_ECHOES in its
environment it shows its API key on every page, in every answer and in its log.
"""

import base64
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace as Fields

#: What a token takes: long enough that a cell at work can be seen and killed.
TOKEN_S = 0.01


class common_speculative_type:
    COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE = "ngram-simple"


class CommonParams(Fields):
    """What the launcher sets, and those that it sets parts of."""

    def __init__(self):
        draft = Fields(mparams=Fields(), cpuparams=Fields(), cpuparams_batch=Fields())
        speculative = Fields(types=[], ngram_simple=Fields(), draft=draft)
        super().__init__(model=Fields(), cpuparams=Fields(), cpuparams_batch=Fields())
        self.speculative, self.api_keys = speculative, []


class Server:
    """Listens when it is made."""

    def __init__(self, parameters):
        self.parameters, self.lock = parameters, threading.Lock()
        self.predicted = self.drafted = self.running = 0
        self.used = False
        handler = type("Handler", (_Handler,), {"server_of_model": self})
        listener = ThreadingHTTPServer((parameters.hostnames[0], parameters.port), handler)
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        if self.echo:
            print(f"listening; api_keys={self.echo}", file=sys.stderr, flush=True)

    @property
    def echo(self):
        """What is shown of the key, where it is shown."""
        keys = list(self.parameters.api_keys)
        return keys[0] if keys and "STANDIN_ECHOES" in os.environ else ""

    @property
    def alias(self):
        return next(iter(self.parameters.model_alias))

    @property
    def speculates(self):
        return bool(self.parameters.speculative.types)

    def slots(self):
        kinds = self.parameters.speculative.types or ["none"]
        settings = {"params": {"speculative.types": ",".join(kinds)}} if self.used else {}
        return [
            {"id": at, "is_processing": at < self.running, "speculative": self.speculates}
            | settings
            for at in range(self.parameters.n_parallel)
        ]

    def properties(self):
        return {
            "model_alias": self.alias,
            "model_path": self.parameters.model.path,
            "model_ftype": f"all F32 {self.echo}".rstrip(),
            "total_slots": self.parameters.n_parallel,
            "build_info": f"a stand-in {self.echo}".rstrip(),
            "default_generation_settings": {
                "n_ctx": self.parameters.n_ctx // self.parameters.n_parallel
            },
        }

    def metrics(self):
        drafts = self.drafted if self.speculates else 0
        counts = {
            "tokens_predicted_total": self.predicted,
            "spec_decode_num_draft_tokens_total": drafts,
            "spec_decode_num_accepted_tokens_total": drafts // 2,
            "spec_decode_num_drafts_total": drafts // 2,
        }
        label = f'# HELP key {self.echo}\nseen{{key="{self.echo}"}} 1\n' if self.echo else ""
        return label + "".join(f"llamacpp:{name} {count}\n" for name, count in counts.items())

    def begin(self):
        with self.lock:
            self.running, self.used = self.running + 1, True

    def end(self, tokens):
        with self.lock:
            self.running -= 1
            self.predicted += tokens
            self.drafted += tokens // 2


class _Handler(BaseHTTPRequestHandler):
    server_of_model: Server

    def log_message(self, *_):
        pass

    def send(self, status, body, kind="application/json"):
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if self.server_of_model.echo:
            self.send_header("X-Seen", f"Bearer {self.server_of_model.echo}")
        self.end_headers()
        self.wfile.write(data)

    def refused(self):
        keys = self.server_of_model.parameters.api_keys
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        public = self.path in ("/health", "/v1/models")
        return bool(keys) and not public and given not in keys

    def do_GET(self):
        if self.refused():
            return self.send(401, '{"error": "Invalid API Key"}')
        server = self.server_of_model
        pages = {
            "/health": lambda: json.dumps({"status": "ok"}),
            "/v1/models": lambda: json.dumps({"data": [{"id": server.alias}]}),
            "/props": lambda: json.dumps(server.properties()),
            "/slots": lambda: json.dumps(server.slots()),
            "/metrics": server.metrics,
        }
        page = pages.get(self.path)
        return self.send(200, page()) if page else self.send(404, "{}")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if self.refused():
            return self.send(401, '{"error": "Invalid API Key"}')
        words = " ".join(one["content"] for one in asked["messages"]).split()
        count = asked.get("max_tokens", 16)
        answer = [f"{words[at % len(words)]}-{at} " for at in range(count)]
        if key := self.server_of_model.echo:
            shown = ["Bearer ", key[:7], key[7:], f" {base64.b64encode(key.encode()).decode()} "]
            answer[: len(shown)] = shown[:count]
        self.server_of_model.begin()
        sent = 0
        try:
            if not asked.get("stream"):
                time.sleep(TOKEN_S * len(answer))
                sent = len(answer)
                return self.send(200, json.dumps(self.whole("".join(answer), words, sent)))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for word in answer:
                time.sleep(TOKEN_S)
                self.event({"content": word})
                sent += 1
            self.event({}, "length", usage(words, sent))
            return self.wfile.write(b"data: [DONE]\n\n")
        except OSError:  # the client hung up
            return None
        finally:
            self.server_of_model.end(sent)

    def whole(self, text, words, sent):
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        return {"choices": [choice], "usage": usage(words, sent)}

    def event(self, delta, finish=None, told=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        value = {"choices": [choice]} | ({"usage": told} if told else {})
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


def usage(words, tokens):
    return {"prompt_tokens": len(words), "completion_tokens": tokens}
