"""What all lives of a benchmark share, and under which conditions a cell of it stands."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runbook.benchmark.book import MEASURED_ON, Book
from runbook.benchmark.gpu_samples import Sampled
from runbook.benchmark.lengths import Lengths
from runbook.benchmark.surroundings import surroundings_of
from runbook.benchmark.workload import CellWorkload
from runbook.cells import Cell, CellStatus
from runbook.engines.base import Engine
from runbook.launch.server import Launcher
from runbook.launch.spec import LaunchSpec
from runbook.load import Record
from runbook.params import Params, Point


@dataclass(frozen=True)
class Unmeasured:
    """What becomes of cells that are not measured, and why."""

    status: CellStatus
    note: str


@dataclass(frozen=True)
class Bench:
    """What all lives of a benchmark share; ``on_cell`` hears of each cell when it has ended.
    ``started``: the names of the servers that were. ``resolved``: configuration -> what the
    server's own parser made of its arguments, where the stack was verified so. ``stack``: facts of
    what surrounds the servers now, as in ``stack.json``; empty where nobody looked. ``say`` hears
    how a long start goes on."""

    params: Params
    launcher: Launcher
    engine: Engine
    workload: Mapping[Point, CellWorkload]
    book: Book
    on_cell: Callable[[Cell], None]
    started: list[str] = field(default_factory=list)
    resolved: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stack: Mapping[str, Any] = field(default_factory=dict)
    say: Callable[[str], None] = lambda text: None
    lengths: Lengths = field(default_factory=Lengths)

    def asked(self, cell: Cell) -> CellWorkload:
        """What a cell asks, its context not yet before it."""
        return self.workload[cell.concurrency, cell.context_tokens]

    def conditions(self, spec: LaunchSpec, at: Cell) -> dict[str, Any]:
        """All that must be the same for a finished cell to stand; the names are for people."""
        cell, workload = self.asked(at), self.params.workload
        benchmark = self.params.benchmark
        return {
            "launch line or environment": spec.fingerprint(),
            "way of launching": self.launcher.kind,
            "prompts": cell.fingerprint(),
            "number of requests": len(cell.measured),
            "warm-up": [len(cell.warmup), benchmark.warmup_tokens, benchmark.warmup_agree],
            "output_tokens": workload.output_tokens,
            "temperature": workload.temperature,
            "seed": workload.seed,
            "ignore_eos": workload.ignore_eos,
            "window": benchmark.window,
            "model files": files_mark(spec),
            MEASURED_ON: surroundings_of(self.stack, at.config),
        }

    def enter(
        self,
        spec: LaunchSpec,
        cell: Cell,
        records: tuple[Record, ...] = (),
        gpus: Sampled | None = None,
    ) -> None:
        """A cell has ended."""
        self.book.enter(cell, self.conditions(spec, cell), records, gpus)
        self.on_cell(cell)

    def leave_out(self, spec: LaunchSpec, cells: Iterable[Cell], why: Unmeasured) -> None:
        """These cells are not measured."""
        for cell in cells:
            self.enter(spec, replace(cell, status=why.status, note=why.note))


def files_mark(spec: LaunchSpec) -> str:
    """A mark of the files that a launch names and this machine has: names, sizes, times.

    Model, draft and the server's own script are among them. The contents are not read: a model of
    500 GB is hashed by the checks of the stack, where the parameters say so.
    """
    named = [Path(word) for word in spec.argv[1:] if word.startswith("/")]
    found = [path for top in named if top.exists() for path in (top, *sorted(top.rglob("*")))]
    states = [(str(path), path.stat()) for path in found if path.is_file()]
    listed = [f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states]
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]
