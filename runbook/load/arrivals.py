"""When the requests of an open loop are due, seconds after its start. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable


def poisson(rate_s: float, count: int, seed: int) -> tuple[float, ...]:
    """``count`` arrivals of a Poisson process of ``rate_s`` a second."""
    chance = random.Random(seed)
    return tuple(itertools.accumulate(chance.expovariate(rate_s) for _ in range(count)))


def recorded(begins_s: Iterable[float], count: int) -> tuple[float, ...]:
    """The first ``count`` arrivals of a log, the first one at once, with their distances."""
    ordered = sorted(begins_s)[:count]
    return tuple(begin - ordered[0] for begin in ordered)
