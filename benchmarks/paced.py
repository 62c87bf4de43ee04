"""A server for the client benchmarks: one event a stream every step, its send time in its text.

    python benchmarks/paced.py [--step-ms 25] [--staggered]

It prints its port. Events are some 330 bytes in the form of a chat completion, a word each: the
monotonic time at which it was sent. All streams step together, as those of one batch do;
staggered, each stream has a phase of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from typing import cast

import httptools
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BEGIN = (
    b'data: {"id":"0123456789abcdef0123456789abcdef","object":"chat.completion.chunk",'
    b'"created":1764460000,"model":"m","choices":[{"index":0,"delta":{"role":null,"content":"'
)
END = (
    b'","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":%s,'
    b'"matched_stop":null}]}\n\n'
)
GOES_ON, ENDS = END % b"null", END % b'"length"'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Stream(asyncio.Protocol):
    """One connection, one request."""

    step_s = 0.025
    staggered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.left = self.total = json.loads(self.body)["max_tokens"]
        self.transport.write(HEAD)
        loop = asyncio.get_running_loop()
        phase_s = random.random() * self.step_s if self.staggered else 0.0
        self.due_s = (loop.time() // self.step_s + 2) * self.step_s + phase_s
        loop.call_at(self.due_s, self.step)

    def step(self) -> None:
        if self.transport.is_closing():
            return
        self.left -= 1
        word = b"%.9f " % time.monotonic()
        self.transport.write(chunk(BEGIN + word + (GOES_ON if self.left else ENDS)))
        if self.left:
            self.due_s += self.step_s
            asyncio.get_running_loop().call_at(self.due_s, self.step)
            return
        usage = {"prompt_tokens": 9, "completion_tokens": self.total}
        told = json.dumps({"choices": [], "usage": usage}).encode()
        tail = chunk(b"data: %s\n\n" % told) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        self.transport.write(tail)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Stream, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--step-ms", type=float, default=25)
    parser.add_argument("--staggered", action="store_true")
    options = parser.parse_args()
    Stream.step_s, Stream.staggered = options.step_ms / 1000, options.staggered
    uvloop.run(serve())
