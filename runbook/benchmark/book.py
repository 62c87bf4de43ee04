"""What has been measured so far: on disk after every step, read back on resume.

``cells.csv``, ``launches.json``, ``requests.jsonl`` and ``answers.jsonl.gz`` are for everyone;
``measured.json`` says
under which conditions each cell was measured, so that a resumed run repeats none that still holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from runbook import cells, params
from runbook.benchmark.figures import cached_of, total_of
from runbook.benchmark.gpu_samples import Sampled, compare_clocks
from runbook.benchmark.guards import Measured, guards
from runbook.benchmark.measurements import Measurements, compare_all, compare_settings, key_of
from runbook.benchmark.request_log import RequestLog
from runbook.benchmark.surroundings import changes
from runbook.benchmark.texts import answers_from_json, answers_of, compare_answers, judge_texts
from runbook.cells import Cell
from runbook.checks import Check
from runbook.engines.base import ServerInfo
from runbook.launch.spec import LaunchSpec
from runbook.load.records import Record
from runbook.run import Run

_FINISHED = ("ok", "void")

#: The condition that all cells of a configuration share: what surrounds their servers.
MEASURED_ON = "measured on"


@dataclass(frozen=True)
class Launch:
    """What is known of the launch of one configuration; ``load_s`` has one value a life.
    ``cold_s``: of a life whose model was dropped from the page cache before; it is not among them.
    ``ready_s``: of this process's monotonic clock, when the server was."""

    spec: LaunchSpec
    kind: str
    load_s: tuple[float, ...] = ()
    info: ServerInfo | None = None
    checks: tuple[Check, ...] = ()
    ready_s: float = 0.0
    cold_s: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The value in ``launches.json``."""
        return {
            "spec": asdict(self.spec),
            "fingerprint": self.spec.fingerprint(),
            "load_s": list(self.load_s),
            "cold_s": self.cold_s,
            "info": None if self.info is None else asdict(self.info),
            "launch": self.kind,
            "checks": [asdict(check) for check in self.checks],
        }


class Book:
    """The state of one benchmark. A context manager: leaving it closes ``requests.jsonl``."""

    def __init__(self, run: Run, alike: Sequence[str] = ()) -> None:
        self._run, self._alike = run, alike
        self._cells = cells.read(run.path / "cells.csv")
        self._launches: dict[str, Any] = run.read_json("launches.json") or {}
        stored = run.read_json("measured.json") or {}
        self._lives: int = stored.get("lives", 0)
        self._conditions: dict[str, dict[str, Any]] = stored.get("conditions", {})
        self._totals: dict[str, dict[str, int | None]] = stored.get("totals", {})
        self._answers = answers_from_json(stored.get("answers"))
        self._gpus: dict[str, Sampled] = stored.get("gpus", {})
        self.characters_per_token: float | None = stored.get("characters_per_token")
        self._notes: list[str] = stored.get("notes", [])
        self._requests = RequestLog(run.path / "requests.jsonl")

    def __enter__(self) -> Book:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._requests.close()

    def holds(self, wanted: Cell, conditions: Mapping[str, Any]) -> bool:
        """Whether this cell is finished under these conditions; notes what has changed if not."""
        key = key_of(wanted)
        if not any(key_of(cell) == key and cell.status in _FINISHED for cell in self._cells):
            return False
        before = self._conditions.get(key, {})
        names = [*conditions, *(name for name in before if name not in conditions)]
        names.remove(MEASURED_ON)
        changed = [name for name in names if conditions.get(name) != before.get(name)]
        if changed:
            self.note(f"{key}: measured again, another {', '.join(changed)}")
        moved = changes(before.get(MEASURED_ON, {}), conditions.get(MEASURED_ON, {}))
        if moved:
            self.note(f"measured again on another stack: {'; '.join(moved)}")
        return not (changed or moved)

    def note(self, text: str) -> None:
        """Remember a remark on the whole benchmark."""
        if text not in self._notes:
            self._notes.append(text)
            self._store()

    def note_length(self, characters_per_token: float | None) -> None:
        """Remember how the server counts texts, so that a resumed run asks the same."""
        self.characters_per_token = characters_per_token
        self._store()

    def open_life(self) -> int:
        """The number of a new life; no number is given twice, whatever becomes of the life."""
        self._lives += 1
        self._store()
        return self._lives

    def has_cold_start(self, config: str) -> bool:
        """Whether a cold start of a configuration was measured."""
        return bool(self._launches.get(config, {}).get("cold_s"))

    def note_launch(self, config: str, launch: Launch) -> None:
        """Keep what a life said of itself; load times of equal launches are collected."""
        known, new = self._launches.get(config), launch.as_json()
        if known and known["fingerprint"] == new["fingerprint"]:
            new["load_s"] = known["load_s"] + new["load_s"]
            new["cold_s"] = new["cold_s"] or known.get("cold_s")
            if launch.info is None:
                new |= {"info": known["info"], "checks": known["checks"]}
        self._launches[config] = new
        self._run.write_json("launches.json", self._launches)

    def append_request(self, cell: Cell, record: Record) -> None:
        """A line of ``requests.jsonl`` and its texts beside it, written as the request ends."""
        self._requests.record(cell, record)

    def enter(
        self,
        cell: Cell,
        conditions: Mapping[str, Any],
        records: tuple[Record, ...] = (),
        gpus: Sampled | None = None,
    ) -> None:
        """A cell has ended; it takes the place of an earlier attempt at it."""
        key = key_of(cell)
        self._cells = [*(other for other in self._cells if key_of(other) != key), cell]
        self._conditions[key] = dict(conditions)
        self._totals[key] = {
            "prompt tokens": total_of(record.tokens_in for record in records),
            "output tokens": total_of(record.tokens_out for record in records),
            "cached prompt tokens": cached_of(records),
        }
        self._answers[key] = answers_of(records)
        self._gpus[key] = gpus or {}
        self._cells = list(judge_texts(self._cells, self._answers, params.BASELINE))
        self._store()
        self._run.write("cells.csv", cells.to_csv(self._cells))

    def measurements(self) -> Measurements:
        """All that is in the book."""
        notes = (*self._notes, *self._remarks(), *self._equality())
        return Measurements(tuple(self._cells), self._launches, notes)

    def _remarks(self) -> list[str]:
        clocks = compare_clocks(self._cells, self._gpus)
        settings = compare_settings(self._launches, self._alike)
        return [*settings, *compare_all(self._cells, self._totals), *clocks]

    def _guards(self) -> list[Check]:
        return guards(
            Measured(
                self._run.params,
                self._cells,
                self._launches,
                self._totals,
                self._gpus,
                self._alike,
            )
        )

    def _equality(self) -> list[str]:
        """How equal the answers are, where sampling does not make them differ by itself."""
        if self._run.params.workload.temperature > 0:
            return []
        return list(compare_answers(self._cells, self._answers, params.BASELINE))

    def _store(self) -> None:
        state = {
            "lives": self._lives,
            "conditions": self._conditions,
            "totals": self._totals,
            "answers": self._answers,
            "equality": self._equality(),
            "notes": self._notes,
            "characters_per_token": self.characters_per_token,
            "gpus": self._gpus,
            "remarks": self._remarks(),
            "guards": [asdict(check) for check in self._guards()],
        }
        self._run.write_json("measured.json", state)
