"""The sections of the document, in their one order, and the step that brings each about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """One section. Cells name it in their metadata: ``{"record": key}``.

    ``step``: the step of the to-do list that brings it about, and the ``artefact`` it leaves;
    without them the section has content always.
    """

    key: str
    title: str
    step: str | None = None
    artefact: str = ""


OUTLINE = (
    Section("verdict", "Verdict"),
    Section("decision", "Decision", "choose", "decision.json"),
    Section("benchmark", "Benchmark", "benchmark", "cells.csv"),
    Section("launch", "Configuration", "choose", "launches.json"),
    Section("stack", "Stack", "verify_stack", "stack.json"),
    Section("models", "Model and draft", "verify_stack", "stack.json"),
    Section("service", "Service", "install_service", "service/manifest.json"),
    Section("operations", "Operations", "install_service", "service/manifest.json"),
    Section("rollback", "Roll back", "install_service", "service/manifest.json"),
    Section("proofs", "Proofs", "install_service", "service/proofs.json"),
    Section("assumptions", "The four assumptions"),
    Section("limits", "Known limits"),
    Section("repeat", "How to repeat the run"),
    Section("provenance", "How this document was made"),
)
KEYS = tuple(section.key for section in OUTLINE)
