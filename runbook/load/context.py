"""Prompts as long as a context wants them: other prompts of the workload stand before each. Pure.

Random tokens would inflate what drafts are accepted for, so the texts are those of the workload
itself, repeated only where it has no more. Each prompt begins with words of its own, also one that
is asked again: what one left in the prefix cache does not answer for the next.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from runbook.load.manifest import characters_of
from runbook.load.records import Prompt, Record

#: Where a server has told no token count; of English text and code.
CHARACTERS_PER_TOKEN = 4.0
#: A median further from the context that was asked for is pointed out.
LENGTH_SHARE = 0.01


def lengthen(
    prompts: Sequence[Prompt],
    texts: Sequence[str],
    tokens: int,
    characters_per_token: float,
    first: int = 0,
) -> tuple[Prompt, ...]:
    """``prompts`` with as much of ``texts`` before each as makes it ``tokens`` long, about.

    A prompt that is as long already stays as it is; the turns of a conversation begin alike.
    ``first``: a number that is greater by as many prompts as a server was asked before.
    """
    keys = dict.fromkeys(one.key for one in prompts)
    starts = {key: at for at, key in enumerate(keys, first)}
    return tuple(
        _behind(
            prompt,
            _fill(texts, starts[prompt.key], int(tokens * characters_per_token) - length),
        )
        for prompt in prompts
        for length in [sum(map(characters_of, prompt.messages))]
    )


def again(prompt: Prompt, number: int, what: str = "") -> Prompt:
    """``prompt`` for the ``number``-th time: from the second on with the number before it, or the
    prefix cache would answer. ``what``: of what kind that asking is."""
    if number < 2:
        return prompt
    mark = f"{what} {number}".strip()
    talk = f"{prompt.conversation}~{mark}" if prompt.conversation else ""
    return replace(_behind(prompt, f"({mark})"), id=f"{prompt.id}~{mark}", conversation=talk)


def texts_of(prompts: Iterable[Prompt]) -> tuple[str, ...]:
    """What the prompts say, one text a prompt."""
    found = dict.fromkeys(
        "\n".join(one["content"] for one in prompt.messages if isinstance(one.get("content"), str))
        for prompt in prompts
    )
    return tuple(text for text in found if text.strip())


def learn_characters_per_token(prompt: Prompt, record: Record) -> float | None:
    """What a server's count of one prompt tells; ``None`` where it told none."""
    if not record.ok or not record.tokens_in:
        return None
    return sum(map(characters_of, prompt.messages)) / record.tokens_in


def remark_on_length(records: Iterable[Record], tokens: int) -> str:
    """Where prompts were not as long as asked for; empty where they were."""
    known = [record.tokens_in for record in records if record.tokens_in]
    found = statistics.median(known) if known else None
    if found is not None and abs(found / tokens - 1) <= LENGTH_SHARE:
        return ""
    said = "unknown" if found is None else f"{found:.0f}"
    return f"prompt tokens, the server's count at the median: {said}, context {tokens} asked for"


def _fill(texts: Sequence[str], start: int, characters: int) -> str:
    if characters <= 0 or not texts:
        return ""
    taken: list[str] = [f"Document {start + 1}."]
    length = 0
    for at in itertools.count(start):
        text = texts[at % len(texts)]
        taken.append(text)
        length += len(text) + 2
        if length >= characters:
            return "\n\n".join(taken)[:characters]
    raise AssertionError


def _behind(prompt: Prompt, text: str) -> Prompt:
    """The text before what the first user message says."""
    if not text:
        return prompt
    at = next((n for n, one in enumerate(prompt.messages) if one["role"] == "user"), None)
    if at is None:
        return prompt
    message = dict(prompt.messages[at])
    content: Any = message["content"]
    if isinstance(content, str):
        message["content"] = f"{text}\n\n{content}"
    else:
        message["content"] = [{"type": "text", "text": text}, *content]
    return replace(prompt, messages=(*prompt.messages[:at], message, *prompt.messages[at + 1 :]))
