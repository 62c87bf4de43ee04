"""``runbook choose``: the rule over a file of cells that may come from anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runbook import cells, choose, params
from runbook.checks import Verdict
from runbook.errors import BadInput


def choose_from_file(
    path: Path, rule: params.Choose | None, baseline: str
) -> tuple[choose.Decision, Verdict]:
    """Decide from a CSV of cells; without ``rule`` every measured point weighs the same.

    Raises ``BadInput`` for a file that cannot be read, or names that are not in it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}", "a CSV of cells", "see cells.csv of a run") from None
    found = cells.from_csv(text, str(path))
    rule = rule or choose.equal_mix(found)
    decision = choose.decide(found, rule, None, baseline)
    return decision, choose.verdict(decision, rule, to_install=False)


def as_text(decision: choose.Decision) -> str:
    """The decision for people."""
    lines = [f"{decision.status}: {decision.choice or 'no choice'}", f"  {decision.reason}"]
    for title, rows in (
        ("weighted effect", choose.effect_rows(decision)),
        ("what would flip it", choose.flip_rows(decision)),
    ):
        lines += ["", title, *(_line(row) for row in rows)]
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    return "  " + "  ".join(f"{key}={value}" for key, value in row.items() if value is not None)
