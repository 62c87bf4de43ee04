"""What was found: the sections on stack, models and benchmark, from a run's artefacts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runbook import intervals
from runbook.cells import Cell, point_label
from runbook.checks import counted
from runbook.load.manifest import spread
from runbook.publish.artefacts import Artefacts
from runbook.publish.state import sentence, status_in_document
from runbook.publish.tables import (
    UNKNOWN,
    Code,
    Markdown,
    escape,
    joined,
    number,
    table,
    titled_list,
)
from runbook.verified import checks_of, fingerprints_of


def todo_table(run_path: Path, in_document: bool = False) -> Markdown:
    """The to-do list of the run: each step, how it stands, when, and why.

    ``in_document``: for the document, which is itself what some of the steps do.
    """
    found = Artefacts.of(run_path)
    return table(
        {
            "step": step.name,
            "status": status_in_document(found, step)
            if in_document
            else step.status.replace("_", " "),
            "started": step.started or "-",
            "ended": step.ended or "-",
            "reason": sentence(step.reason) if step.reason else "-",
        }
        for step in found.steps.values()
    )


def stack_table(run_path: Path) -> Markdown:
    """Facts of the machine and the checks on them, those that are not passed first."""
    stack = Artefacts.of(run_path).stack
    checks, facts = stack.get("checks", []), stack.get("facts", {})
    return joined(
        checks_table(checks),
        "### Facts",
        table(
            ({"fact": name, "found": value} for name, value in facts.items()),
            empty="No fact was recorded.",
        ),
    )


def checks_table(checks: Iterable[Mapping[str, Any]]) -> Markdown:
    """Checks as a table: what failed first, then warnings, unknowns, and what passed.

    Those that were skipped follow as a list, one line a reason.
    """
    order = {"fail": 0, "warn": 1, "unknown": 2, "pass": 3}
    known = list(checks)
    made = [check for check in known if check["status"] != "skipped"]
    skipped = [check for check in known if check["status"] == "skipped"]
    rows = (
        {
            "check": check["name"],
            "status": check["status"],
            "found": check["found"],
            "wanted": check.get("wanted") or "-",
            "what to do": check.get("fix") or "-",
        }
        for check in sorted(made, key=lambda check: order.get(str(check["status"]), 0))
    )
    groups = by_reason(skipped)
    lines = [f"{', '.join(names)}: {why}" for (_, why), names in groups.items()]
    return joined(table(rows, empty="No check was made."), titled_list("Skipped", lines))


def by_reason(items: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """Names of checks or proofs by their status and what is said of it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for item in items:
        why = sentence(str(item.get("evidence") or item.get("found") or ""))
        groups.setdefault((str(item["status"]), why), []).append(str(item["name"]))
    return groups


def models(run_path: Path) -> Markdown:
    """Target and draft: the files, with fingerprints; what was found of them."""
    found = Artefacts.of(run_path)
    server, stack = found.run.params.server, found.stack
    checks = checks_of(stack)
    fingerprints = fingerprints_of(stack)
    rows = [
        {
            "model": f"{role}: does it fit the model" if check == "draft_fits" else role,
            "path": Code(path),
            "fingerprint": Code(fingerprints[role]) if fingerprints.get(role) else UNKNOWN,
            "status": checks.get(check, {}).get("status"),
            "found": checks.get(check, {}).get("found"),
        }
        for role, path, check in (
            ("model", server.model, "model"),
            ("draft", server.draft, "draft"),
            ("draft", server.draft, "draft_fits"),
        )
        if path
    ]
    none = "" if server.draft else "No draft model is used."
    return joined(table(rows), none, _FINGERPRINT)


_FINGERPRINT = (
    "A fingerprint is of sizes, names and hashes as far as they were taken; it is compared again "
    "wherever these files are to be the same."
)


def benchmark_table(run_path: Path) -> Markdown:
    """One row a configuration, concurrency and context: means over the usable cells of the blocks.

    The interval of the throughput is the 95 % one of the mean over blocks; cells that may not be
    compared are listed below with the reason.
    """
    found = Artefacts.of(run_path)
    groups: dict[tuple[int, int, int], list[Cell]] = {}
    place = {name: at for at, name in enumerate(found.names)}
    for cell in found.cells:
        key = (cell.concurrency, cell.context_tokens or 0, place.get(cell.config, len(place)))
        groups.setdefault(key, []).append(cell)
    rows = [_benchmark_row(cells) for _, cells in sorted(groups.items())]
    contexts = {cell.context_tokens for cell in found.cells}
    for row in rows:
        if row["configuration"] == found.baseline and row["accepted (tok/step)"] is None:
            row["accepted (tok/step)"] = "-"
    thinks = any(row["TTFAT p50 (ms)"] not in (None, row["TTFT p50 (ms)"]) for row in rows)
    shown = {"context (tokens)": len(contexts) > 1, "TTFAT p50 (ms)": thinks}
    columns = [name for name in rows[0] if shown.get(name, True)] if rows else []
    return joined(
        table(
            rows,
            columns,
            right=["95 %", "accepted (tok/step)"],
            decimals=_DECIMALS,
            empty="No cell was measured.",
        ),
        _OF_WHAT if rows else "",
        _lengths(found),
        _acceptance_by_kind(found),
        _left_out([cell for cell in found.cells if not cell.usable]),
        _guards(found),
        titled_list("Notes", found.notes),
        _said_by_servers(found),
    )


