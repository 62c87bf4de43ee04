"""What a run folder holds, read for the record. Absent artefacts are ``None`` or empty."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from runbook import cells, decision
from runbook.bounded import parse_json
from runbook.cells import Cell
from runbook.decision import Decision
from runbook.errors import BadInput
from runbook.launch.spec import LaunchSpec
from runbook.params import BASELINE
from runbook.run import Run, Step

_WRITTEN_BY = {"decision.json": ("choose",), "service/proofs.json": ("install_service",)}
_UNMEASURED = "unmeasured: "


@dataclass(frozen=True)
class Artefacts:
    """A run folder opened for reading. Raises ``BadInput`` where a file is damaged."""

    run: Run

    @classmethod
    def of(cls, run_path: Path) -> Artefacts:
        """The artefacts of a run. Raises ``BadInput`` when the folder is no run."""
        return cls(Run.open(run_path))

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.run.path

    @cached_property
    def steps(self) -> dict[str, Step]:
        """The to-do list by name of the step, in its order."""
        return {step.name: step for step in self.run.todo()}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The configurations in the order of the parameters: it fixes colours and tables."""
        return tuple(one.name for one in self.run.params.configurations)

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells measured, in the order of the file."""
        text = self._text("cells.csv")
        return cells.from_csv(text, str(self.path / "cells.csv")) if text else []

    @cached_property
    def decision(self) -> dict[str, Any] | None:
        """decision.json, unless it is older than the last attempt to choose."""
        return json.loads(self.decided.to_json()) if self.decided else None

    @cached_property
    def decided(self) -> Decision | None:
        """The same as what it is read into."""
        path = self.path / "decision.json"
        if not self.is_since("decision.json"):
            return None
        return decision.from_json(path.read_bytes(), str(path))

    @property
    def chosen(self) -> str | None:
        """The configuration to serve: the operator's override, else the measured choice."""
        if self.run.params.choose.override is not None:
            return self.run.params.choose.override.choose
        return self.decision["choice"] if self.decision else None

    @property
    def baseline(self) -> str:
        """The name of the reference."""
        return str(self.decision["baseline"]) if self.decision else BASELINE

    @cached_property
    def launches(self) -> dict[str, dict[str, Any]]:
        """launches.json: per configuration its spec, load times and what the server said."""
        return self._mapping("launches.json")

    @cached_property
    def notes(self) -> list[str]:
        """Remarks of the benchmark on itself."""
        measured = self._mapping("measured.json")
        return [
            said for kind in ("notes", "remarks", "equality") for said in measured.get(kind, [])
        ]

    @cached_property
    def figures_of(self) -> str | None:
        """The result files of another tool that the cells are from; ``None`` where this run
        measured them itself."""
        return self._mapping("measured.json").get("figures_of")

    @cached_property
    def guards(self) -> list[dict[str, Any]]:
        """What makes the configurations comparable, as checks; empty of older runs."""
        rows = self._mapping("measured.json").get("guards", [])
        return self._rows("measured.json", rows, "name", "status", "found")

    def spec(self, config: str) -> LaunchSpec | None:
        """The launch of a configuration as measured; ``None`` where it was not started."""
        found = self.launches.get(config, {}).get("spec")
        try:
            return LaunchSpec(**{**found, "argv": tuple(found["argv"])}) if found else None
        except (TypeError, KeyError):
            raise self._damaged("launches.json") from None

    @cached_property
    def stack(self) -> dict[str, Any]:
        """stack.json."""
        found = self._mapping("stack.json")
        self._rows("stack.json", found.get("checks", []), "name", "status", "found")
        return found

    @cached_property
    def workload(self) -> dict[str, Any]:
        """workload.json: what the prompts are; empty where nothing was measured."""
        return self._mapping("workload.json")

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """service/manifest.json."""
        return self._mapping("service/manifest.json")

    @property
    def unmeasured(self) -> str | None:
        """Why the service was installed without a measurement; ``None`` where it has one."""
        run = str(self.manifest.get("run", ""))
        return run.removeprefix(_UNMEASURED) if run.startswith(_UNMEASURED) else None

    @cached_property
    def proofs(self) -> list[dict[str, Any]]:
        """service/proofs.json, unless it is older than the last attempt to install."""
        name = "service/proofs.json"
        found = self.run.read_json(name, list) if self.is_since(name) else []
        return self._rows(name, found, "name", "status", "evidence")

    @cached_property
    def set_by_server(self) -> dict[str, str]:
        """service/set_by_server.json: variables that the server set for its own processes."""
        return self._mapping("service/set_by_server.json")

    @property
    def guard_warned(self) -> list[str]:
        """service/guard_said.json: what the guard found before the last start and let pass."""
        said = self.run.read_json("service/guard_said.json", list) or []
        return [line.removeprefix("warn: ") for line in said if line.startswith("warn: ")]

    def service_file(self, name: str) -> str | None:
        """A text file of ``service/``: the unit, ``diff.txt``, ``journal.txt``."""
        return self._text(f"service/{name}")

    def requests(self) -> Iterator[dict[str, Any]]:
        """requests.jsonl, row by row; a last line that was cut off is left out."""
        path = self.path / "requests.jsonl"
        if not path.is_file():
            return
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.endswith("\n") and line.strip():
                    yield self._row(line)

    def is_since(self, name: str, *stages: str) -> bool:
        """Whether a file is there, and was written after these stages were last begun.

        ``stages``: by default the one the file is from. A copy or a checkout is later still.
        """
        path = self.path / name
        if not path.is_file():
            return False
        steps = [self.steps[stage] for stage in stages or _WRITTEN_BY[name]]
        begun = [step.started for step in steps]
        return all(step.status != "pending" for step in steps) and all(
            datetime.fromisoformat(started).timestamp() <= path.stat().st_mtime
            for started in filter(None, begun)
        )

    def _row(self, line: str) -> dict[str, Any]:
        try:
            row = parse_json(line)
        except ValueError:
            row = None
        keys = ("config", "tokens_out", "error_kind")
        return self._rows("requests.jsonl", [row], *keys)[0]

    def _mapping(self, name: str) -> dict[str, Any]:
        return self.run.read_json(name) or {}

    def _rows(self, name: str, rows: Any, *keys: str) -> list[dict[str, Any]]:
        """``rows`` if it is a list of which each has these keys. Raises ``BadInput``."""
        if isinstance(rows, list) and all(
            isinstance(row, dict) and {*keys} <= row.keys() for row in rows
        ):
            return rows
        raise self._damaged(name)

    def _damaged(self, name: str) -> BadInput:
        return BadInput(
            f"{self.path / name} is not as the runbook wrote it",
            "an artefact that nobody has changed",
            "run its stage again: runbook run PARAMS --from STAGE",
        )

    def _text(self, name: str) -> str | None:
        path = self.path / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
