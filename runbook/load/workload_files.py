"""Workload files of others: ShareGPT's JSON and the OpenAI-form JSONL of a production log. Pure.

What is not to be sent as it was (images, tools, tool calls) is left out and counted, never bent
into something else. The form is found by the content.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runbook.bounded import parse_json
from runbook.errors import BadInput
from runbook.load.records import Prompt

#: The kinds that prompts of these files bear, for ``workload.mix``.
SHAREGPT, OPENAI = "sharegpt", "openai"

_SPEAKERS = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "assistant", "model"), "assistant"),
    "system": "system",
}
_ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant"}
_NAMES = {
    SHAREGPT: "ShareGPT, each conversation up to its last human turn",
    OPENAI: "OpenAI chat requests, each as it was sent",
}


@dataclass(frozen=True)
class Asked:
    """One prompt of a workload file with what its log says of it; ``None`` is unknown."""

    prompt: Prompt
    tokens_in: int | None = None
    tokens_out: int | None = None


@dataclass(frozen=True)
class WorkloadFile:
    """``form``: in words. ``left_out``: why prompts were not taken -> how many."""

    form: str
    asked: tuple[Asked, ...]
    left_out: Mapping[str, int]


Messages = tuple[dict[str, Any], ...]


class _LeftOut(Exception):
    """This entry cannot be sent as it was."""


def read_sharegpt(text: str, source: str) -> WorkloadFile:
    """The conversations of a ShareGPT file. Raises ``BadInput`` with file and place."""
    try:
        entries = parse_json(text)
    except ValueError as error:
        raise BadInput(
            f"{source}: no JSON ({error})", "a list of conversations", "give the whole file"
        ) from None
    if not isinstance(entries, list):
        raise BadInput(
            f"{source}: {type(entries).__name__}", "a list of conversations", "give the whole file"
        )
    places = ((f"{source}: item {number}", entry) for number, entry in enumerate(entries, 1))
    return _collect(places, SHAREGPT, source, _conversation)


def read_openai(text: str, source: str, send: Collection[str] = ()) -> WorkloadFile:
    """The requests of a JSONL log; ``send``: ``tools``, ``images``. Raises ``BadInput``.

    A line is the body of a request, or holds it under ``body`` (as batches do) or ``request``;
    ``response`` or ``usage`` beside it may tell tokens.
    """

    def messages(entry: Mapping[str, Any], place: str) -> Messages:
        return _messages(entry, place, send)

    return _collect(json_lines(text, source), OPENAI, source, messages)


def json_lines(text: str, source: str) -> Iterator[tuple[str, Any]]:
    """What each line holds, with its place; blank lines are left out. Raises ``BadInput``."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{source}: line {number}"
            try:
                yield place, parse_json(line)
            except ValueError as error:
                raise BadInput(
                    f"{place}: no JSON ({error})", "one object a line", "correct this line"
                ) from None


def is_openai(entry: Any) -> bool:
    """Whether an object is a request, or a log entry that holds one."""
    return isinstance(entry, Mapping) and isinstance(_body(entry).get("messages"), list)


def _collect(
    entries: Iterator[tuple[str, Any]],
    kind: str,
    source: str,
    read: Callable[[Mapping[str, Any], str], Messages],
) -> WorkloadFile:
    asked: list[Asked] = []
    left_out: Counter[str] = Counter()
    seen: set[str] = set()
    for place, entry in entries:
        if not isinstance(entry, Mapping):
            raise BadInput(
                f"{place}: {type(entry).__name__} instead of an object",
                _NAMES[kind],
                "correct this entry",
            )
        try:
            messages = read(entry, place)
        except _LeftOut as why:
            left_out[str(why)] += 1
            continue
        tools = tuple(_body(entry).get("tools") or ()) if kind == OPENAI else ()
        asked_for = [messages, tools] if tools else messages
        mark = hashlib.sha256(json.dumps(asked_for).encode()).hexdigest()[:12]
        if mark in seen:
            left_out["the same prompt again"] += 1
            continue
        seen.add(mark)
        tokens_in, tokens_out = _tokens(entry)
        prompt = Prompt(f"{kind}-{mark}", kind, messages, tools)
        asked.append(Asked(prompt, tokens_in, tokens_out))
    if not asked:
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.items()) or "it is empty"
        raise BadInput(
            f"{source}: no prompt that can be sent ({reasons})",
            _NAMES[kind],
            "give a file with other prompts",
        )
    return WorkloadFile(_NAMES[kind], tuple(asked), dict(left_out))


