"""Intervals and tests on log-ratios, one value a block (pure).

A value is ``log(throughput / the baseline's in the same block)``, so its exponential is a ratio
and the pairing removes what both had in common. The unit is the block: requests of one server
life share that life's luck, and testing them as if they did not is wrong half of the time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import special

CONFIDENCE = 0.95
MIN_BLOCKS = 3

Alternative = Literal["two-sided", "less", "greater"]


@dataclass(frozen=True)
class Estimate:
    """Mean of ``n`` values with its interval, in the unit of the values (log-ratios here).

    ``low`` and ``high`` are ``None`` where ``no_interval`` says why; ``sd`` is that of one value.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    sd: float | None
    no_interval: str = ""


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Two-sided t interval of the mean; on paired differences this is the paired t interval.

    Fewer than three values get no interval. Raises ``ValueError`` without any value.
    """
    return _interval(values, confidence, new_values=0)


def prediction_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Two-sided interval in which one new value (a new server life) falls.

    Wider than that of the mean: a single new life scatters by itself. Same refusals.
    """
    return _interval(values, confidence, new_values=1)


def difference_interval(
    before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE
) -> Estimate:
    """Two-sided interval of ``mean(after) - mean(before)`` for values that are not paired (Welch).

    For two runs, which share no block. Fewer than three values on a side get no interval. Raises
    ``ValueError`` where a side has none.
    """
    one, other = mean_interval(before), mean_interval(after)
    mean, fewest = other.mean - one.mean, min(one.n, other.n)
    if one.sd is None or other.sd is None:
        return Estimate(mean, None, None, fewest, None, too_few(fewest))
    parts = [one.sd**2 / one.n, other.sd**2 / other.n]
    total = math.fsum(parts)
    if total == 0:
        return Estimate(mean, mean, mean, fewest, 0.0)
    degrees = total**2 / (parts[0] ** 2 / (one.n - 1) + parts[1] ** 2 / (other.n - 1))
    half = float(special.stdtrit(degrees, (1 + confidence) / 2)) * math.sqrt(total)
    return Estimate(mean, mean - half, mean + half, fewest, math.sqrt(total * fewest))


def _interval(values: Sequence[float], confidence: float, new_values: int) -> Estimate:
    n = len(values)
    if n == 0:
        raise ValueError("an estimate needs at least one value")
    mean = math.fsum(values) / n
    if n < MIN_BLOCKS:
        return Estimate(mean, None, None, n, None, too_few(n))
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = _t_quantile(n - 1, confidence) * sd * math.sqrt(new_values + 1 / n)
    return Estimate(mean, mean - half, mean + half, n, sd)


def look_confidence(looks: Sequence[int], blocks: int) -> float:
    """Of the interval at a look after ``blocks``, so that all ``looks`` together err in 5 %.

    Each spends the share of the 5 % that its blocks since the look before are of all.
    """
    if not looks:
        return CONFIDENCE
    at = next((n for n, look in enumerate(looks) if look >= blocks), len(looks) - 1)
    before = looks[at - 1] if at else 0
    return 1 - (1 - CONFIDENCE) * (looks[at] - before) / looks[-1]


def too_few(n: int) -> str:
    """Why ``n`` blocks carry no interval."""
    return f"{n} {'block' if n == 1 else 'blocks'}: an interval needs at least {MIN_BLOCKS}"


def cannot_exclude(n: int, values: Sequence[float] = ()) -> str:
    """What fewer than three blocks leave open, in words; of two also in figures, by their own t
    interval, which is no grounds for a choice: it has one degree of freedom."""
    if n == 1:
        return (
            "it cannot be excluded that the luck of one server life, the order of the lives, a "
            "drift of the machine or another user makes all of a difference: nothing is known of "
            "the scatter, and a loss may hide behind a gain"
        )
    said = (
        "two values of a scatter that nobody knows: a 95 % interval of two is "
        f"{_t_quantile(1, CONFIDENCE):.1f} standard errors to each side, so a gain several times "
        "as large as the blocks lie apart may be chance"
    )
    if len(values) == 2:
        mean = math.fsum(values) / 2
        half = _t_quantile(1, CONFIDENCE) * abs(values[0] - values[1]) / 2
        low, high = (math.expm1(mean + side * half) * 100 for side in (-1, 1))
        said += f"; here nothing from {low:+.1f} % to {high:+.1f} % is excluded"
    return said


