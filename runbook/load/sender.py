"""One request of a plan from connect to its record; loops say when which one is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson

from runbook.load.answer import AnswerReader, doubt_usage
from runbook.load.exchange import Exchange
from runbook.load.plan import LoadPlan
from runbook.load.records import Prompt, Record
from runbook.redaction import redact, remember

T = TypeVar("T", str, str | None)

#: Bound of an answer's body: this much, and this much for each token asked for.
_BODY_BYTES, _BODY_BYTES_PER_TOKEN = 1024 * 1024, 4096
#: What a connection does after an answer that is complete is not the answer's fault.
_AFTER_THE_END = ("reset", "malformed")
#: Pieces parsed before the event loop is given back to the streams that still run.
_SLICE = 32


class Sender:
    """Sends the requests of a plan; hands each record to ``emit`` when its request has ended."""

    def __init__(self, plan: LoadPlan, emit: Callable[[Record], None]) -> None:
        self._plan = plan
        self._emit = emit
        self._key = read_key(plan.api_key_file) if plan.api_key_file else None
        self._requests = {prompt.id: self._render(prompt) for prompt in plan.prompts}
        self._readers: set[asyncio.Task[None]] = set()
        self._reading = asyncio.Lock()

    async def drain(self) -> None:
        """Wait until every ended request has its record."""
        while self._readers:
            await asyncio.gather(*self._readers)

    async def send(self, prompt: Prompt, scheduled_s: float) -> bool:
        """One request; its bytes are read in a task of their own. Whether a connection came."""
        loop = asyncio.get_running_loop()
        plan = self._plan
        limit = _BODY_BYTES + _BODY_BYTES_PER_TOKEN * plan.output_tokens
        exchange = Exchange(self._requests[prompt.id], limit, loop.create_future())
        address = urlsplit(plan.url)
        secure = address.scheme == "https"
        try:
            async with asyncio.timeout(plan.request_timeout_s):
                await loop.create_connection(
                    lambda: exchange,
                    address.hostname or "",
                    address.port or (443 if secure else 80),
                    ssl=secure or None,
                )
                # Shielded: what cancels this wait must not cancel the exchange's own future.
                await asyncio.shield(exchange.ended)
        except TimeoutError:
            exchange.fail(
                "connect" if exchange.sent_s is None else "timeout",
                f"no end within {plan.request_timeout_s:g} s",
            )
        except OSError as error:
            exchange.fail("connect", f"no connection: {error}")
        except asyncio.CancelledError:
            exchange.fail("cut", "the load was ended early by the caller")
            raise
        finally:
            reader = loop.create_task(self._read(prompt, scheduled_s, exchange))
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)
        return exchange.sent_s is not None

    async def _read(self, prompt: Prompt, scheduled_s: float, exchange: Exchange) -> None:
        """Parse what one exchange kept and emit its record."""
        reader = AnswerReader()
        pieces = exchange.pieces if exchange.status in (None, 200) else []
        # One at a time: a hundred that end together would each take their slice in one turn.
        async with self._reading:
            for number, (stamp_s, piece) in enumerate(pieces):
                if number % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
                reader.feed(stamp_s, piece)
        answer = reader.finish(pieces[-1][0] if pieces else scheduled_s, exchange.whole)
        exchange.pieces = []
        kind, error = exchange.kind, exchange.message
        if kind is None or (kind in _AFTER_THE_END and answer.is_complete):
            kind, error = answer.error_kind, answer.error
        doubt = doubt_usage(answer, self._plan.output_tokens)
        self._emit(
            Record(
                prompt_id=prompt.id,
                scheduled_s=scheduled_s,
                sent_s=exchange.sent_s,
                first_byte_s=exchange.first_byte_s,
                first_token_s=answer.first_token_s,
                first_answer_s=answer.first_answer_s,
                last_token_s=answer.last_token_s,
                end_s=answer.last_event_s if kind is None else exchange.end_s,
                tokens_in=answer.tokens_in,
                tokens_out=None if doubt else answer.tokens_out,
                tokens_cached=answer.tokens_cached,
                tokens_first=None if doubt else answer.tokens_first,
                verify_steps=None if doubt else answer.verify_steps,
                longest_gap_s=answer.longest_gap_s,
                chunks=answer.chunks,
                doubt=doubt,
                finish_reason=self._without_key(answer.finish_reason, cut=True),
                status=exchange.status,
                error=self._without_key(error, cut=True),
                error_kind=kind,
                text=self._without_key(answer.text),
                calls=self._without_key(answer.calls),
                reasoning=self._without_key(answer.reasoning),
                kind=prompt.kind,
            )
        )

    def _without_key(self, text: T, cut: bool = False) -> T:
        return redact(text, (self._key,), cut) if self._key and text else text

    def _render(self, prompt: Prompt) -> bytes:
        """The request of one prompt, ready to send."""
        plan = self._plan
        fields: dict[str, Any] = {
            "model": plan.model,
            "messages": prompt.messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": plan.output_tokens,
            "temperature": plan.temperature,
            "seed": plan.seed,
            **({"tools": prompt.tools} if prompt.tools else {}),
            **plan.extra,
        }
        body = orjson.dumps(fields)
        address = urlsplit(plan.url)
        lines = [
            f"POST {address.path.rstrip('/')}/v1/chat/completions HTTP/1.1",
            f"Host: {address.netloc.rpartition('@')[2]}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        if self._key:
            lines.append(f"Authorization: Bearer {self._key}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_key(path: str) -> str:
    """The API key in a file. Raises ``ValueError`` when that is no single printable line."""
    key = Path(path).read_text(encoding="utf-8").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ValueError(f"{path} holds no key of one printable line")
    remember(key)
    return key
