"""The section on the decision, from decision.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runbook.cells import point_label
from runbook.params import Params
from runbook.publish.artefacts import Artefacts
from runbook.publish.state import percent
from runbook.publish.tables import UNKNOWN, Markdown, escape, joined, table, titled_list

_FIGURES = ("gain", "95 %", "p (Holm)")


def decision_table(run_path: Path) -> Markdown:
    """The decision: gains with intervals, single points, what it costs and what would flip it."""
    found = Artefacts.of(run_path)
    decision = found.decision
    if decision is None or found.decided is None:
        return Markdown("*Nothing was decided.*")
    head = f"**{escape(str(decision['choice'] or 'No choice'))}**"
    head += f" ({str(decision['status']).replace('_', ' ')}): {escape(decision['reason'])}"
    return joined(
        head,
        _override(found.run.params),
        table((_effect_row(effect) for effect in decision["effects"]), right=_FIGURES),
        _weights(decision),
        table((_point_row(point) for point in decision["points"]), right=_FIGURES),
        titled_list("What it costs", _costs(decision, found.chosen)),
        titled_list("What would flip it", (flip.sentence for flip in found.decided.flips)),
        titled_list(
            "Where the gain changes sign", (one.sentence for one in found.decided.crossovers)
        ),
        titled_list("What to do next", decision["advice"]),
        titled_list("Notes", decision["notes"]),
    )


def _costs(decision: Mapping[str, Any], chosen: str | None) -> list[str]:
    """What a single user gains or loses by the choice, at the lowest concurrency, always said; then
    what the decision says of the others."""
    if chosen == decision["baseline"]:
        return _costs_of_baseline(decision)
    own = [point for point in decision["points"] if point["config"] == chosen]
    if not own:
        return list(decision["costs"])
    lowest = min(own, key=lambda point: int(point["point"]["concurrency"]))
    ratio = lowest["ratio"]
    gain = UNKNOWN if ratio is None else percent(ratio)
    cost = "nothing" if ratio is not None and (lowest["low"] or ratio) >= 1 else "perhaps speed"
    cost = "speed" if ratio is not None and (lowest["high"] or ratio) < 1 else cost
    where, span = point_label(**lowest["point"]), _span(lowest)
    alone = f"at {where}, the lowest load, {cost}: {gain} ({span}) against the baseline"
    if chosen != decision["choice"]:
        slower = [point for point in own if (point["ratio"] or 1) < 1 and point is not lowest]
        return [
            alone,
            *(f"at {point_label(**one['point'])}: {percent(one['ratio'])}" for one in slower),
        ]
    return [alone, *(one for one in decision["costs"] if not one.startswith(f"{where} loses"))]


def _costs_of_baseline(decision: Mapping[str, Any]) -> list[str]:
    """What is given up where the baseline is served: the gains of the choice of the figures."""
    choice = decision["choice"]
    if choice in (None, decision["baseline"]):
        return []
    gains = [
        f"{point_label(**point['point'])} {percent(point['ratio'])}"
        for point in decision["points"]
        if point["config"] == choice and (point["ratio"] or 0) > 1
    ]
    return [f"{escape(str(choice))} would be faster: {', '.join(gains)}"] if gains else []


def _override(params: Params) -> str:
    override = params.choose.override
    if override is None:
        return ""
    what = f"**Overridden** by {escape(override.by)}: {escape(override.choose)} is served."
    return f"{what} Reason: {escape(override.reason)}"


def _effect_row(effect: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "configuration": effect["config"],
        "gain": UNKNOWN if effect["ratio"] is None else percent(effect["ratio"]),
        "95 %": _span(effect),
        "blocks": effect["blocks"],
        "against the baseline": effect["word"],
        "excluded": effect["excluded"] or "-",
    }


def _point_row(effect: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "configuration": effect["config"],
        "at": point_label(**effect["point"]),
        "gain": UNKNOWN if effect["ratio"] is None else percent(effect["ratio"]),
        "95 %": _span(effect),
        "p (Holm)": "-" if effect["p"] is None else f"{effect['p']:.3g}",
        "against the baseline": effect["word"],
    }


def _span(effect: Mapping[str, Any]) -> str:
    if effect["low"] is None or effect["high"] is None:
        return "no interval"
    return f"{percent(effect['low'])} to {percent(effect['high'])}"


def _weights(decision: Mapping[str, Any]) -> str:
    shares = ", ".join(
        f"{point_label(**weight['point'])} {100 * weight['share']:.3g} %"
        for weight in decision["weights"]
    )
    margin = f"{100 * decision['margin']:g} %"
    return f"Declared mix (share of time): {shares}. Margin: {margin}. Single points:"