def _conversation(entry: Mapping[str, Any], place: str) -> Messages:
    turns = entry.get("conversations", entry.get("conversation"))
    if not isinstance(turns, list):
        raise BadInput(
            f"{place}: no list of conversations", '{"conversations": [...]}', "correct this item"
        )
    messages = [_turn(turn, place) for turn in turns]
    while messages and messages[-1]["role"] != "user":
        messages.pop()
    if not messages:
        raise _LeftOut("without a human turn")
    if messages[0]["role"] == "assistant":
        raise _LeftOut("beginning with an answer")
    return tuple(messages)


def _turn(turn: Any, place: str) -> dict[str, str]:
    if not isinstance(turn, Mapping):
        raise BadInput(
            f"{place}: a turn is {type(turn).__name__}",
            '{"from": ..., "value": ...}',
            "correct this item",
        )
    speaker = turn.get("from", turn.get("role"))
    role = _SPEAKERS.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise _LeftOut("with a speaker that is neither human, model nor system")
    return {"role": role, "content": _text(turn.get("value", turn.get("content")))}


def _messages(entry: Mapping[str, Any], place: str, send: Collection[str]) -> Messages:
    body = _body(entry)
    listed = body.get("messages")
    if not isinstance(listed, list) or not listed:
        raise BadInput(
            f"{place}: no list of messages",
            '{"messages": [{"role": ..., "content": ...}, ...]}, alone or under body or request',
            "correct this line",
        )
    if body.get("functions") or (body.get("tools") and "tools" not in send):
        raise _LeftOut("with tools")
    messages = []
    for message in listed:
        if not isinstance(message, Mapping):
            raise BadInput(
                f"{place}: a message is {type(message).__name__}", "an object", "correct this line"
            )
        messages.append(_message(message, send))
    return tuple(messages)


def _message(message: Mapping[str, Any], send: Collection[str]) -> dict[str, Any]:
    """One message as it is sent again."""
    calls, role = message.get("tool_calls"), str(message.get("role"))
    if (calls or role == "tool") and "tools" not in send:
        raise _LeftOut("with tool calls")
    if role not in _ROLES and role != "tool":
        raise _LeftOut("with a role that chat does not know")
    said: dict[str, Any] = {"role": _ROLES.get(role, role)}
    if calls:
        said["tool_calls"] = calls
    if role == "tool":
        said["tool_call_id"] = message.get("tool_call_id")
    content = message.get("content")
    said["content"] = "" if calls and not content else _content(content, send)
    return said


def _content(content: Any, send: Collection[str]) -> Any:
    """Text, also of a message in parts; the parts themselves where images are among them."""
    if isinstance(content, list):
        kinds = {part.get("type") if isinstance(part, Mapping) else None for part in content}
        if "image_url" in kinds and kinds <= {"text", "image_url"} and "images" in send:
            return content
        if kinds - {"text"}:
            raise _LeftOut("with images or other parts that are no text")
        content = "".join(str(part.get("text") or "") for part in content)
    return _text(content)


def _text(content: Any) -> str:
    if not isinstance(content, str) or not content.strip():
        raise _LeftOut("with an empty turn")
    try:
        content.encode()
    except UnicodeEncodeError:
        raise _LeftOut("with half a surrogate pair, which is no text") from None
    return content


def _body(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in ("body", "request"):
        inside = entry.get(name)
        if isinstance(inside, Mapping):
            return inside
    return entry


def _tokens(entry: Mapping[str, Any]) -> tuple[int | None, int | None]:
    response = entry.get("response")
    inside = response if isinstance(response, Mapping) else {}
    body = inside.get("body")
    for place in (entry, inside, body if isinstance(body, Mapping) else {}):
        usage = place.get("usage")
        if isinstance(usage, Mapping):
            return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    return None, None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
