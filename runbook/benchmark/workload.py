"""Which prompts each cell asks: chosen once by mix and seed, the same for all that is compared."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from runbook.errors import BadInput
from runbook.load.prompts import Workload, builtin_workload, read_workload
from runbook.load.records import Prompt
from runbook.params import Params


@dataclass(frozen=True)
class CellWorkload:
    """What one cell asks, in every block and of every configuration.

    ``measured`` and ``warmup`` are in the order they are sent. Prompts are distinct, within a
    cell and between the cells of a life, as far as there are enough of them: what an earlier
    cell left in the prefix cache does not answer for a later one.
    """

    concurrency: int
    warmup: tuple[Prompt, ...]
    measured: tuple[Prompt, ...]

    def fingerprint(self) -> str:
        """SHA-256 (hex, 16 characters) over all messages in order."""
        messages = [[p.messages for p in part] for part in (self.warmup, self.measured)]
        return hashlib.sha256(orjson.dumps(messages)).hexdigest()[:16]


def plan_workload(params: Params, prompts: Sequence[Prompt]) -> dict[int, CellWorkload]:
    """Concurrency -> what its cell asks. Raises ``BadInput`` for a kind that has no prompts."""
    source = _Source(params, prompts)
    cells = {}
    for concurrency in sorted(params.benchmark.concurrencies):
        measured = source.take(params.benchmark.requests_at(concurrency))
        warmup = source.take(params.benchmark.warmup * concurrency)
        cells[concurrency] = CellWorkload(concurrency, warmup, measured)
    return cells


class _Source:
    """Hands out prompts in the proportions of the mix, each kind in a seeded order of its own."""

    def __init__(self, params: Params, prompts: Sequence[Prompt]) -> None:
        workload = params.workload
        self._random = random.Random(workload.seed)
        self._shares = {kind: weight for kind, weight in workload.mix.items() if weight}
        self._kinds: dict[str, Iterator[Prompt]] = {}
        for kind in self._shares:
            of_kind = sorted((p for p in prompts if p.kind == kind), key=lambda prompt: prompt.id)
            if not of_kind:
                known = ", ".join(sorted({prompt.kind for prompt in prompts})) or "none"
                raise BadInput(
                    f"workload.mix: no prompt of kind {kind} in {workload.prompts}",
                    f"kinds out of: {known}",
                    "correct workload.mix",
                )
            self._random.shuffle(of_kind)
            self._kinds[kind] = itertools.cycle(of_kind)

    def take(self, count: int) -> tuple[Prompt, ...]:
        """The next ``count`` prompts, kinds by largest remainder, in a seeded order."""
        total = sum(self._shares.values())
        exact = {kind: count * share / total for kind, share in self._shares.items()}
        counts = {kind: int(value) for kind, value in exact.items()}
        by_remainder = sorted(exact, key=lambda kind: counts[kind] - exact[kind])
        for kind in by_remainder[: count - sum(counts.values())]:
            counts[kind] += 1
        taken = [next(self._kinds[kind]) for kind, number in counts.items() for _ in range(number)]
        self._random.shuffle(taken)
        return tuple(taken)


def workload_of(params: Params) -> Workload:
    """What ``workload.prompts`` names. Raises ``BadInput`` for a file that is none."""
    source = params.workload.prompts
    return builtin_workload() if source == "builtin" else read_workload(Path(source))
