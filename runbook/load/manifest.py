"""What a workload is made of, told honestly: source, lengths, what was left out. Pure."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runbook.checks import counted
from runbook.load.records import Prompt

#: Nobody but the server knows how many tokens a prompt is once its chat template is around it.
TEMPLATE = (
    "prompts are sent as messages; the server puts its chat template around them, and the tokens "
    "it counts are in tokens_in of each request"
)


@dataclass(frozen=True)
class Spread:
    """Percentiles of a length; ``count`` is of how many it is known."""

    count: int
    p50: float
    p90: float
    p99: float
    greatest: float


@dataclass(frozen=True)
class Manifest:
    """``characters``: of the input of a prompt, all messages. ``tokens_in``, ``tokens_out``: as the
    log tells them, ``None`` where it does not. ``fingerprint``: SHA-256 over all messages.
    """

    source: str
    form: str
    prompts: int
    kinds: Mapping[str, int]
    turns: Spread
    characters: Spread
    tokens_in: Spread | None
    tokens_out: Spread | None
    left_out: Mapping[str, int]
    template: str
    fingerprint: str

    def as_json(self) -> dict[str, Any]:
        """The value of ``workload.json``."""
        return asdict(self)

    def sentence(self) -> str:
        """In one line."""
        said = f"{counted(self.prompts, 'prompt')} of {self.source} ({self.form}), input "
        if self.tokens_in:
            said += f"{self.tokens_in.p50:.0f} tokens at the median, {self.tokens_in.p99:.0f} p99"
        else:
            said += (
                f"{self.characters.p50:.0f} characters at the median, {self.characters.p99:.0f} p99"
            )
        if self.left_out:
            listed = ", ".join(f"{count} {why}" for why, count in self.left_out.items())
            said += f"; left out: {listed}"
        return said


def describe(
    source: str,
    form: str,
    prompts: Sequence[Prompt],
    tokens_in: Sequence[int | None] = (),
    tokens_out: Sequence[int | None] = (),
    left_out: Mapping[str, int] | None = None,
) -> Manifest:
    """The manifest of ``prompts``, at least one."""
    kinds: dict[str, int] = {}
    for prompt in prompts:
        kinds[prompt.kind] = kinds.get(prompt.kind, 0) + 1
    characters = [sum(map(characters_of, prompt.messages)) for prompt in prompts]
    asked = [[p.messages, p.tools] if p.tools else p.messages for p in prompts]
    dumped = json.dumps(asked, ensure_ascii=True)
    turns = spread([len(prompt.messages) for prompt in prompts])
    length = spread(characters)
    assert turns is not None and length is not None
    return Manifest(
        source=source,
        form=form,
        prompts=len(prompts),
        kinds=kinds,
        turns=turns,
        characters=length,
        tokens_in=spread([one for one in tokens_in if one is not None]),
        tokens_out=spread([one for one in tokens_out if one is not None]),
        left_out=dict(left_out or {}),
        template=TEMPLATE,
        fingerprint=hashlib.sha256(dumped.encode()).hexdigest(),
    )


def characters_of(message: Mapping[str, Any]) -> int:
    """Of the text of a message; an image has none."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return len(content)
    return sum(len(str(part.get("text") or "")) for part in content)


def spread(values: Sequence[int]) -> Spread | None:
    """Percentiles, linear between neighbours; ``None`` without a value."""
    if not values:
        return None
    at_least_two = values if len(values) > 1 else [*values, *values]
    cuts = statistics.quantiles(at_least_two, n=100, method="inclusive")
    return Spread(len(values), cuts[49], cuts[89], cuts[98], max(values))
