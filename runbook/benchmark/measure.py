"""The whole benchmark: blocks of lives, resumed where an earlier one ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runbook.benchmark.asking import plan_load
from runbook.benchmark.bench import Bench, Unmeasured
from runbook.benchmark.blocks import Block, plan_blocks
from runbook.benchmark.book import Book
from runbook.benchmark.cost import repetitions
from runbook.benchmark.lengths import Lengths
from runbook.benchmark.lives import Life, measure_life
from runbook.benchmark.measurements import Measurements, place_of, shorten
from runbook.benchmark.throughput import tokens_per_second
from runbook.benchmark.workload import plan_workload, workload_of
from runbook.cells import Cell
from runbook.engines.base import Engine
from runbook.launch.server import Launcher
from runbook.load import run_load
from runbook.load.context import texts_of
from runbook.params import Params
from runbook.run import Run
from runbook.verified import resolved_for

#: Told of each finished cell: what it was, how many are done, how many there are.
OnCell = Callable[[str, int, int], None]

_ARTEFACTS = (
    "answers.jsonl.gz",
    "cells.csv",
    "launches.json",
    "measured.json",
    "requests.jsonl",
    "workload.json",
)


_FORCED = (
    "answers were forced to their full length (workload.ignore_eos): past its end a text is not "
    "what drafts were trained on, so acceptance is not that of production"
)


def measure(
    run: Run,
    launcher: Launcher,
    engine: Engine,
    on_cell: OnCell,
    enough: Callable[[Sequence[Cell]], bool] | None = None,
    stack: Mapping[str, Any] | None = None,
) -> Measurements:
    """Measure every cell of ``run`` that is not finished; artefacts grow as cells end.

    ``enough`` is asked at each of ``choose.looks`` but the last whether the cells so far decide.
    ``stack``: facts of what surrounds the servers now, as in ``stack.json``; a cell that was
    measured on another is measured again.

    A server that dies or does not come up costs its own cells alone. Raises ``NotHere`` when the
    port is held by another process, ``BadInput`` for a workload that cannot be planned.
    """
    params = run.params
    blocks = plan_blocks(params)
    asked = workload_of(params.workload)
    workload = plan_workload(params, asked.prompts)
    total = sum(len(block.configs) * len(block.points) for block in blocks)
    done = 0

    def report(cell: Cell) -> None:
        nonlocal done
        done += 1
        on_cell(_sentence(cell), done, total)

    def say(text: str) -> None:
        on_cell(text, done, total)

    engine.prepare(params, say)
    run.write_json("workload.json", asked.manifest.as_json())
    with Book(run, engine.alike) as book:
        for said in (
            *([_FORCED] if params.workload.ignore_eos else []),
            *repetitions(params, asked.prompts),
        ):
            book.note(said)
        resolved = _resolved_in(run)
        lengths = Lengths(texts_of(asked.prompts), book.characters_per_token)
        bench = Bench(
            *(params, launcher, engine, workload, book, report),
            resolved=resolved,
            stack=stack or {},
            say=say,
            lengths=lengths,
        )
        lives = [
            _plan_life(bench, block, config, config == block.configs[-1])
            for block in blocks
            for config in block.configs
        ]
        done = total - sum(len(life.cells) for life in lives)
        if done:
            on_cell("measured before, and still valid", done, total)
        unmeasured: dict[str, Unmeasured] = {}
        for life in lives:
            config = life.configuration.name
            if config in unmeasured:
                bench.leave_out(life.spec, life.cells, unmeasured[config])
            elif life.cells and (why := measure_life(bench, life)):
                unmeasured[config] = replace(why, note=f"not started again: {why.note}")
            ended = life.is_last and life.block in params.choose.looks[:-1]
            if ended and enough and enough(book.measurements().cells):
                on_cell(f"decided after {life.block} of {len(blocks)} blocks", total, total)
                break
        return book.measurements()


def _resolved_in(run: Run) -> dict[str, dict[str, Any]]:
    """What the server's own parser made of each configuration when the stack was verified."""
    stack = run.read_json("stack.json") or {}
    answers = {one.name: resolved_for(stack, one.name) for one in run.params.configurations}
    return {name: resolved for name, resolved in answers.items() if resolved is not None}


def _plan_life(bench: Bench, block: Block, config: str, is_last: bool) -> Life:
    """A life with the cells that are still to be measured, perhaps none."""
    configuration = bench.params.configuration(config)
    spec = bench.engine.launch_spec(bench.params, configuration)
    cells = [Cell(config, 0, block.number, *point) for point in block.points]
    return Life(
        configuration,
        spec,
        tuple(c for c in cells if not bench.book.holds(c, bench.conditions(spec, c))),
        block.number,
        is_last,
    )


def _sentence(cell: Cell) -> str:
    place = f"block {cell.block}, {cell.config}, {place_of(cell)}: "
    if cell.output_tok_s is None or cell.status != "ok":
        return place + f"{cell.status} ({shorten(cell.note)})"
    return (
        place + f"{cell.output_tok_s:.1f} tok/s" + (f" ({shorten(cell.note)})" if cell.note else "")
    )


def measure_briefly(
    params: Params, launcher: Launcher, engine: Engine, out_dir: Path, on_cell: OnCell
) -> Measurements:
    """Every configuration once, at the lowest concurrency, two requests: a look, no grounds.

    Artefacts of an earlier call in ``out_dir`` are replaced; no run folder is needed.
    """
    for name in _ARTEFACTS:
        (out_dir / name).unlink(missing_ok=True)
    short = {
        "concurrencies": [min(params.benchmark.concurrencies)],
        "blocks": 1,
        "requests": 2,
        "rounds": 1,
        "warmup": 1,
    }
    benchmark = params.benchmark.model_copy(update=short)
    run = Run(out_dir, params.model_copy(update={"benchmark": benchmark}))
    found = measure(run, launcher, engine, on_cell)
    note = "one block of two requests: enough to see it work, not to compare by"
    return replace(found, notes=(note, *found.notes))


def measure_again(params: Params, model_id: str, concurrency: int) -> float | None:
    """Output tokens a second of one cell on the server that serves now, asked as in a run.

    Nothing is recorded. ``None`` where the answers came without usage, or none came.
    """
    point = next(one for one in sorted(params.points(), key=str) if one[0] == concurrency)
    asked = plan_workload(params, workload_of(params.workload).prompts)[point]
    if asked.warmup:
        short = params.benchmark.warmup_tokens
        run_load(plan_load(params, model_id, concurrency, asked.warmup, short))
    load = run_load(plan_load(params, model_id, concurrency, asked.measured))
    steady = params.benchmark.window == "steady"
    return tokens_per_second(load.records, concurrency if steady else None)