def _lengths(found: Artefacts) -> str:
    """How long prompts and answers were, by the servers' own counts; a line a context."""
    contexts = {cell.mark: cell.context_tokens for cell in found.cells}
    lengths: dict[tuple[int | None, str], list[int]] = {}
    for row in found.requests():
        for side in ("tokens_in", "tokens_out"):
            if row["error_kind"] is None and row.get(side) is not None:
                place = contexts.get(str(row.get("cell"))), side
                lengths.setdefault(place, []).append(int(row[side]))
    several = len({context for context, _ in lengths}) > 1
    said = []
    for context in sorted({context for context, _ in lengths}, key=lambda one: one or 0):
        sides = [
            f"{name} {_percentiles(lengths[context, side])}"
            for side, name in (("tokens_in", "prompts"), ("tokens_out", "answers"))
            if (context, side) in lengths
        ]
        at = f" at context {context}" if several else ""
        said.append(f"Lengths in tokens{at}, as the servers counted: {'; '.join(sides)}.")
    return "\n".join(said)


def _percentiles(values: Sequence[int]) -> str:
    found = spread(values)
    assert found is not None
    marks = f"p50 {round(found.p50)}, p90 {round(found.p90)}, p99 {round(found.p99)}"
    return f"{marks}, longest {found.greatest} ({counted(found.count, 'request')})"


def _acceptance_by_kind(found: Artefacts) -> str:
    """Acceptance length by kind of prompt, from servers that tell it of each request."""
    tokens: Counter[tuple[str, str]] = Counter()
    steps: Counter[tuple[str, str]] = Counter()
    for row in found.requests():
        if row.get("verify_steps") and row["tokens_out"] and row["error_kind"] is None:
            place = row["config"], row.get("kind", "")
            tokens[place] += row["tokens_out"] - 1  # the first token is the prefill's
            steps[place] += row["verify_steps"]
    kinds = sorted({kind for _, kind in steps})
    if len(kinds) < 2:
        return ""
    rows = [
        {"configuration": name}
        | {kind: tokens[name, kind] / steps[name, kind] for kind in kinds if steps[name, kind]}
        for name in found.names
        if any(steps[name, kind] for kind in kinds)
    ]
    told = "Acceptance length by kind of prompt: another mix of prompts is another acceptance"
    shown = table(rows, ["configuration", *kinds], decimals=dict.fromkeys(kinds, 2))
    return f"{told}.\n\n{shown}"


def _said_by_servers(found: Artefacts) -> Markdown:
    """What was proved of the servers themselves, and what was not."""
    proved = {
        name: "; ".join(
            f"{check['name']} {check['found']}"
            for check in launch.get("checks", [])
            if check["status"] == "pass"
        )
        for name, launch in found.launches.items()
    }
    told = [f"{name}: {said}" for name, said in proved.items() if said]
    return joined(titled_list("What the servers proved to run", told), _not_proved(found))


def _guards(found: Artefacts) -> Markdown | str:
    """What makes the figures comparable, each with what was found."""
    if not found.guards:
        return ""
    return joined("What makes them comparable:", checks_table(found.guards))


def _not_proved(found: Artefacts) -> str:
    open_checks = [
        {"configuration": name, **check}
        for name, launch in found.launches.items()
        for check in launch.get("checks", [])
        if check["status"] != "pass"
    ]
    if not open_checks:
        return ""
    columns = ("configuration", "name", "status", "found", "wanted")
    return f"Checks of the servers that did not pass:\n\n{table(open_checks, columns)}"


_OF_WHAT = (
    "Means over cells: a p50 is that of each cell's own requests, averaged. TPOT is the time of a "
    "token, the chunk gap that from one event of the stream to the next, which may bear several. "
    "In the figure of distributions the requests of all cells are one heap."
)
_DECIMALS = {
    "tok/s": 1,
    "TTFT p50 (ms)": 0,
    "TTFT p99 (ms)": 0,
    "TTFAT p50 (ms)": 0,
    "TPOT p50 (ms)": 1,
    "chunk gap p50 (ms)": 1,
    "accepted (tok/step)": 2,
}


def _benchmark_row(cells: Sequence[Cell]) -> dict[str, Any]:
    first, usable = cells[0], [cell for cell in cells if cell.usable]

    def mean(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    speeds = [cell.output_tok_s for cell in usable if cell.output_tok_s is not None]
    estimate = intervals.mean_interval(speeds) if speeds else None
    span = "no interval"
    if estimate is not None and estimate.low is not None and estimate.high is not None:
        span = f"{number(estimate.low, 1)} to {number(estimate.high, 1)}"
    running = mean(cell.running for cell in usable if cell.ran_fewer)
    return {
        "configuration": first.config,
        "C": first.concurrency if running is None else f"{first.concurrency} ({running:.0f} ran)",
        "context (tokens)": first.context_tokens,
        "tok/s": mean(speeds),
        "95 %": span,
        "TTFT p50 (ms)": mean(cell.ttft_p50_ms for cell in usable),
        "TTFT p99 (ms)": mean(cell.ttft_p99_ms for cell in usable),
        "TTFAT p50 (ms)": mean(cell.ttfat_p50_ms for cell in usable),
        "TPOT p50 (ms)": mean(cell.tpot_p50_ms for cell in usable),
        "chunk gap p50 (ms)": mean(cell.chunk_gap_p50_ms for cell in usable),
        "accepted (tok/step)": mean(cell.accept_length for cell in usable),
        "cells": len(usable),
        "errors": sum(cell.errors for cell in cells),
    }


def _left_out(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    lines = [
        f"- {escape(cell.config)}, block {cell.block}, "
        f"{point_label(cell.concurrency, cell.context_tokens)}: "
        f"{cell.status.replace('_', ' ')}" + (f" ({escape(cell.note)})" if cell.note else "")
        for cell in cells
    ]
    return "\n".join(["Not usable, and left out of all figures:", "", *lines])
