"""In what order lives and cells are measured: blocks, seeded and random."""

from __future__ import annotations

import random
from dataclasses import dataclass

from runbook.params import Params, Point


@dataclass(frozen=True)
class Block:
    """Every configuration once, in random order; the cells of all its lives in one other order.

    The order of points is random so that a server's age falls on all of them alike, and
    the same for all lives of a block so that it cancels where they are compared in pairs.
    """

    number: int
    configs: tuple[str, ...]
    points: tuple[Point, ...]


def plan_blocks(params: Params) -> tuple[Block, ...]:
    """The blocks of ``benchmark.blocks``; the same seed gives the same orders on every machine."""
    names = [configuration.name for configuration in params.configurations]
    blocks = []
    for number in range(1, params.benchmark.blocks + 1):
        chance = random.Random(f"{params.benchmark.seed}/{number}")
        configs = chance.sample(names, len(names))
        points = params.points()
        order = chance.sample(points, len(points))
        blocks.append(Block(number, tuple(configs), tuple(order)))
    return tuple(blocks)