def p_value(
    values: Sequence[float], null: float = 0.0, alternative: Alternative = "two-sided"
) -> float | None:
    """p of the t test that the mean is ``null``; ``None`` below three values.

    Values without any scatter that differ from ``null`` are taken as certain.
    """
    estimate = mean_interval(values) if values else None
    if estimate is None or estimate.sd is None:
        return None
    distance = estimate.mean - null
    if estimate.sd == 0:
        t = math.copysign(math.inf, distance) if distance else 0.0
    else:
        t = distance * math.sqrt(estimate.n) / estimate.sd
    if alternative == "two-sided":
        return float(2 * special.stdtr(estimate.n - 1, -abs(t)))
    return float(special.stdtr(estimate.n - 1, t if alternative == "less" else -t))


def trend(
    places: Sequence[float], values: Sequence[float], groups: int
) -> tuple[float, float | None]:
    """Slope of ``values`` over ``places``, both less the mean of their group, with its p.

    ``groups``: how many means were taken off. ``None`` where too few values are left to tell.
    """
    degrees = len(values) - groups - 1
    spread = math.fsum(place * place for place in places)
    if degrees < 2 or not spread:
        return 0.0, None
    slope = math.fsum(p * v for p, v in zip(places, values, strict=True)) / spread
    left = math.fsum((v - slope * p) ** 2 for p, v in zip(places, values, strict=True))
    if left <= 1e-18:
        return slope, 0.0 if abs(slope) > 1e-12 else 1.0
    t = slope / math.sqrt(left / degrees / spread)
    return slope, float(2 * special.stdtr(degrees, -abs(t)))


def equivalence_p(values: Sequence[float], bound: float) -> float | None:
    """p of two one-sided tests: small where the mean clearly lies within ``-bound..bound``."""
    below = p_value(values, bound, "less")
    above = p_value(values, -bound, "greater")
    return None if below is None or above is None else max(below, above)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjustment of a family of p values; ``None`` (not tested) stays and does not count."""
    tested = sorted((p, at) for at, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    reached = 0.0
    for rank, (p, at) in enumerate(tested):
        reached = max(reached, min(1.0, (len(tested) - rank) * p))
        adjusted[at] = reached
    return adjusted


def power(effect: float, sd: float, n: int, confidence: float = CONFIDENCE) -> float:
    """Chance that the interval of ``n`` values lies above 0 when their true mean is ``effect``."""
    if n < MIN_BLOCKS:
        return 0.0
    if sd <= 0:
        return 1.0 if effect > 0 else 0.0
    shift = effect * math.sqrt(n) / sd
    if shift > 35:  # the noncentral t is evaluated as nan far out, where the answer is certain
        return 1.0
    return 1 - float(special.nctdtr(n - 1, shift, _t_quantile(n - 1, confidence)))


def blocks_needed(
    effect: float, sd: float, wanted_power: float = 0.8, most: int = 100
) -> int | None:
    """Fewest blocks whose interval clears a difference of ``effect`` with that power.

    ``None`` when even ``most`` blocks would not do. The sign of ``effect`` does not matter.
    """
    for n in range(MIN_BLOCKS, most + 1):
        if power(abs(effect), sd, n) >= wanted_power:
            return n
    return None


@functools.cache
def _t_quantile(degrees: int, confidence: float) -> float:
    return float(special.stdtrit(degrees, (1 + confidence) / 2))
