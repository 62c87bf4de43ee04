"""``runbook choose``: the rule over figures that may come from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runbook import choose, foreign, params, traffic
from runbook.cells import to_csv
from runbook.checks import Verdict, counted
from runbook.run import Run

#: The name of a run of figures that came without parameters: nothing is known of their server.
UNNAMED = "results"
_EQUAL = "no parameters were given: every measured point weighs the same"


def choose_from_files(
    paths: Sequence[Path],
    rule: params.Choose | None,
    baseline: str = params.BASELINE,
    traffic_log: Path | None = None,
) -> tuple[choose.Decision, Verdict]:
    """Decide from cells, or from results of other tools; files and folders of them.

    Without ``rule`` every measured point weighs the same. ``traffic_log``: a production log whose
    mix takes the place of the declared one. The notes of the decision name what
    the tools define otherwise. Raises ``BadInput`` for what cannot be read, and for names that
    are not there.
    """
    found = foreign.gather(paths)
    said = [] if rule else [_EQUAL]
    rule = rule or choose.equal_mix(found.cells)
    if traffic_log:
        points = sorted({(c.concurrency, c.context_tokens) for c in found.cells}, key=str)
        served = traffic.read_log(foreign.read_text(traffic_log), str(traffic_log))
        derived = traffic.derive_mix(served, points, str(traffic_log))
        said = [derived.sentence]
        rule = rule.model_copy(update={"mix": list(derived.mix)})
    decision = choose.decide(found.cells, rule, None, baseline)
    notes = (*decision.notes, *said, *found.notes)
    decision = replace(decision, notes=notes)
    return decision, choose.verdict(decision, rule, to_install=False)


def run_of_results(path: Path, given: params.Params, ruled: bool, folder: Path | None) -> Run:
    """A run folder with the cells of result files in the place of its own measurement.

    Of ``given`` all but the configurations and concurrencies holds, which are those of the files;
    without ``ruled`` every measured point weighs the same. ``folder``: ``None`` for a new one in
    ``outputs``. Raises ``BadInput``.
    """
    found = foreign.gather([path])
    known = {one.name: one for one in given.configurations}
    names = dict.fromkeys(cell.config for cell in found.cells)
    values = given.model_dump(mode="json")
    values["configurations"] = [
        known[name].model_dump(mode="json") if name in known else {"name": name} for name in names
    ]
    values["benchmark"]["concurrencies"] = sorted({cell.concurrency for cell in found.cells})
    if not ruled:
        values["name"] = UNNAMED
        values["choose"] = choose.equal_mix(found.cells).model_dump(mode="json")
    run = Run.create(params.from_values(values, str(path)), folder)
    run.write("cells.csv", to_csv(found.cells))
    notes = [*([] if ruled else [_EQUAL]), *found.notes]
    elsewhere = {"figures_of": str(path.resolve()), "notes": notes, "remarks": []}
    run.write_json("measured.json", elsewhere)
    run.begin("benchmark")
    run.finish("benchmark", "completed", f"figures of {path}, not measured by this run")
    return run


def split_words(words: Sequence[Path]) -> tuple[list[Path], Path | None]:
    """MEASUREMENTS... [PARAMS] apart: the last word is PARAMS when it ends as YAML does."""
    *rest, last = words
    if rest and last.suffix in (".yaml", ".yml"):
        return rest, last
    return [*rest, last], None


def as_text(decision: choose.Decision) -> str:
    """The decision for people."""
    lines = [f"{decision.status}: {decision.choice or 'no choice'}", f"  {decision.reason}"]
    for title, sentences in (
        (f"over {decision.baseline}, in the mix", [_effect(one) for one in decision.effects]),
        ("with all the time at one point", [_winner(one) for one in decision.winners]),
        ("what would flip it", [flip.sentence for flip in decision.flips]),
        ("where the gain changes sign", [one.sentence for one in decision.crossovers]),
        ("what it costs", decision.costs),
        ("to know", decision.notes),
        ("next", decision.advice),
    ):
        if sentences:
            lines += ["", title, *(f"  {sentence}" for sentence in sentences)]
    return "\n".join(lines)


def _effect(effect: choose.Effect) -> str:
    said = effect.excluded or effect.word
    return f"{effect.config}: {choose.show(effect)}, {counted(effect.blocks, 'block')}: {said}"


def _winner(winner: choose.PointWinner) -> str:
    return f"{winner.point.label}: {winner.choice or winner.status.replace('_', ' ')}"
