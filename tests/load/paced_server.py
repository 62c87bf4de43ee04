"""A paced OpenAI-style server on real sockets: ``python paced_server.py [--step-ms 5]``.

It can also stand for a server that is benchmarked: see its options.

It prints its port. Each step writes one event of ``tokens_per_event`` tokens to every running
stream. A request chooses what it gets by fields of its own in the body:

    shape             a name of SHAPES: the raw bytes of a misbehaving server
    byte_by_byte      the answer goes out one byte a packet
    tokens            what the answer stops at (default: max_tokens)
    tokens_per_event, thoughts (how many of the tokens are reasoning)

``GET /stats`` tells what it saw; ``GET /health`` answers 200.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import struct
import sys
import time
from typing import ClassVar

import httptools
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
OPEN_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: object, end: bytes = b"\n\n", field: bytes = b"data: ") -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return field + data + end


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def usage(tokens: int, prompt: int = 7, **more: object) -> dict[str, object]:
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": tokens, **more}}


def plain(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status.encode(),
        len(body),
        body,
    )


DONE = event(b"[DONE]")
ROLE = event(delta(role="assistant", content=""))
ANSWER = [event(delta(content=word)) for word in ("one", " two", " three")]
FINISH = event(delta(finish="length"))
COMPLETE = [ROLE, *ANSWER, FINISH, event({"choices": [], **usage(3)}), DONE]


def whole(*events: bytes) -> list[bytes]:
    """A proper chunked response, each event a packet."""
    return [HEAD, *(chunk(one) for one in events), b"0\r\n\r\n"]


def unframed(*parts: bytes) -> list[bytes | str]:
    """A response that ends with the connection."""
    return [OPEN_HEAD, *parts, "close"]


UNTIL_USAGE = [HEAD, *(chunk(one) for one in COMPLETE[:-1])]
UNTIL_DONE = [*UNTIL_USAGE, chunk(DONE)]

#: What goes over the wire. Text is an action: close, reset, hang, flood, endless, drip, pause (of
#: 0.7 s), trailers (one after the other), trailer (one without an end).
SHAPES: dict[str, list[bytes | str]] = {
    "complete": [*whole(*COMPLETE)],
    "usage-choices-null": [*whole(*ANSWER, FINISH, event({"choices": None, **usage(3)}), DONE)],
    "usage-choices-missing": [*whole(*ANSWER, FINISH, event(usage(3)), DONE)],
    "usage-with-finish": [*whole(*ANSWER, event({**delta(finish="stop"), **usage(3)}), DONE)],
    "usage-null": [*whole(*ANSWER, FINISH, event({"choices": [], "usage": None}), DONE)],
    "usage-nonsense": [
        *whole(
            *ANSWER, FINISH, event({"usage": {"completion_tokens": "3", "prompt_tokens": -1}}), DONE
        )
    ],
    "usage-cached": [
        *whole(*ANSWER, FINISH, event(usage(3, prompt_tokens_details={"cached_tokens": 5})), DONE)
    ],
    "usage-continuous": [
        *whole(
            *(event({**delta(content="x"), **usage(n)}) for n in (2, 4, 6)),
            FINISH,
            event(usage(6)),
            DONE,
        )
    ],
    "no-usage": [*whole(ROLE, *ANSWER, FINISH, DONE)],
    "reasoning-only": [
        *whole(
            ROLE,
            *(event(delta(content=None, reasoning_content="hm")) for _ in range(4)),
            FINISH,
            event(usage(4)),
            DONE,
        )
    ],
    "reasoning-other-key": [
        *whole(
            ROLE, *(event(delta(reasoning="hm")) for _ in range(4)), FINISH, event(usage(4)), DONE
        )
    ],
    "reasoning-then-content": [
        *whole(ROLE, event(delta(reasoning_content="hm")), *ANSWER, FINISH, event(usage(4)), DONE)
    ],
    "tool-call": [
        *whole(
            ROLE,
            event(delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}])),
            event(delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a": 1}'}}])),
            event(delta(finish="tool_calls")),
            event(usage(9)),
            DONE,
        )
    ],
    "delta-null": [
        *whole(
            event({"choices": [{"delta": None, "finish_reason": None}]}),
            *ANSWER,
            FINISH,
            event(usage(3)),
            DONE,
        )
    ],
    "no-answer-text": [*whole(ROLE, event(delta(finish="stop")), event(usage(1)), DONE)],
    "error-in-stream": [
        *whole(
            ROLE,
            *ANSWER,
            event({"error": {"object": "error", "message": "KV cache is full", "code": 503}}),
            DONE,
        )
    ],
    "error-first": [*whole(event({"error": {"message": "no slot"}}), DONE)],
    "error-without-wrapper": [
        *whole(event({"object": "error", "message": "too long", "code": 400}))
    ],
    "error-text": [*whole(event({"error": "out of memory"}), DONE)],
    "error-as-json": [plain("200 OK", b'{"error": {"message": "no model"}}')],
    "abort": [*whole(*ANSWER, event(delta(finish="abort")), event(usage(3)), DONE)],
    "cut-framed": [HEAD, *(chunk(one) for one in ANSWER), "close"],
    "cut-unframed": unframed(*ANSWER),
    "cut-in-event": [HEAD, chunk(ANSWER[0]), chunk(ANSWER[1][:20]), "close"],
    "cut-after-finish": [HEAD, chunk(ANSWER[0]), chunk(FINISH), "close"],
    "done-without-finish": [*whole(*ANSWER, event(usage(3)), DONE)],
    "no-done": [*whole(*ANSWER, FINISH, event(usage(3)))],
    "no-done-unframed": unframed(*ANSWER, FINISH, event(usage(3))),
    "close-after-done": [HEAD, *(chunk(one) for one in COMPLETE), "close"],
    "late-close-after-done": [*UNTIL_DONE, "pause", "close"],
    "late-close-after-done-without-blank": [*UNTIL_USAGE, chunk(DONE[:12]), "pause", "close"],
    "late-close-without-done": [*UNTIL_USAGE, "pause", b"0\r\n\r\n"],
    "drip-after-done": [*UNTIL_DONE, "drip"],
    "hang-after-done": [*UNTIL_DONE, "hang"],
    "reset-after-done": [*UNTIL_DONE, "reset"],
    "done-in-two-reads": [*UNTIL_USAGE, chunk(DONE[:8]), chunk(DONE[8:]), "pause", "close"],
    "done-without-space": [*UNTIL_USAGE, chunk(b"data:[DONE]\r\n\r\n"), "pause", "close"],
    "bytes-after-done": [*whole(*COMPLETE, b"\x00 no event\n\n", event({"error": "late"}))],
    "bytes-behind-done": [*whole(b"".join([*COMPLETE, b"data: <html>bye</html>\n\n"]))],
    "done-within-text": [
        *whole(event(delta(content="\ndata: [DONE]\n\n")), *ANSWER, FINISH, event(usage(9)), DONE)
    ],
    "reset-after-usage": [*UNTIL_USAGE, "reset"],
    "close-after-usage": [*UNTIL_USAGE, "close"],
    "no-http-after-usage": [*UNTIL_USAGE, b"no chunk\r\n", "hang"],
    "hang-after-usage": [*UNTIL_USAGE, "hang"],
    "drip-after-usage": [*UNTIL_USAGE, "drip"],
    "trailers-drip": [*UNTIL_USAGE, b"0\r\n", "trailers"],
    "trailer-endless": [*UNTIL_USAGE, b"0\r\nx-pad: ", "trailer"],
    "bang": [*whole(ROLE, *[event(delta(content="!"))] * 8, FINISH, event(usage(8)), DONE)],
    "bang-thought": [
        *whole(ROLE, *[event(delta(reasoning="!"))] * 8, FINISH, event(usage(8)), DONE)
    ],
    "mute": [*whole(ROLE, *[event(delta(content=""))] * 8, FINISH, event(usage(8)), DONE)],
    "blank": [*whole(ROLE, *[event(delta(content="\n"))] * 8, FINISH, event(usage(8)), DONE)],
    "usage-beyond-asked": [*whole(*ANSWER, FINISH, event(usage(10**9)), DONE)],
    "usage-twice-asked": [*whole(*ANSWER, FINISH, event(usage(16)), DONE)],
    "usage-one-more": [*whole(*ANSWER, FINISH, event(usage(9)), DONE)],
    "reset-in-stream": [HEAD, chunk(ANSWER[0]), "reset"],
    "reset-at-once": ["reset"],
    "close-at-once": ["close"],
    "silence": ["hang"],
    "silence-after-head": [HEAD, "hang"],
    "silence-in-stream": [HEAD, chunk(ROLE), chunk(ANSWER[0]), "hang"],
    "garbage": [b"\x00\x01\x02 this is no HTTP\r\n\r\n", "close"],
    "garbage-body": [*whole(b"\xff\xfe<html>busy</html>\n\n")],
    "garbage-event": [*whole(*ANSWER, event(b'{"choices": [{"del'), FINISH, DONE)],
    "event-no-object": [*whole(*ANSWER, event([1, 2]), FINISH, DONE)],
    "bad-utf8": [*whole(*ANSWER, event(b'{"choices": "\xff\xfe"}'), FINISH, DONE)],
    "huge-event": [HEAD, "flood"],
    "endless": [HEAD, "endless"],
    "drip": [HEAD, "drip"],
    "huge-head": [b"HTTP/1.1 200 OK\r\nx-pad: " + b"a" * 600_000 + b"\r\n\r\n", "hang"],
    "comments": [
        *whole(
            b": ping\n\n",
            ROLE,
            b":\n\n",
            *ANSWER,
            b": keep-alive\n\n",
            FINISH,
            event(usage(3)),
            DONE,
        )
    ],
    "other-fields": [
        *whole(
            b"event: message\nid: 1\nretry: 5\n" + ANSWER[0],
            *ANSWER[1:],
            FINISH,
            event(usage(3)),
            DONE,
        )
    ],
    "crlf": [*whole(*(one.replace(b"\n", b"\r\n") for one in COMPLETE))],
    "no-blank": [*whole(*(one.replace(b"data: ", b"data:") for one in COMPLETE))],
    "one-packet": [b"".join(whole(*COMPLETE))],
    "one-chunk": [*whole(b"".join(COMPLETE))],
    "two-data-lines": [
        *whole(
            b'data: {"choices": [{"delta":\ndata: {"content": "one two three"}}]}\n\n',
            FINISH,
            event(usage(3)),
            DONE,
        )
    ],
    "no-final-newline": unframed(*COMPLETE[:-1], b"data: [DONE]"),
    "status-400-plain": [
        plain("400 Bad Request", b'{"object":"error","message":"too long","code":400}')
    ],
    "status-400-wrapped": [plain("400 Bad Request", b'{"error":{"message":"bad model"}}')],
    "status-422-detail": [plain("422 Unprocessable", b'{"detail":"no messages"}')],
    "status-500-html": [plain("500 Oops", b"<html>oops</html>")],
    "status-503-empty": [plain("503 Service Unavailable", b"")],
    "status-redirect": [plain("307 Temporary Redirect", b"")],
    "interim-100": [b"HTTP/1.1 100 Continue\r\n\r\n", *whole(*COMPLETE)],
}


class Paced(asyncio.Protocol):
    """One connection."""

    running: ClassVar[set[Paced]] = set()
    stats: ClassVar[dict[str, int]] = {
        "requests": 0,
        "max_running": 0,
        "same_prompt_twice": 0,
        "authorized": 0,
        "predicted": 0,
        "accepted": 0,
        "with_tools": 0,
        "with_images": 0,
    }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""
        self.prompt = ""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.running.discard(self)

    def on_url(self, url: bytes) -> None:
        self.path = url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"authorization" and value == b"Bearer sk-of-the-test":
            self.stats["authorized"] += 1

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if self.path == "/v1/chat/completions":
            self.answer(json.loads(self.body))
        else:
            stats = self.stats if self.path == "/stats" else {}
            self.transport.write(plain("200 OK", json.dumps(stats).encode()))

    def answer(self, body: dict) -> None:
        self.stats["requests"] += 1
        if self.stats["requests"] == options.die_at:
            asyncio.get_running_loop().call_later(0.02, os._exit, 1)
        every = options.shape_every and self.stats["requests"] % options.shape_every == 0
        if "shape" in body or every:
            shape = SHAPES[body.get("shape", options.shape)]
            self.play = asyncio.ensure_future(self.perform(shape))
            return
        self.one_by_one = body.get("byte_by_byte", False)
        if self.one_by_one:
            parts = b"".join(part for part in SHAPES["complete"] if isinstance(part, bytes))
            self.play = asyncio.ensure_future(
                self.perform([parts[at : at + 1] for at in range(len(parts))], 0.0005)
            )
            return
        self.prompt = json.dumps(body["messages"])
        if options.die_over and len(self.prompt) > options.die_over:
            print("AssertionError: not disable_chunked_prefix_cache", file=sys.stderr, flush=True)
            os._exit(1)
        self.stats["with_tools"] += bool(body.get("tools"))
        self.stats["with_images"] += '"image_url"' in self.prompt
        self.stats["same_prompt_twice"] += any(one.prompt == self.prompt for one in self.running)
        self.left = body.get("tokens") or body["max_tokens"]
        self.thoughts = body.get("thoughts", 0)
        self.per_event = body.get("tokens_per_event", options.tokens_per_event)
        self.total = self.left
        self.asked_usage = body.get("stream_options", {}).get("include_usage")
        self.running.add(self)
        self.stats["max_running"] = max(self.stats["max_running"], len(self.running))
        self.transport.write(HEAD + chunk(ROLE))

    def step(self) -> None:
        tokens = min(self.per_event, self.left)
        key = "reasoning_content" if self.total - self.left < self.thoughts else "content"
        self.left -= tokens
        self.stats["predicted"] += tokens
        self.stats["accepted"] += tokens - 1
        first = self.total - self.left - tokens + 1
        said = "".join(f" w{n}" for n in range(first, first + tokens))
        out = chunk(event({**delta(**{key: said}), "sent_s": time.monotonic()}))
        if not self.left:
            tail = [FINISH, DONE]
            if self.asked_usage:
                tail.insert(1, event({"choices": [], **usage(self.total, len(self.prompt))}))
            out += b"".join(chunk(one) for one in tail) + b"0\r\n\r\n"
            self.running.discard(self)
        self.transport.write(out)

    async def perform(self, shape: list[bytes | str], pause_s: float = 0.002) -> None:
        for part in shape:
            if isinstance(part, bytes):
                self.transport.write(part)
                await asyncio.sleep(pause_s)
            elif part == "close":
                self.transport.close()
            elif part == "reset":
                linger = struct.pack("ii", 1, 0)
                sock = self.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.transport.abort()
            elif part == "flood":
                await self.flood()
            elif part == "endless":
                await self.write_on(chunk(ANSWER[0] * 500))
            elif part == "drip":
                await self.write_on(chunk(b":"), 0.05)
            elif part == "pause":
                await asyncio.sleep(0.7)
            elif part == "trailers":
                await self.write_on(b"x: y\r\n", 0.05)
            elif part == "trailer":
                await self.write_on(b"a" * 65536)

    async def write_on(self, part: bytes, pause_s: float = 0.001) -> None:
        """The same again and again, until the far side has gone."""
        while not self.transport.is_closing():
            self.transport.write(part)
            await asyncio.sleep(pause_s)

    async def flood(self) -> None:
        """One event of 10 MB, as fast as it is taken."""
        self.transport.write(chunk(b"data: "))
        for _ in range(160):
            if self.transport.is_closing():
                return
            self.transport.write(chunk(b"x" * 65536))
            while self.transport.get_write_buffer_size() and not self.transport.is_closing():
                await asyncio.sleep(0.001)


async def serve(port: int, step_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(Paced, "127.0.0.1", port, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    due_s = time.monotonic()
    while True:
        for stream in list(Paced.running):
            stream.step()
        due_s = max(due_s + step_s, time.monotonic() - step_s)
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))


def read_options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--step-ms", type=float, default=5)
    parser.add_argument("--tokens-per-event", type=int, default=1)
    parser.add_argument("--shape", choices=SHAPES, help="what every so manyth answer looks like")
    parser.add_argument("--shape-every", type=int, default=0)
    parser.add_argument("--die-at", type=int, help="number of the request it dies of")
    parser.add_argument("--die-over", type=int, help="a prompt of more characters is its end")
    parser.add_argument("--served", help="a model, which nobody reads")
    parser.add_argument("--refuse", action="store_true", help="end at once with an error")
    return parser.parse_args(arguments)


options = read_options([])

if __name__ == "__main__":
    options = read_options(sys.argv[1:])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.refuse:
        sys.exit("no such model")
    uvloop.run(serve(options.port, options.step_ms / 1000))
