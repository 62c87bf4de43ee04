"""What a run does and does not show: the kind of speculation, and the limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runbook.publish.artefacts import Artefacts
from runbook.publish.findings import by_reason
from runbook.publish.tables import Markdown, code, escape

_ALGORITHM_FLAGS = ("--speculative-algorithm", "--spec-type")


def what_it_is(found: Artefacts) -> str:
    """One paragraph: server, model, draft, and what kind of speculation was measured."""
    server = found.run.params.server
    draft = f", draft {code(server.draft)}" if server.draft else ", no draft model"
    said = f"Server {escape(server.engine)}, model {code(server.model)}{draft}. "
    if found.figures_of:
        said = f"Planned: s{said[1:]}"
        said += f"**The figures are of {code(found.figures_of)}, not measured by this run.** "
        said += "On what server they were measured, and with what speculation, is not recorded."
        confirmed = "; ".join(
            f"{row['name']}: {row['status']}, {row['found']}; wanted {row['wanted']}"
            for row in found.guards
        )
        return said + (f" This run started one server once: {escape(confirmed)}." * bool(confirmed))
    kinds = speculation_kinds(found)
    if not kinds:
        return said + "No configuration asks for speculation."
    listed = ", ".join(code(kind) for kind in kinds)
    if any("eagle3" in kind.lower().replace("-", "").replace("_", "") for kind in kinds):
        return said + f"Speculation that was measured: {listed}."
    ngram = all("ngram" in kind.lower() for kind in kinds)
    kind = "n-gram drafting" if ngram else "another kind"
    return said + f"**The speculation measured here is {kind} ({listed}), not EAGLE-3.**"


def speculation_kinds(found: Artefacts) -> list[str]:
    """Algorithms of all configurations: as asked by arguments, and as the servers said."""
    params = found.run.params
    asked = [_flag_value([*params.server.args, *one.args]) or "" for one in params.configurations]
    said = [
        str((launch.get("info") or {}).get("speculation") or "")
        for launch in found.launches.values()
    ]
    return [kind for kind in dict.fromkeys([*asked, *said]) if kind not in ("", "none")]


def _flag_value(args: Sequence[str]) -> str | None:
    for place, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if flag in _ALGORITHM_FLAGS:
            return value if equals else next(iter(args[place + 1 : place + 2]), None)
    return None


_OPEN = frozenset({"unknown", "skipped", "not provable here"})


def limits(run_path: Path) -> Markdown:
    """What was not tested, or has no answer, as a list."""
    found = Artefacts.of(run_path)
    return Markdown("\n".join(f"- {line}" for line in _limits(found)))


def _limits(found: Artefacts) -> list[str]:
    params = found.run.params
    sent = sorted({cell.concurrency for cell in found.cells if cell.requests})
    lines = ["Any load: nothing was measured in this run."]
    if sent:
        at = ", ".join(map(str, sent))
        lines = [f"Concurrencies other than {at}; nothing above {sent[-1]} was sent."]
    if found.figures_of:
        at = ", ".join(str(one) for one in sorted({cell.concurrency for cell in found.cells}))
        lines = [f"Concurrencies other than {at}: the figures have no others."]
        lines.append("What these servers were, what they were asked and how: it is not known here.")
        names = {cell.config for cell in found.cells}
        lines += [f"{code(one)}: not measured." for one in found.names if one not in names]
    elif sent:
        lines += [
            f"Answers longer than {params.workload.output_tokens} tokens, and days of "
            "uninterrupted service.",
            "Open traffic: the load is a closed loop, each stream waits for its answer.",
        ]
    kinds = [] if found.figures_of else speculation_kinds(found)
    if kinds and not any("eagle" in kind.lower() for kind in kinds):
        lines.append(f"EAGLE-3: the speculation here is {', '.join(map(code, kinds))}.")
    if params.stack.gpus == 0:
        lines.append("GPUs, NCCL and PCIe: this deployment has none.")
    if params.host.kind == "box":
        lines.append(
            "Power loss: the box dies as a whole, and the page cache of its machine survives."
        )
    if found.decision is not None and found.decision["status"] == "provisional":
        lines.append("The scatter between lives: the choice is provisional, without intervals.")
    return [
        *lines,
        *_unanswered("Checks", found.stack.get("checks", [])),
        *_unanswered("Proofs", found.proofs),
    ]


def _unanswered(kind: str, items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Items without an answer, those of one reason in one line; skipped checks list themselves."""
    unanswered = (item for item in items if item["status"] in _OPEN - {"skipped"})
    return [
        f"{kind} without an answer: {escape(', '.join(names))}: {escape(status)}, {escape(why)}"
        for (status, why), names in by_reason(unanswered).items()
    ]
