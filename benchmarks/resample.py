"""How often would a run of this kind give which answer? Re-sample the blocks of several real runs.

    python benchmarks/resample.py RUN [RUN ...] [--blocks N] [--draws 4000] [--params FILE]

Whole blocks (every configuration once, one life each) are pooled over the runs; new runs of N
blocks are drawn from the pool without replacement, all of them where there are few, and go
through the rule as measured ones do. Without replacement, because a block drawn twice would hide
its own scatter. Blocks of one run share that hour's luck: the spread between runs is printed
beside the spread within them, and where it is much greater, the share is too good.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from runbook import cells as cell_files
from runbook import choose, params
from runbook.cells import Cell
from runbook.errors import BadInput, RunbookError

Block = list[Cell]


def read_blocks(run: Path) -> list[Block]:
    """The blocks of a run's ``cells.csv``, in order."""
    path = run / "cells.csv" if run.is_dir() else run
    if not path.is_file():
        raise BadInput(f"{path} does not exist", "a run folder or a cells.csv", "name another one")
    blocks: dict[int, Block] = {}
    for cell in cell_files.from_csv(path.read_text(encoding="utf-8"), str(path)):
        blocks.setdefault(cell.block, []).append(cell)
    return [blocks[number] for number in sorted(blocks)]


def read_rule(runs: Sequence[Path], file: Path | None) -> params.Params:
    """The parameters of ``file``, else of the first run; all runs must be of the same."""
    if file:
        return params.load(file)
    found = [params.load(run / "params.yaml") for run in runs if (run / "params.yaml").is_file()]
    if not found:
        raise BadInput("no run holds params.yaml", "the rule to decide by", "give --params FILE")
    if len({one.identity() for one in found}) > 1:
        raise BadInput(
            "the runs have different parameters", "runs of one kind", "leave the others out"
        )
    return found[0]


def joined(blocks: Sequence[Block]) -> list[Cell]:
    """Blocks as one run: blocks and lives numbered anew, so that none is shared."""
    cells: list[Cell] = []
    lives: dict[tuple[int, int], int] = {}
    for number, block in enumerate(blocks, 1):
        for cell in block:
            life = lives.setdefault((number, cell.life), len(lives) + 1)
            cells.append(replace(cell, block=number, life=life))
    return cells


def draws(pool: Sequence[Block], size: int, most: int, seed: int) -> Iterator[list[Block]]:
    """All ways to take ``size`` blocks of the pool, or ``most`` random ones of more."""
    if math.comb(len(pool), size) <= most:
        yield from (list(chosen) for chosen in itertools.combinations(pool, size))
        return
    rng = random.Random(seed)
    for _ in range(most):
        yield rng.sample(list(pool), size)


def show_spread(runs: Sequence[Sequence[Block]], given: params.Params) -> None:
    """Standard deviation of the weighted log-ratio within and between the runs."""
    names = [one.name for one in given.configurations if one.name != params.BASELINE]
    print(f"{'config':16} {'blocks':>6} {'mean %':>7} {'sd all':>7} {'within':>7} {'between':>7}")
    for name in names:
        by_run = [list(choose.block_scores(joined(run), given.choose, name)) for run in runs]
        scores = [score for run in by_run for score in run]
        if not scores:
            print(f"{name:16} {0:6}   no complete block")
            continue
        within = [statistics.variance(run) for run in by_run if len(run) > 1]
        means = [statistics.mean(run) for run in by_run if run]
        figures = [
            statistics.stdev(scores) if len(scores) > 1 else None,
            math.sqrt(statistics.mean(within)) if within else None,
            statistics.stdev(means) if len(means) > 1 else None,
        ]
        shown = " ".join(f"{'?' if one is None else f'{one:.4f}':>7}" for one in figures)
        gain = math.expm1(statistics.mean(scores)) * 100
        print(f"{name:16} {len(scores):6} {gain:+7.1f} {shown}")


def show_answers(pool: Sequence[Block], given: params.Params, size: int, most: int) -> None:
    """How often each answer comes."""
    names = [one.name for one in given.configurations]
    answers: Counter[str] = Counter()
    for blocks in draws(pool, size, most, seed=1):
        answer = choose.ask(joined(blocks), given.choose, names)
        answers[answer.choice or answer.status.replace("_", " ")] += 1
    total = answers.total()
    print(f"\n{size} blocks a run, {total} re-sampled runs from {len(pool)} blocks:")
    for answer_name, count in answers.most_common():
        mark = "  <- expected" if answer_name == given.choose.expected else ""
        print(f"  {count / total * 100:5.1f} %  {answer_name}{mark}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--blocks", type=int, help="blocks of a new run (default: the parameters')")
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--params", type=Path)
    asked = parser.parse_args()
    try:
        given = read_rule(asked.runs, asked.params)
        runs = [read_blocks(run) for run in asked.runs]
        pool = [block for run in runs for block in run]
        size = asked.blocks or given.benchmark.blocks
        if len(pool) < size:
            raise BadInput(f"{len(pool)} blocks in all", f"at least {size}", "name more runs")
        for run, blocks in zip(asked.runs, runs, strict=True):
            answer = choose.ask(joined(blocks), given.choose)
            print(f"{run}: {len(blocks)} blocks, {answer.choice or answer.status}")
        print()
        show_spread(runs, given)
        show_answers(pool, given, size, asked.draws)
    except RunbookError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
