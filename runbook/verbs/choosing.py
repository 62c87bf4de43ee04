"""``runbook choose``: the rule over figures that may come from anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runbook import choose, foreign, params, traffic
from runbook.cells import Cell, to_csv
from runbook.checks import Verdict, counted
from runbook.choose import comparable, figure_guards
from runbook.errors import BadInput
from runbook.run import Run

#: The name of a run of figures that came without parameters: nothing is known of their server.
UNNAMED = "results"
_EQUAL = "no parameters were given: every measured point weighs the same"


def choose_from_files(
    paths: Sequence[Path],
    terms: params.ChoiceTerms | None,
    baseline: str = params.BASELINE,
    traffic_log: Path | None = None,
    units: Mapping[str, str] | None = None,
) -> tuple[choose.Decision, Verdict]:
    """Decide from cells, or from results of other tools; files and folders of them.

    Without a rule every measured point weighs the same. ``traffic_log``: a production log whose
    mix takes the place of the declared one; ``units``: of its fields, where it does not tell
    them. The notes of the decision name what the tools define otherwise. Raises ``BadInput`` for
    what cannot be read, and for names that are not there.
    """
    terms = terms or params.ChoiceTerms(None, {})
    found = read_comparable(paths, baseline, terms.args)
    said = [] if terms.choose else [_EQUAL]
    rule = terms.choose or choose.equal_mix(found.cells)
    if traffic_log:
        derived = _mix_of(traffic_log, found.cells, units)
        said = [derived.sentence]
        rule = rule.model_copy(update={"mix": list(derived.mix)})
    decision = choose.decide(found.cells, rule, None, baseline)
    guards = figure_guards.find_notes(decision, found.cells, terms.args)
    decision = replace(decision, notes=(*decision.notes, *said, *guards, *found.notes))
    return decision, choose.verdict(decision, rule, to_install=False)


def read_comparable(
    paths: Sequence[Path], baseline: str, args: Mapping[str, Sequence[str]]
) -> foreign.Found:
    """The figures of files and folders, those void that may not be compared with the baseline's.

    ``args``: arguments of the server by configuration, maybe empty. Raises ``BadInput``.
    """
    found = foreign.gather(paths)
    terms = comparable.Terms(baseline, figure_guards.request_caps(args), found.timed)
    held = comparable.hold_against(found.cells, terms)
    return replace(found, cells=held.cells, notes=(*held.notes, *found.notes))


def args_of(given: params.Params) -> dict[str, tuple[str, ...]]:
    """The arguments of the server by configuration."""
    return {one.name: (*given.server.args, *one.args) for one in given.configurations}


def _mix_of(path: Path, cells: Sequence[Cell], units: Mapping[str, str] | None) -> traffic.Traffic:
    points = sorted({(cell.concurrency, cell.context_tokens) for cell in cells}, key=str)
    log = traffic.Log(foreign.read_text(path), str(path), units)
    return traffic.derive_mix(log.served(), points, str(path), log.units)


def terms_of(
    path: Path | None,
    mix: str | None = None,
    margin: str | None = None,
    limits: Sequence[str] = (),
) -> params.ChoiceTerms | None:
    """The rule of a parameters file, of words on a command line, or of both; the words win.

    ``None`` where neither gives a mix: then every measured point weighs the same, unless margin
    or limits were given, for which a mix must be named. Raises ``BadInput``.
    """
    words: dict[str, Any] = {}
    if mix is not None:
        words["mix"] = parse_mix(mix)
    if margin is not None:
        words["margin"] = _share(margin, "--margin")
    if limits:
        words["limits"] = parse_limits(limits)
    if path is not None:
        return params.load_choice(path, words)
    if not words:
        return None
    if mix is None:
        raise BadInput(
            "--margin or --limit without a mix",
            "the share of time at each concurrency",
            "add --mix 1=0.15,30=0.6 or a parameters file",
        )
    return params.ChoiceTerms(params.choose_from_values(words, "the command line"), {})


def parse_mix(text: str) -> list[dict[str, Any]]:
    """``1=0.15,30@65536=0.6``: concurrency, ``@`` context where several were measured, share.

    Raises ``BadInput``.
    """
    found = []
    for word in filter(None, text.replace(",", " ").split()):
        match = re.fullmatch(r"(?P<at>[0-9]{1,4})(@(?P<context>[0-9]{1,9}))?=(?P<share>.+)", word)
        if not match:
            raise BadInput(
                f"--mix {word!a}",
                "CONCURRENCY=SHARE, or CONCURRENCY@CONTEXT=SHARE",
                "like --mix 1=0.15,30=0.6,100=0.25",
            )
        context = match["context"]
        found.append(
            {
                "concurrency": int(match["at"]),
                "context_tokens": int(context) if context else None,
                "share": _share(match["share"], "--mix"),
            }
        )
    return found


def parse_limits(words: Sequence[str]) -> dict[str, Any]:
    """``1=10%``: the loss allowed at a concurrency; ``ttft_p99_ms=2000``; ``error_share=0.01``.

    Raises ``BadInput``.
    """
    found: dict[str, Any] = {"max_regress": {}}
    for word in words:
        name, _, value = word.partition("=")
        if name.isascii() and name.isdigit():
            found["max_regress"][name] = _share(value, "--limit")
        elif name in ("ttft_p99_ms", "error_share"):
            found[name] = _share(value, "--limit")
        else:
            raise BadInput(
                f"--limit {word!a}",
                "CONCURRENCY=LOSS, ttft_p99_ms=MS or error_share=SHARE",
                "like --limit 1=10%",
            )
    return found


def _share(text: str, option: str) -> float:
    """``0.15`` or ``15%`` as a number. Raises ``BadInput``."""
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9}", number):
        raise BadInput(f"{option} {text!a}", "a number, like 0.15 or 15%", f"correct {option}")
    return float(number) / 100 if percent else float(number)


def run_of_results(path: Path, given: params.Params, ruled: bool, folder: Path | None) -> Run:
    """A run folder with the cells of result files in the place of its own measurement.

    Of ``given`` all but the configurations and concurrencies holds, which are those of the files;
    without ``ruled`` every measured point weighs the same. ``folder``: ``None`` for a new one in
    ``outputs``. Raises ``BadInput``.
    """
    args = args_of(given)
    found = read_comparable([path], params.BASELINE, args if ruled else {})
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
    whole = params.from_values(values, str(path))
    decision = choose.decide(found.cells, whole.choose)
    guards = figure_guards.find_notes(decision, found.cells, args if ruled else {})
    run = Run.create(whole, folder)
    run.write("cells.csv", to_csv(found.cells))
    notes = [*([] if ruled else [_EQUAL]), *guards, *found.notes]
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
