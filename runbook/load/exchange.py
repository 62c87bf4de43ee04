"""One request on one connection: bytes out, stamped bytes in, and how it ended."""

from __future__ import annotations

import asyncio
import re
import time
from typing import cast

import httptools
import orjson

from runbook.load.answer import MAX_ERROR_CHARACTERS, error_message
from runbook.load.records import ErrorKind

#: A line of the stream longer than this is no token event; the request ends as ``too_large``.
MAX_LINE_BYTES = 1024 * 1024
_MAX_ERROR_BODY_BYTES = 64 * 1024
_MAX_HEAD_BYTES = 256 * 1024
#: All that may come, trailers and sizes of chunks included, is so often the bound of the body.
_RAW_SHARE = 2
#: The end of a stream: a line of its own. No JSON holds it, for no JSON text holds a raw newline.
_DONE, _DONE_LINE = b"[DONE]", re.compile(rb"(?:\A|\n)data: ?\[DONE\]")
_DONE_BYTES = len(b"data: [DONE]")


class Exchange(asyncio.Protocol):
    """Keeps what arrives with the time it arrived and parses nothing but HTTP.

    ``ended`` is set once: by ``[DONE]``, whatever the connection does after it, else by the end of
    the response. After it: ``pieces`` holds the body, ``whole`` says whether ``[DONE]`` came or
    HTTP ended properly, ``kind`` and ``message`` are set when the transport or the status was at
    fault.
    """

    def __init__(self, request: bytes, max_body_bytes: int, ended: asyncio.Future[None]) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self.sent_s: float | None = None
        self.first_byte_s: float | None = None
        self.end_s: float | None = None
        self.status: int | None = None
        self.whole = False
        self.kind: ErrorKind | None = None
        self.message: str | None = None
        self.ended = ended
        self._request = request
        self._max_body_bytes = max_body_bytes
        self._body_bytes = 0
        self._line_bytes = 0
        self._line_begin = b""  # of the line that has not ended, as much as [DONE] takes
        self._raw_bytes = 0
        self._most_raw_bytes = _MAX_HEAD_BYTES  # until the head is there
        self._now_s = 0.0
        self._framed = False
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._transport = cast(asyncio.Transport, transport)
        self.sent_s = time.monotonic()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Stamp first, then take HTTP apart."""
        self._now_s = time.monotonic()
        if self.first_byte_s is None:
            self.first_byte_s = self._now_s
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail("malformed", f"the response is no HTTP: {error}")
        self._raw_bytes += len(data)
        if self._raw_bytes > self._most_raw_bytes:
            what = "head" if self.status is None else "response"
            self.fail("too_large", f"a {what} of more than {self._most_raw_bytes} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        """The far side closed or reset, or this side is through with it."""
        # The parser refers back to this object; the collector is off while a load runs.
        del self._parser
        if self.ended.done():
            return
        if exc is not None:
            self.fail("reset", f"the connection was reset: {exc}")
        elif self.status is None:
            self.fail("reset", "the connection closed without an answer")
        else:
            self.whole = not self._framed
            self._end()

    def on_header(self, name: bytes, value: bytes) -> None:
        """See how the body is framed."""
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        """Take the status; an interim 1xx is none."""
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
            self._most_raw_bytes = _MAX_HEAD_BYTES + _RAW_SHARE * self._max_body_bytes

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body, within bounds, up to ``[DONE]``."""
        if self.ended.done():
            return
        self.pieces.append((self._now_s, body))
        self._body_bytes += len(body)
        if self.status != 200:
            if self._body_bytes > _MAX_ERROR_BODY_BYTES:
                self._end()
        elif self._body_bytes > self._max_body_bytes:
            self.fail("too_large", f"an answer of more than {self._max_body_bytes} bytes")
        elif self._line_begin or body[-1:] != b"\n" or _DONE in body:
            # Nearly all pieces are whole lines of an event, and do not come here.
            self._look_at_lines(body)

    def _look_at_lines(self, body: bytes) -> None:
        """End where ``[DONE]`` is on a line of this piece, or a line is too long."""
        if self._has_done(body):
            self.whole = True
            self._end()
        elif self._line_bytes > MAX_LINE_BYTES:
            self.fail("too_large", f"one event of more than {MAX_LINE_BYTES} bytes")

    def _has_done(self, body: bytes) -> bool:
        """Whether ``[DONE]`` is on a line that this piece begins or goes on with."""
        seen = self._line_begin + body if self._line_begin else body
        newline = body.rfind(b"\n")
        if newline < 0:
            self._line_bytes += len(body)
            self._line_begin = seen[:_DONE_BYTES]
        else:
            self._line_bytes = len(body) - newline - 1
            self._line_begin = body[newline + 1 : newline + 1 + _DONE_BYTES]
        return _DONE in seen and _DONE_LINE.search(seen) is not None

    def on_message_complete(self) -> None:
        """The response ended properly."""
        if self.status is not None:
            self.whole = True
            self._end()

    def fail(self, kind: ErrorKind, message: str) -> None:
        """End the exchange as failed; without effect when it has ended."""
        if self.ended.done():
            return
        self.kind = kind
        self.message = message[:MAX_ERROR_CHARACTERS]
        if kind == "too_large":
            self.pieces.clear()
        self._end()

    def _end(self) -> None:
        if self.ended.done():
            return
        self.end_s = time.monotonic()
        if self.status is not None and self.status != 200 and self.kind is None:
            self.kind, self.message = "status", _message_of_body(self.pieces)
        self.ended.set_result(None)
        if self._transport is not None:
            # Not close(): that waits until a stuck far side has read the rest of the request.
            self._transport.abort()


def _message_of_body(pieces: list[tuple[float, bytes]]) -> str:
    """What the body of an HTTP error says: its message, else its first characters."""
    body = b"".join(piece for _, piece in pieces)
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    message = error_message(parsed)
    if message is None and isinstance(parsed, dict):
        message = parsed.get("message") or parsed.get("detail")
    shown = str(message) if message else body.decode("utf-8", "replace").strip()
    return shown[:MAX_ERROR_CHARACTERS] or "an empty body"
