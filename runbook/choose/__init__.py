"""Choose: the declared rule over the measured cells, the decision, and what would flip it."""

from __future__ import annotations

from runbook.choose.control import Control, find_controls, with_controls
from runbook.choose.deciding import ask, block_scores, decide
from runbook.choose.figures import equal_mix, points_of
from runbook.choose.verdict import final_choice, verdict
from runbook.choose.words import show
from runbook.decision import Decision, Effect, Point, PointWinner, from_json

__all__ = [
    "Control",
    "Decision",
    "Effect",
    "Point",
    "PointWinner",
    "ask",
    "block_scores",
    "decide",
    "equal_mix",
    "final_choice",
    "find_controls",
    "from_json",
    "points_of",
    "show",
    "verdict",
    "with_controls",
]
