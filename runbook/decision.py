"""The decision and its parts: plain frozen data, to ``decision.json`` and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pydantic

from runbook.cells import point_label
from runbook.errors import BadInput

Status = Literal["chosen", "undecided", "provisional", "not_choosable"]
Word = Literal["better", "worse", "no difference", "undecided", "unknown"]


@dataclass(frozen=True, order=True)
class Point:
    """Where a configuration is measured; ``context_tokens`` is ``None`` where not stated."""

    concurrency: int
    context_tokens: int | None = None

    @property
    def label(self) -> str:
        """``C=8``, or ``C=8 context 65536``."""
        return point_label(self.concurrency, self.context_tokens)


@dataclass(frozen=True)
class Weight:
    """Share of production time at a point; the weights of a decision sum to 1."""

    point: Point
    share: float


@dataclass(frozen=True)
class Effect:
    """Primary endpoint of one configuration: throughput over the baseline's in the declared mix.

    ``ratio`` is ``None`` without a complete block, ``low``/``high`` (95 %, two-sided) without
    three. ``excluded`` says why it cannot be chosen; empty when it can. ``word``: better means
    beyond the margin, no difference means within it.
    """

    config: str
    ratio: float | None
    low: float | None
    high: float | None
    blocks: int
    word: Word
    excluded: str = ""


@dataclass(frozen=True)
class Comparison:
    """``first`` over ``second`` in the declared mix; ``different``: the interval excludes 1."""

    first: str
    second: str
    ratio: float
    low: float | None
    high: float | None
    blocks: int
    different: bool


@dataclass(frozen=True)
class PointEffect:
    """Secondary: one configuration over the baseline at one point.

    ``low``/``high`` are of this point alone; ``p`` is Holm-adjusted over the points of the
    configuration and rules ``word``. Without an interval the word goes by the margin alone.
    """

    config: str
    point: Point
    ratio: float | None
    low: float | None
    high: float | None
    blocks: int
    p: float | None
    word: Word

    @property
    def sentence(self) -> str:
        """In words: ``C=1 loses 6.4 %``, ``C=100 is a tie (+0.2 %)``."""
        if self.ratio is None:
            return f"{self.point.label} has no usable figure"
        if self.word == "no difference":
            return f"{self.point.label} is a tie ({percent(self.ratio)})"
        verb = "loses" if self.ratio < 1 else "gains"
        doubt = ", not clearly" if self.word == "undecided" else ""
        return f"{self.point.label} {verb} {abs(self.ratio - 1) * 100:.1f} %{doubt}"


@dataclass(frozen=True)
class PointWinner:
    """What the rule would answer if all the time were spent at this point."""

    point: Point
    status: Status
    choice: str | None


@dataclass(frozen=True)
class Flip:
    """A smallest change after which the rule answers otherwise.

    ``mix``: ``amount`` is the share of time moved from ``source`` to ``target``. ``figure``:
    ``amount`` is the relative change of ``config``'s throughput at ``target`` (``None``: at all
    points alike). ``status`` and ``choice`` are what the rule answers just beyond it.
    """

    kind: Literal["mix", "figure"]
    amount: float
    status: Status
    choice: str | None
    source: Point | None = None
    target: Point | None = None
    config: str | None = None

    @property
    def sentence(self) -> str:
        """In words."""
        then = self.choice or self.status.replace("_", " ")
        if self.kind == "mix" and self.source and self.target:
            moved = f"{self.amount * 100:.1f} % of the time moved"
            return f"{moved} from {self.source.label} to {self.target.label}: {then}"
        where = self.target.label if self.target else "every point"
        change = f"{self.amount * 100:+.1f} %".replace("-", "−")
        return f"{self.config} {change} at {where}: {then}"


@dataclass(frozen=True)
class Crossover:
    """Concurrency at which a configuration's gain over the baseline changes sign.

    Interpolated in log C between measured points. ``low``/``high``: where the interval of the
    gain holds 0; ``None`` where it reaches the end of what was measured, or (``interval`` false)
    where there are fewer than three blocks.
    """

    config: str
    context_tokens: int | None
    concurrency: float
    low: float | None
    high: float | None
    interval: bool
    gains: Literal["below", "above"]

    @property
    def sentence(self) -> str:
        """In words."""
        span = "no interval"
        if self.interval:
            low = "below the least measured" if self.low is None else f"{self.low:.3g}"
            high = "beyond the greatest measured" if self.high is None else f"{self.high:.3g}"
            span = f"95 %: {low} to {high}"
        at = "" if self.context_tokens is None else f", context {self.context_tokens},"
        return f"{self.config}{at} gains {self.gains} C = {self.concurrency:.3g} ({span})"


@dataclass(frozen=True)
class Decision:
    """What the figures say, by the declared rule, and what would change it.

    ``choice`` is ``None`` when undecided or not choosable. ``blocks`` counts independent blocks
    measured: blocks that share a server life count once. ``failed_controls``: of equal launches
    that came out as different beyond the margin; nothing is to be installed by such figures.
    """

    status: Status
    choice: str | None
    reason: str
    baseline: str
    margin: float
    blocks: int
    weights: tuple[Weight, ...]
    effects: tuple[Effect, ...]
    comparisons: tuple[Comparison, ...]
    points: tuple[PointEffect, ...]
    winners: tuple[PointWinner, ...]
    costs: tuple[str, ...]
    flips: tuple[Flip, ...]
    crossovers: tuple[Crossover, ...]
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    failed_controls: tuple[str, ...] = ()

    def effect(self, config: str) -> Effect:
        """The primary effect of ``config``. Raises ``KeyError``."""
        return {effect.config: effect for effect in self.effects}[config]

    def to_json(self) -> str:
        """The text of ``decision.json``."""
        return _ADAPTER.dump_json(self, indent=2).decode() + "\n"


_ADAPTER = pydantic.TypeAdapter(Decision)


def from_json(text: str | bytes, source: str = "decision.json") -> Decision:
    """Read a decision back. Raises ``BadInput`` where the text is none."""
    try:
        return _ADAPTER.validate_json(text)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise BadInput(
            f"{source} is no decision ({where}: {first['msg']})",
            "the file that choose writes",
            "run choose again: runbook run PARAMS --from choose",
        ) from None


def percent(ratio: float) -> str:
    """A ratio as a signed percentage: ``+5.0 %``, ``−6.4 %``."""
    said = f"{(ratio - 1) * 100:+.1f} %"
    return said.replace("-0.0 %", "+0.0 %").replace("-", "−")


def percentage(share: float) -> str:
    """A share as people write it: ``0.15`` is ``15 %``, ``0.0123`` is ``1.2 %``, ``1`` ``100 %``.

    What is not nought is never shown as ``0 %``, what is not all never as ``100 %``.
    """
    value = share * 100
    if value == 0:
        return "0 %"
    if value < 0.1:
        return f"{value:.1g} %" if value >= 1e-4 else "less than 0.0001 %"
    said = f"{value:.1f}"
    if said == "100.0" and value < 100:
        return "more than 99.9 %"
    return f"{said.removesuffix('.0')} %"
