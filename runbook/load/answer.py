"""From the bytes of a streamed chat completion to what it said. Pure: no clock, no socket.

The bytes may come in any pieces. Every piece bears the time it arrived; an event bears the time
of the piece that ended its last ``data`` line. What follows ``[DONE]`` is no part of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from runbook.load.records import ErrorKind

MAX_ERROR_CHARACTERS = 500
_MAX_FINISH_CHARACTERS = 60

#: Output tokens of an answer that may come without a byte of text.
MARK_TOKENS = 32
_DONE = b"[DONE]"
#: Where a server tells the steps of its target, of an event or of a choice.
_STEPS_TOLD = frozenset(("sglext", "timings", "meta_info"))
#: Finish reasons that say the answer is not one.
_BAD_FINISH: dict[str, ErrorKind] = {"abort": "abort", "error": "stream_error"}


@dataclass
class Answer:
    """What a stream said. Token counts are those of ``usage``, ``None`` without one.

    ``tokens_first``: tokens that had come with the first piece of text, where usage is told along
    the stream. ``tokens_hidden``: of reasoning, which need not have been sent. ``verify_steps``:
    steps of the target, where the server tells of them. ``longest_gap_s``: the greatest time from
    one event with text to the next. ``last_event_s``: of the last event, ``[DONE]`` included.
    """

    first_token_s: float | None = None
    first_answer_s: float | None = None
    last_token_s: float | None = None
    last_event_s: float | None = None
    longest_gap_s: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    tokens_first: int | None = None
    tokens_hidden: int = 0
    verify_steps: int | None = None
    chunks: int = 0
    finish_reason: str | None = None
    text: str = ""
    reasoning: str = ""
    calls: str = ""
    done: bool = False
    error: str | None = None
    error_kind: ErrorKind | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all of it came by its own word, whatever the connection does then."""
        told = self.done or self.tokens_out is not None
        return self.error_kind is None and self.finish_reason is not None and told

    def fail(self, kind: ErrorKind, message: str) -> None:
        """Note a failure; the first one counts."""
        if self.error_kind is None:
            self.error_kind = kind
            self.error = message[:MAX_ERROR_CHARACTERS]


