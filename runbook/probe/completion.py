"""What a server answers to a completion: read within bounds, and whether there is sense in it.

Used by the runner and, shipped with the guard, by the gate, so that both call the same server
ready. Standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

#: Tokens asked for in a probe, and those that count as served.
PROBE_TOKENS, SERVED_TOKENS = 16, 2
#: Tokens from which on a text can be called mere repetition, and repeats that make it that.
JUDGED_TOKENS = 8
#: The longest piece of text whose repetition is looked for, in characters.
LONGEST_REPEATED = 32
#: Of a text, the share that must be repetition. ``benchmark.sense`` asks for half of an answer and
#: lets tables pass: it judges many long answers to any prompt, and a mistake voids one cell. Here
#: one text of ``PROBE_TOKENS`` to a known prompt is judged, and a mistake ends a server: so nearly
#: all of the text must repeat, and no kind of text is let pass. Longer loops are left to ``sense``.
REPEATED_SHARE = 0.75
#: Characters that are judged, of the end of a text.
_JUDGED_CHARACTERS = 4096
#: Names of a list that are shown.
_NAMED = 3
#: Answers without sense in turn after which a server is given up: one may still be warming up.
SENSELESS_IN_TURN = 3

#: Bounds of an answer: of the whole in bytes, of one line of a stream in bytes, of its nesting.
MOST_BYTES = 16 << 20
MOST_LINE_BYTES = 1 << 20
MOST_DEPTH = 64


class NotServed(Exception):
    """A completion that is none; the text says in what way."""


def parse_answer(text: str | bytes) -> Any:
    """The JSON of an answer. Raises ``ValueError`` for none, or one nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError:
        value = None
        deep = True
    else:
        deep = _is_deep(value)
    if deep:
        raise ValueError("nested too deeply")
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH):
        lists = [one for one in level if isinstance(one, (dict, list))]
        level = [item for one in lists for item in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return False
    return True


def name_few(names: list[str]) -> str:
    """A few of the names that a server tells, and how many more there are."""
    few = ", ".join(repr(name[:100]) for name in names[:_NAMED]) or "no name"
    return few + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def read_lines(read: Callable[[], bytes]) -> Iterator[bytes]:
    """The lines of a stream within bounds; ``read`` gives its next bytes, empty at its end.

    Raises ``NotServed`` beyond the bounds.
    """
    rest, came = b"", 0
    while data := read():
        came += len(data)
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        if came > MOST_BYTES or len(rest) > MOST_LINE_BYTES:
            raise NotServed("the stream is larger than any completion")
    if rest:
        yield rest


def read_completion(
    lines: Iterator[bytes], begun: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """Tokens and text (with what was reasoned) of a streamed chat answer, up to ``[DONE]``.

    Tokens are those of ``usage``, else the pieces of text. ``begun`` is called at each piece.
    Raises ``NotServed`` for an error in the stream, or no end.
    """
    pieces: list[str] = []
    usage, ended = None, False
    for line in lines:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            ended = True
            break
        event = _event_of(data)
        told = event.get("usage")
        count = told.get("completion_tokens") if isinstance(told, dict) else None
        usage = count if type(count) is int and count >= 0 else usage
        for choice in _objects(event.get("choices")):
            text = _text_of(choice.get("delta"))
            if text:
                pieces.append(text)
                begun()
            ended = ended or bool(choice.get("finish_reason"))
    if not ended:
        raise NotServed("the completion was cut before [DONE]")
    return (len(pieces) if usage is None else usage), "".join(pieces)


def _event_of(data: bytes) -> dict[str, Any]:
    try:
        event = parse_answer(data)
    except ValueError:
        said = data.decode("utf-8", "replace")
        raise NotServed(f"the completion holds no JSON: {said!r}") from None
    if isinstance(event, dict) and event.get("error"):
        raise NotServed(f"the completion failed: {event['error']}")
    return event if isinstance(event, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text_of(delta: Any) -> str:
    if not isinstance(delta, dict):
        return ""
    said = (delta.get(key) for key in ("content", "reasoning_content", "reasoning"))
    return next((one for one in said if isinstance(one, str) and one), "")


def why_senseless(tokens: int, text: str) -> str:
    """Why there is no sense in a short text of so many tokens; empty where there may be."""
    if not text.strip():
        blanks = f" but {text[:LONGEST_REPEATED]!r}" if text else ""
        return f"the completion counts {tokens} tokens and holds no text{blanks}"
    repeated = _repeated_piece(text) if tokens >= JUDGED_TOKENS else ""
    return f"the completion of {tokens} tokens only repeats {repeated!r}" if repeated else ""


def _repeated_piece(text: str) -> str:
    """What the text says over and over until its end; empty where it does not."""
    said = (text.strip() or text)[-_JUDGED_CHARACTERS:]
    for length in range(1, min(LONGEST_REPEATED, len(said) // JUDGED_TOKENS) + 1):
        alike = 0
        while alike < len(said) - length and said[-1 - alike] == said[-1 - alike - length]:
            alike += 1
        run = alike + length
        if run >= JUDGED_TOKENS * length and run >= REPEATED_SHARE * len(said):
            return said[-run:][:length]
    return ""
