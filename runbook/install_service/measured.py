"""What was measured of a configuration, read back from the run: what a service must be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from runbook import cells
from runbook.cells import Cell
from runbook.engines import engine_for
from runbook.engines.base import ServerInfo
from runbook.errors import BadInput, NotHere
from runbook.launch.spec import LaunchSpec
from runbook.params import Params
from runbook.run import Run
from runbook.verified import cards_of, fingerprints_of, told_of

#: ``Measured.launch`` of a configuration that was never started before it is installed.
UNMEASURED = "not measured"


@dataclass(frozen=True)
class Measured:
    """The launch that was benchmarked. ``load_s``: seconds of each life; empty: not measured.
    ``cold_s``: of a start whose model was not in the page cache, ``None`` where none was measured.

    ``facts``: what its interpreter found when the stack was verified, ``gpus``: the cards then,
    ``topology``: the fingerprint of their links, all as in ``stack.json``; empty where they were
    not recorded. ``figures_of``: the files of figures that were measured elsewhere; the launch was
    then started once, and not benchmarked.
    """

    spec: LaunchSpec
    load_s: tuple[float, ...] = ()
    info: ServerInfo | None = None
    launch: str = UNMEASURED
    facts: Mapping[str, Any] = field(default_factory=dict)
    gpus: Sequence[Mapping[str, Any]] = ()
    topology: str | None = None
    figures_of: str | None = None
    cold_s: float | None = None


def measured_in(run: Run, configuration: str) -> Measured:
    """The launch of a configuration as the benchmark recorded it. Raises ``NotHere``."""
    launches = run.read_json("launches.json") or {}
    if configuration not in launches:
        known = ", ".join(launches) or "none"
        raise NotHere(
            f"{configuration} was not measured in this run",
            f"a measured configuration (here: {known})",
            "runbook run PARAMS --from benchmark, or give a reason: "
            "runbook service install PARAMS --unmeasured REASON",
        )
    launch = launches[configuration]
    stack = run.read_json("stack.json") or {}
    try:
        return Measured(
            spec_from(launch["spec"]),
            tuple(launch.get("load_s") or ()),
            info_from(launch.get("info")),
            launch.get("launch", "unknown"),
            told_of(stack, configuration),
            cards_of(stack),
            fingerprints_of(stack).get("topology"),
            _figures_of(run),
            cold_start(run, configuration, launch),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise BadInput(
            f"launches.json of this run does not describe the launch of {configuration}: {error!r}",
            "launches.json as the benchmark of this release writes it",
            "measure again: runbook run PARAMS --from benchmark",
        ) from None


def _figures_of(run: Run) -> str | None:
    source = (run.read_json("measured.json") or {}).get("figures_of")
    return source if isinstance(source, str) else None


def cold_start(run: Run, configuration: str, launch: Mapping[str, Any]) -> float | None:
    """Seconds of the slowest cold start of a configuration: the benchmark's, and that of
    ``service verify --cold``."""
    proved = run.read_json("service/cold_start.json") or {}
    found = [launch.get("cold_s")]
    found += [proved.get("seconds")] if proved.get("configuration") == configuration else []
    return max((seconds for seconds in found if seconds), default=None)


def measured_cells(run: Run, configuration: str) -> list[Cell]:
    """The usable cells of a configuration, empty where nothing was measured."""
    found = cells.read(run.path / "cells.csv")
    return [cell for cell in found if cell.config == configuration and cell.usable]


def measured_prompts(run: Run, configuration: str) -> list[int]:
    """Tokens of each prompt that a configuration was measured with, as its server counted them;
    empty where nobody told."""
    path = run.path / "requests.jsonl"
    found: list[int] = []
    if not path.exists():
        return found
    for line in path.read_bytes().splitlines():
        try:
            request = json.loads(line)
        except ValueError:  # a writer that was killed
            continue
        if isinstance(request, dict) and request.get("config") == configuration:
            tokens = request.get("tokens_in")
            found += [tokens] if isinstance(tokens, int) and tokens > 0 else []
    return found


def measured_speeds(run: Run, configuration: str) -> dict[int, list[float]]:
    """Concurrency -> output tokens a second of each life; empty where figures were given."""
    speeds: dict[int, list[float]] = {}
    if _figures_of(run):
        return speeds
    for cell in measured_cells(run, configuration):
        if cell.output_tok_s:
            speeds.setdefault(cell.concurrency, []).append(cell.output_tok_s)
    return speeds


def unmeasured(params: Params, configuration: str) -> Measured:
    """The launch as it would be measured: for a look at the unit, or an install with a reason."""
    spec = engine_for(params.server).launch_spec(params, params.configuration(configuration))
    return Measured(spec)


def spec_from(stored: dict[str, Any]) -> LaunchSpec:
    """A ``LaunchSpec`` from its JSON."""
    return LaunchSpec(**{**stored, "argv": tuple(stored["argv"])})


def info_from(stored: dict[str, Any] | None) -> ServerInfo | None:
    """A ``ServerInfo`` from its JSON; fields that this release does not know are left out."""
    if stored is None:
        return None
    known = {field.name for field in fields(ServerInfo)}
    return ServerInfo(**{name: value for name, value in stored.items() if name in known})