@dataclass
class AnswerReader:
    """Reads server-sent events piece by piece; ``finish`` gives the ``Answer``."""

    _answer: Answer = field(default_factory=Answer)
    _rest: bytearray = field(default_factory=bytearray)
    _data: list[bytes] = field(default_factory=list)
    _data_s: float = 0.0
    _gap_s: float = -1.0
    _events: int = 0
    _head: bytes = b""
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _calls: list[str] = field(default_factory=list)

    def feed(self, stamp_s: float, piece: bytes) -> None:
        """Take the next bytes of the body, which arrived at ``stamp_s``."""
        if self._answer.done:
            return
        if not self._events and len(self._head) < MAX_ERROR_CHARACTERS:
            self._head += piece[:MAX_ERROR_CHARACTERS]
        if self._is_one_event(piece):
            self._data_s = stamp_s
            self._take_data(piece[6:-2])
            return
        self._rest += piece
        if b"\n" not in piece:
            return
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            self._take_line(stamp_s, line)

    def finish(self, stamp_s: float, whole: bool) -> Answer:
        """The answer; ``whole`` says whether HTTP ended properly, ``stamp_s`` when it ended."""
        if self._rest:
            self._take_line(stamp_s, bytes(self._rest))
            self._rest.clear()
        self._end_event()
        answer = self._answer
        answer.last_event_s = self._data_s if self._events else None
        answer.longest_gap_s = self._gap_s if self._gap_s >= 0 else None
        answer.text, answer.reasoning = "".join(self._text), "".join(self._reasoning)
        answer.calls = "".join(self._calls)
        if not self._events and self._head:
            self._judge_other_body()
        elif answer.finish_reason is None:
            ended = "[DONE]" if answer.done else "the end of the response" if whole else "a cut"
            answer.fail("cut", f"the stream ended with {ended}, without a finish_reason")
        elif not answer.is_complete and not whole:
            answer.fail("cut", "the connection closed after finish_reason, before usage and [DONE]")
        return answer

    def _is_one_event(self, piece: bytes) -> bool:
        """Whether it is what nearly all pieces are: one event, whole, on a line of its own."""
        whole = piece.startswith(b"data: ") and piece.endswith(b"\n\n")
        return whole and piece.count(b"\n") == 2 and not self._rest and not self._data

    def _take_line(self, stamp_s: float, line: bytes) -> None:
        line = line.removesuffix(b"\r")
        if not line:
            self._end_event()
        elif line.startswith(b"data:") and not self._answer.done:
            data = line[6:] if line[5:6] == b" " else line[5:]
            ends = data.startswith(_DONE)
            if ends:
                self._end_event()
            self._data.append(data)
            self._data_s = stamp_s
            if ends:
                self._end_event()

    def _end_event(self) -> None:
        if self._data:
            data = b"\n".join(self._data)
            self._data.clear()
            self._take_data(data)

    def _take_data(self, data: bytes) -> None:
        data = data.strip()
        self._events += 1
        if data.startswith(_DONE):
            self._answer.done = True
            return
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            shown = data[:120].decode("utf-8", "replace")
            self._answer.fail("malformed", f"an event that is no JSON ({error}): {shown}")
            return
        if isinstance(event, dict):
            self._take_event(event)
        else:
            self._answer.fail("malformed", f"an event that is no object: {str(event)[:120]}")

    def _take_event(self, event: dict[str, Any]) -> None:
        if event.get("error") or event.get("object") == "error":
            self._answer.fail("stream_error", error_message(event) or "an error")
            return
        usage = event.get("usage")
        if usage:
            self._take_usage(usage)
        if not _STEPS_TOLD.isdisjoint(event):
            self._take_steps(event)
        answer, untouched = self._answer, self._answer.first_token_s is None
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._take_choice(choice)
                if not _STEPS_TOLD.isdisjoint(choice):
                    self._take_steps(choice)
        if untouched and usage and answer.first_token_s is not None:
            answer.tokens_first = answer.tokens_out or None

    def _take_steps(self, told: dict[str, Any]) -> None:
        """SGLang tells them as they are; llama.cpp tells the tokens and those that were drafted."""
        extension, timings = told.get("sglext"), told.get("timings")
        nested = extension.get("spec_tokens_details") if isinstance(extension, dict) else None
        for meta in (told.get("meta_info"), nested):
            steps = _count(meta.get("spec_verify_ct")) if isinstance(meta, dict) else None
            self._answer.verify_steps = steps or self._answer.verify_steps
        if isinstance(timings, dict):
            tokens = _count(timings.get("predicted_n"))
            accepted = _count(timings.get("draft_n_accepted"))
            if tokens and accepted is not None and accepted < tokens:
                self._answer.verify_steps = tokens - accepted

    def _take_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        self._answer.tokens_in = _count(usage.get("prompt_tokens"))
        self._answer.tokens_out = _count(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            self._answer.tokens_cached = _count(details.get("cached_tokens"))
        details = usage.get("completion_tokens_details")
        hidden = details.get("reasoning_tokens") if isinstance(details, dict) else None
        self._answer.tokens_hidden = _count(hidden) or _count(usage.get("reasoning_tokens")) or 0

    def _take_choice(self, choice: dict[str, Any]) -> None:
        answer = self._answer
        delta = choice.get("delta")
        if isinstance(delta, dict):
            content, calls = delta.get("content"), delta.get("tool_calls")
            thought = _text(delta.get("reasoning_content")) or delta.get("reasoning")
            said = content if isinstance(content, str) else ""
            thought = thought if isinstance(thought, str) else ""
            if said or thought or calls:
                answer.chunks += 1
                if answer.last_token_s is None:
                    answer.first_token_s = self._data_s
                elif self._data_s - answer.last_token_s > self._gap_s:
                    self._gap_s = self._data_s - answer.last_token_s
                answer.last_token_s = self._data_s
                if answer.first_answer_s is None and (said or calls):
                    answer.first_answer_s = self._data_s
                self._text.append(said)
                self._reasoning.append(thought)
                if isinstance(calls, list):
                    self._calls.extend(map(_call, calls))
        finish = choice.get("finish_reason")
        if finish and isinstance(finish, str):
            answer.finish_reason = finish[:_MAX_FINISH_CHARACTERS]
            if finish in _BAD_FINISH:
                answer.fail(_BAD_FINISH[finish], f"the server ended the answer with {finish}")

    def _judge_other_body(self) -> None:
        """A body without a single event: an error in plain JSON, or no event stream at all."""
        try:
            message = error_message(orjson.loads(self._head))
        except orjson.JSONDecodeError:
            message = None
        if message is not None:
            self._answer.fail("stream_error", message)
        else:
            shown = self._head[:120].decode("utf-8", "replace")
            self._answer.fail("malformed", f"no event stream: {shown}")


def doubt_usage(answer: Answer, asked: int) -> str | None:
    """Why the count of output tokens cannot be, ``None`` where it can; ``asked``: max_tokens.

    A token more than asked for may be that of the end, and speculation may accept some beyond the
    bound in its last step: a sixteenth is let pass. A token is a byte of text or more, but for the
    marks of thoughts, calls and the end, which are not sent: ``MARK_TOKENS`` are let pass.
    Reasoning that was not sent counts where usage tells its tokens.
    """
    told = answer.tokens_out
    if told is None:
        return None
    if told > asked + max(1, asked // 16):
        return f"usage counts {told} output tokens, {asked} were asked for"
    hidden = 0 if answer.reasoning else answer.tokens_hidden
    texts = (answer.text, answer.reasoning, answer.calls)
    came = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    if told - hidden > came + MARK_TOKENS:
        return f"usage counts {told} output tokens, {came} bytes of text came"
    return None


def error_message(body: Any) -> str | None:
    """The message of an error body, with or without the ``error`` wrapper, else ``None``."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if isinstance(error, dict) and error:
        body = error
    elif isinstance(error, str) and error:
        return error
    elif error:
        return str(error)
    elif body.get("object") != "error":
        return None
    code = body.get("code")
    message = str(body.get("message") or "an error without a message")
    return f"{message} (code {code})" if code is not None else message


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _call(value: Any) -> str:
    """A piece of a tool call: its name begins a line, its arguments follow."""
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict):
        return ""
    name, arguments = _text(function.get("name")), _text(function.get("arguments"))
    return (f"\n{name} " if name else "") + arguments


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
