"""Choose: the declared rule over the measured cells, the decision, and what would flip it."""

from __future__ import annotations

from runbook.choose.control import Control, find_controls
from runbook.choose.deciding import ask, block_scores, decide
from runbook.choose.decision import Decision, from_json
from runbook.choose.figures import equal_mix
from runbook.choose.tables import effect_rows, flip_rows, throughput_rows, winner_rows
from runbook.choose.verdict import final_choice, verdict

__all__ = [
    "Control",
    "Decision",
    "ask",
    "block_scores",
    "decide",
    "effect_rows",
    "equal_mix",
    "final_choice",
    "find_controls",
    "flip_rows",
    "from_json",
    "throughput_rows",
    "verdict",
    "winner_rows",
]
