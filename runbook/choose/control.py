"""The A/A control: one launch under two names must come out as no difference. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from runbook.decision import Decision, percent


@dataclass(frozen=True)
class Control:
    """Two names of one launch: ``first`` over ``second`` in the declared mix.

    ``equal``: the interval of their ratio holds 1; without an interval, it lies within the margin.
    ``beyond``: it does not, and the ratio lies beyond the margin: such figures choose nothing.
    """

    first: str
    second: str
    ratio: float
    low: float | None
    high: float | None
    equal: bool
    beyond: bool = False

    @property
    def sentence(self) -> str:
        """In words."""
        if self.low is None or self.high is None:
            told = f"{percent(self.ratio)}, no interval"
        else:
            told = f"{percent(self.ratio)} (95 %: {percent(self.low)} to {percent(self.high)})"
        what = f"{self.first} and {self.second} are one launch under two names: {told}"
        if self.equal:
            return f"A/A control held: {what}"
        return (
            f"A/A control failed: {what}; either one of twenty such controls that fail by chance, "
            "or something besides the configuration sets the figures"
        )


def find_controls(decision: Decision, launches: Mapping[str, str]) -> tuple[Control, ...]:
    """The controls in a decision; ``launches``: configuration -> fingerprint of its launch."""
    return tuple(
        one for one in _pairs(decision) if _same(launches, one.first) == _same(launches, one.second)
    )


def with_controls(decision: Decision, launches: Mapping[str, str]) -> Decision:
    """``decision`` with what its controls say; arguments as of ``find_controls``."""
    controls = find_controls(decision, launches)
    return replace(
        decision,
        notes=(*decision.notes, *(one.sentence for one in controls)),
        failed_controls=tuple(one.sentence for one in controls if one.beyond),
    )


def _same(launches: Mapping[str, str], name: str) -> str:
    return launches.get(name, f"launch of {name} alone")


def _pairs(decision: Decision) -> Iterator[Control]:
    for effect in decision.effects:
        if effect.ratio is not None:
            names = effect.config, decision.baseline
            yield _control(*names, effect.ratio, effect.low, effect.high, decision.margin)
    for one in decision.comparisons:
        names = one.first, one.second
        yield _control(*names, one.ratio, one.low, one.high, decision.margin)


def _control(
    first: str, second: str, ratio: float, low: float | None, high: float | None, margin: float
) -> Control:
    beyond = abs(math.log(ratio)) > math.log1p(margin)
    equal = not beyond if low is None or high is None else low <= 1 <= high
    return Control(first, second, ratio, low, high, equal, beyond and not equal)
