"""One request, one record. Absent is ``None``: a length is never taken from what was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

ErrorKind = Literal[
    "connect",
    "timeout",
    "status",
    "reset",
    "cut",
    "stream_error",
    "abort",
    "malformed",
    "too_large",
]


@dataclass(frozen=True)
class Prompt:
    """One prompt: ``messages`` as OpenAI's chat API takes them; ``kind`` as in workload.mix.

    ``conversation``: the one it is a turn of; its turns are sent in order, one after the other.
    """

    id: str
    kind: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    conversation: str = ""

    @property
    def key(self) -> str:
        """What is not to be in flight twice."""
        return self.conversation or self.id


@dataclass(frozen=True)
class Record:
    """One request as measured by the client. Times are seconds of one monotonic clock."""

    prompt_id: str
    scheduled_s: float
    sent_s: float | None = None  # None: no connection came about
    first_byte_s: float | None = None
    first_token_s: float | None = None  # first reasoning or content token, not an empty role delta
    last_token_s: float | None = None
    end_s: float | None = None  # of an answer that came whole its last event, [DONE] included
    tokens_in: int | None = None  # from usage
    tokens_out: int | None = None  # from usage
    tokens_cached: int | None = None  # from usage
    tokens_first: int | None = None  # in the first chunk of text, where usage is told with it
    verify_steps: int | None = None  # of the target under speculation, where the server tells
    first_answer_s: float | None = None  # first token that is no reasoning
    longest_gap_s: float | None = None  # the greatest time from one chunk to the next
    chunks: int = 0  # events that carried text
    doubt: str | None = None  # why its usage cannot be; tokens_out is unknown then
    finish_reason: str | None = None
    status: int | None = None  # HTTP
    error: str | None = None
    error_kind: ErrorKind | None = None
    text: str = ""
    reasoning: str = ""
    calls: str = ""  # of tools: names and arguments as they came
    kind: str = ""  # of the prompt

    @property
    def ok(self) -> bool:
        """Whether the answer came whole."""
        return self.error_kind is None

    @property
    def is_empty(self) -> bool:
        """Whether an answer came whole and without any text, thought or call."""
        return self.ok and not (self.text + self.reasoning + self.calls).strip()

    @property
    def e2e_ms(self) -> float | None:
        """Time from the scheduled start to the last event, milliseconds."""
        return None if self.end_s is None else (self.end_s - self.scheduled_s) * 1000

    @property
    def longest_gap_ms(self) -> float | None:
        """The greatest time from chunk to chunk, milliseconds."""
        return None if self.longest_gap_s is None else self.longest_gap_s * 1000

    @property
    def ttft_ms(self) -> float | None:
        """Time from the scheduled start to the first token, milliseconds."""
        if self.first_token_s is None:
            return None
        return (self.first_token_s - self.scheduled_s) * 1000

    @property
    def ttfat_ms(self) -> float | None:
        """Time from the scheduled start to the first token that is no reasoning, milliseconds."""
        if self.first_answer_s is None:
            return None
        return (self.first_answer_s - self.scheduled_s) * 1000

    @property
    def tpot_ms(self) -> float | None:
        """Milliseconds per output token after those of the first chunk; needs usage.

        Where it is not known how many tokens came first, one is taken for them.
        """
        if self.first_token_s is None or self.last_token_s is None or self.tokens_out is None:
            return None
        later = self.tokens_out - (self.tokens_first or 1)
        return (self.last_token_s - self.first_token_s) * 1000 / later if later > 0 else None

    @property
    def chunk_gap_ms(self) -> float | None:
        """Mean time from chunk to chunk, milliseconds: under speculation not that of a token."""
        if self.first_token_s is None or self.last_token_s is None or self.chunks < 2:
            return None
        return (self.last_token_s - self.first_token_s) * 1000 / (self.chunks - 1)
