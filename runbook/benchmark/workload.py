"""Which prompts each cell asks: chosen once by mix and seed, the same for all that is compared."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from runbook.errors import BadInput
from runbook.load import prompts as prompt_files
from runbook.load.context import again
from runbook.load.records import Prompt
from runbook.params import Params, Point, Workload


@dataclass(frozen=True)
class CellWorkload:
    """What one cell asks, in every block and of every configuration.

    ``measured`` and ``warmup`` are in the order they are sent; what a context puts before them is
    not yet there. Prompts are distinct within a life; where there are too few, those that come
    again begin with a number: what an earlier cell left in the prefix cache does not answer for a
    later one. ``first``: how many prompts a life may have asked before this cell, and one.
    """

    concurrency: int
    context_tokens: int | None
    warmup: tuple[Prompt, ...]
    measured: tuple[Prompt, ...]
    first: int = 1

    def fingerprint(self) -> str:
        """SHA-256 (hex, 16 characters) over all messages in order."""
        asked = [
            [[p.messages, p.tools] if p.tools else p.messages for p in part]
            for part in (self.warmup, self.measured)
        ]
        place = [asked, self.context_tokens, self.first]
        mark = place if self.context_tokens else asked
        return hashlib.sha256(orjson.dumps(mark)).hexdigest()[:16]


def plan_workload(params: Params, prompts: Sequence[Prompt]) -> dict[Point, CellWorkload]:
    """Point -> what its cell asks. Raises ``BadInput`` for a kind that has no prompts."""
    source = _Source(params, prompts)
    cells = {}
    first = 1
    for concurrency, context in sorted(params.points(), key=lambda point: (point[1] or 0, point)):
        measured = source.take(params.benchmark.requests_at(concurrency))
        warmup = source.take(params.benchmark.warmup * concurrency)
        cells[concurrency, context] = CellWorkload(concurrency, context, warmup, measured, first)
        first += len(measured) + len(warmup)
    return cells


class _Source:
    """Hands out prompts in the proportions of the mix, each kind in a seeded order of its own."""

    def __init__(self, params: Params, prompts: Sequence[Prompt]) -> None:
        workload = params.workload
        self._random = random.Random(workload.seed)
        self._shares = {kind: weight for kind, weight in workload.mix.items() if weight}
        self._kinds: dict[str, Iterator[Prompt]] = {}
        self._asked: Counter[str] = Counter()
        for kind in self._shares:
            of_kind = [prompt for prompt in prompts if prompt.kind == kind]
            if not of_kind:
                kinds = sorted({prompt.kind for prompt in prompts})
                near = difflib.get_close_matches(kind, kinds, 1)
                known = ", ".join(kinds) or "none"
                raise BadInput(
                    f"workload.mix: no prompt of kind {kind} in {workload.prompts}",
                    f"kinds out of: {known}",
                    f"did you mean {near[0]}?" if near else "correct workload.mix",
                )
            self._kinds[kind] = itertools.cycle(shuffled(of_kind, self._random))

    def take(self, count: int) -> tuple[Prompt, ...]:
        """The next ``count`` prompts, kinds by largest remainder, in a seeded order."""
        total = sum(self._shares.values())
        exact = {kind: count * share / total for kind, share in self._shares.items()}
        counts = {kind: int(value) for kind, value in exact.items()}
        by_remainder = sorted(exact, key=lambda kind: counts[kind] - exact[kind])
        for kind in by_remainder[: count - sum(counts.values())]:
            counts[kind] += 1
        taken = [self._next(kind) for kind, number in counts.items() for _ in range(number)]
        return _in_turn(taken, self._random)

    def _next(self, kind: str) -> Prompt:
        prompt = next(self._kinds[kind])
        self._asked[prompt.id] += 1
        return again(prompt, self._asked[prompt.id])


def shuffled(prompts: Iterable[Prompt], chance: random.Random) -> list[Prompt]:
    """Prompts in a seeded order, the turns of a conversation together and in theirs."""
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.key, []).append(prompt)
    keys = sorted(groups)
    chance.shuffle(keys)
    return [prompt for key in keys for prompt in groups[key]]


def _in_turn(prompts: Sequence[Prompt], chance: random.Random) -> tuple[Prompt, ...]:
    """A seeded order in which the turns of a conversation keep theirs."""
    order = list(range(len(prompts)))
    chance.shuffle(order)
    waiting: dict[str, deque[Prompt]] = {}
    for prompt in prompts:
        waiting.setdefault(prompt.key, deque()).append(prompt)
    return tuple(waiting[prompts[at].key].popleft() for at in order)


def workload_of(asked: Workload) -> prompt_files.Workload:
    """What the parameters ask for. Raises ``BadInput`` for a file that is none."""
    own = asked.prompts == "builtin"
    found = (
        prompt_files.builtin_workload()
        if own
        else prompt_files.read_workload(Path(asked.prompts), asked.send)
    )
    if asked.turns == "every":
        found = prompt_files.by_turn(found)
    if asked.system:
        found = prompt_files.with_system(found, prompt_files.read_text(Path(asked.system)).strip())
    return found
