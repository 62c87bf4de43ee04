"""Plain rows for tables; how they look is the record's business."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from runbook.cells import Cell
from runbook.choose.decision import Decision
from runbook.choose.figures import point_of

Row = dict[str, Any]


def throughput_rows(cells: Sequence[Cell], decision: Decision) -> list[Row]:
    """Throughput by point and configuration; tokens per second are geometric means over blocks.

    Columns: concurrency, context_tokens, config, output_tok_s, ratio, low, high, p, word, blocks.
    The baseline has no ratio; ``None`` is unknown.
    """
    effects = {(effect.config, effect.point): effect for effect in decision.points}
    points = list(dict.fromkeys(effect.point for effect in decision.points))
    points = points or [weight.point for weight in decision.weights]
    rows = []
    for point in points:
        for config in (decision.baseline, *(effect.config for effect in decision.effects)):
            here = [c for c in cells if c.config == config and point_of(c) == point and c.usable]
            figures = [cell.output_tok_s for cell in here if cell.output_tok_s]
            effect = effects.get((config, point))
            rows.append(
                {
                    "concurrency": point.concurrency,
                    "context_tokens": point.context_tokens,
                    "config": config,
                    "output_tok_s": _geometric_mean(figures),
                    "ratio": effect.ratio if effect else None,
                    "low": effect.low if effect else None,
                    "high": effect.high if effect else None,
                    "p": effect.p if effect else None,
                    "word": effect.word if effect else "",
                    "blocks": effect.blocks if effect else len({cell.block for cell in here}),
                }
            )
    return rows


def effect_rows(decision: Decision) -> list[Row]:
    """The primary endpoint: config, ratio, low, high, blocks, word, excluded, chosen."""
    return [
        {
            "config": effect.config,
            "ratio": effect.ratio,
            "low": effect.low,
            "high": effect.high,
            "blocks": effect.blocks,
            "word": effect.word,
            "excluded": effect.excluded,
            "chosen": effect.config == decision.choice,
        }
        for effect in decision.effects
    ]


def flip_rows(decision: Decision) -> list[Row]:
    """What would flip the choice: kind, change (in words), amount, then."""
    return [
        {
            "kind": flip.kind,
            "change": flip.sentence,
            "amount": flip.amount,
            "then": flip.choice or flip.status,
        }
        for flip in decision.flips
    ]


def winner_rows(decision: Decision) -> list[Row]:
    """The answer at each point alone: concurrency, context_tokens, share, status, choice."""
    shares = {weight.point: weight.share for weight in decision.weights}
    return [
        {
            "concurrency": winner.point.concurrency,
            "context_tokens": winner.point.context_tokens,
            "share": shares.get(winner.point, 0.0),
            "status": winner.status,
            "choice": winner.choice,
        }
        for winner in decision.winners
    ]


def _geometric_mean(figures: Sequence[float]) -> float | None:
    if not figures:
        return None
    return math.exp(math.fsum(math.log(figure) for figure in figures) / len(figures))
