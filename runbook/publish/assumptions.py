"""The four assumptions of a go-live: each is tested only if every item of its list was compared.

An item names one check or one proof, and what it must have been compared with. Nothing is taken
from the words of a name: a check or proof that no item names decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runbook.cells import point_label
from runbook.publish.artefacts import Artefacts
from runbook.publish.tables import Markdown, table

Answer = Literal["compared", "refuted", "open"]


@dataclass(frozen=True)
class Finding:
    """What became of one item: ``name``, and in ``text`` the evidence, or why there is none."""

    answer: Answer
    name: str
    text: str


@dataclass(frozen=True)
class Assumption:
    """One assumption and the items that must all have been compared."""

    text: str
    items: Sequence[Callable[[Artefacts], Finding]]


def _proof(name: str) -> Callable[[Artefacts], Finding]:
    """The proof of this name, made of the installed service."""
    answers: dict[str, Answer] = {"proved": "compared", "refuted": "refuted"}

    def look(found: Artefacts) -> Finding:
        return _of_rows(found.proofs, name, answers, "evidence", "no such proof")

    return look


def _check(
    name: str, declared: Callable[[Artefacts], object], parameter: str
) -> Callable[[Artefacts], Finding]:
    """The stack check of this name; ``declared``: what it compared with, falsy for nothing.

    A warning is no answer: it says that something is not as wanted, or that nobody can tell.
    """
    answers: dict[str, Answer] = {"pass": "compared", "fail": "refuted"}

    def look(found: Artefacts) -> Finding:
        checks = found.stack.get("checks", [])
        finding = _of_rows(checks, name, answers, "found", "not checked")
        if finding.answer == "compared" and not declared(found):
            return Finding("open", name, f"compared with nothing ({parameter} is empty)")
        return finding

    return look


def _of_rows(
    rows: Sequence[Mapping[str, Any]],
    name: str,
    answers: Mapping[str, Answer],
    evidence: str,
    absent: str,
) -> Finding:
    """The rows of this name as one finding: refuted by one, compared only by all of them."""
    own = [row for row in rows if row["name"] == name]
    if not own:
        return Finding("open", name, absent)
    findings = [
        Finding(
            answers.get(row["status"], "open"),
            name,
            f"{row['status']} ({str(row[evidence]).partition(chr(10))[0]})",
        )
        for row in own
    ]
    for answer in ("refuted", "open"):
        if worst := [one for one in findings if one.answer == answer]:
            return worst[0]
    return findings[0]


def _measured_launch(found: Artefacts) -> Finding:
    """The installed launch is one that was started, and recorded, before it was installed."""
    if not found.manifest:
        return Finding("open", "launch", "no service was installed")
    if (reason := found.unmeasured) is not None:
        why = f"no launch was measured (installed for this reason: {reason})"
        return Finding("open", "launch", why)
    name = str(found.manifest.get("configuration"))
    recorded = found.launches.get(name, {}).get("spec")
    if recorded is None:
        return Finding("open", "launch", f"that of {name} was not recorded")
    if recorded != found.manifest.get("spec"):
        return Finding("refuted", "launch", f"the installed one of {name} is not the recorded one")
    when = "at its confirming start" if found.figures_of else "when it was measured"
    return Finding("compared", "launch", f"that of {name}, as recorded {when}")


def _draft_checked(found: Artefacts) -> Finding:
    if not found.run.params.server.draft:
        return Finding("compared", "draft", "these parameters have none")
    return _check("draft", lambda run: run.run.params.server.draft, "server.draft")(found)


def _prompts(found: Artefacts) -> Finding:
    """Prompts stand for traffic only where they are from a log that the parameters name."""
    if found.figures_of:
        return Finding("open", "prompts", f"those of {found.figures_of}, not known here")
    workload = found.run.params.workload
    mix = ", ".join(f"{kind} {share:g}" for kind, share in workload.mix.items())
    tokens = f"{workload.output_tokens} output tokens"
    if workload.prompts == "builtin":
        return Finding("open", "prompts", f"the project's own ({mix}), {tokens}")
    manifest = found.workload
    said = f"{workload.prompts} ({mix}), {tokens}"
    if not manifest.get("fingerprint") or manifest.get("source") != workload.prompts:
        return Finding("open", "prompts", f"{said}; what was sent is not recorded")
    return Finding("compared", "prompts", f"{said}, SHA-256 {manifest['fingerprint'][:12]}")


def _mix(found: Artefacts) -> Finding:
    """The shares of time are declared by a person; no log is compared with them."""
    declared = found.run.params.choose.mix
    total = sum(one.share for one in declared)
    shares = ", ".join(
        f"{point_label(one.concurrency, one.context_tokens)} {100 * one.share / total:.3g} %"
        for one in declared
    )
    return Finding(
        "open", "shares of time", f"{shares}: declared, not measured on production traffic"
    )


#: In the order of the record.
ASSUMPTIONS = (
    Assumption("the benchmark stands for production traffic", (_prompts, _mix)),
    Assumption(
        "the service has the environment of the launch that was measured",
        (
            _measured_launch,
            *map(
                _proof,
                (
                    "arguments",
                    "environment",
                    "worker environment",
                    "interpreter",
                    "sitecustomize",
                    "limits",
                    "working directory",
                    "user",
                ),
            ),
        ),
    ),
    Assumption(
        "the NCCL tuning fits the PCIe topology",
        (
            _check("topology", lambda found: found.run.params.stack.topology, "stack.topology"),
            _check(
                "collective",
                lambda found: found.run.params.stack.collective_us,
                "stack.collective_us",
            ),
        ),
    ),
    Assumption(
        "the model files are where they were, and what they were",
        (
            _check("model", lambda found: found.run.params.server.model, "server.model"),
            _draft_checked,
            _proof("model files"),
        ),
    ),
)


def judge(assumption: Assumption, found: Artefacts) -> tuple[str, str]:
    """``tested``, ``not tested`` or ``refuted``, and the evidence.

    The evidence of one that is not tested begins with what is missing.
    """
    findings = [item(found) for item in assumption.items]
    words: dict[Answer, str] = {"refuted": "refuted", "open": "not tested", "compared": "tested"}
    decides = next(one for one in words if one in {finding.answer for finding in findings})
    names: dict[str, list[str]] = {}
    for finding in findings:
        if finding.answer == decides:
            names.setdefault(finding.text, []).append(finding.name)
    evidence = "; ".join(f"{', '.join(same)}: {text}" for text, same in names.items())
    return words[decides], evidence


def assumptions(run_path: Path) -> Markdown:
    """The four assumptions as a table: tested or not, with the evidence. Raises ``BadInput``."""
    found = Artefacts.of(run_path)
    rows = []
    for assumption in ASSUMPTIONS:
        word, evidence = judge(assumption, found)
        rows.append({"assumption": assumption.text, "tested": word, "evidence": evidence})
    return table(rows)
