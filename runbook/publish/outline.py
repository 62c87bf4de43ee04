"""The sections of the document, in their one order, and the step that brings each about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """One section. Cells name it in their metadata: ``{"record": key}``.

    ``step``: the step of the to-do list that brings it about; ``None``: it has content always.
    """

    key: str
    title: str
    step: str | None = None


OUTLINE = (
    Section("verdict", "Verdict"),
    Section("decision", "Decision", "choose"),
    Section("benchmark", "Benchmark", "benchmark"),
    Section("launch", "Launch", "choose"),
    Section("stack", "Stack", "verify_stack"),
    Section("service", "Service", "install_service"),
    Section("proofs", "Proofs", "install_service"),
    Section("operations", "Operations", "install_service"),
    Section("assumptions", "The four assumptions"),
    Section("limits", "What was not tested"),
    Section("repeat", "Repeat"),
    Section("provenance", "How this document was made"),
)
KEYS = tuple(section.key for section in OUTLINE)
