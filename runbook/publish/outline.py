"""The sections of the document, in their one order, and the step that brings each about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """One section. Cells name it in their metadata: ``{"record": key}``."""

    key: str
    title: str
    step: str


OUTLINE = (
    Section("verdict", "Verdict", "publish"),
    Section("decision", "Decision", "choose"),
    Section("benchmark", "Benchmark", "benchmark"),
    Section("launch", "Launch", "benchmark"),
    Section("stack", "Stack", "verify_stack"),
    Section("service", "Service", "install_service"),
    Section("proofs", "Proofs", "install_service"),
    Section("operations", "Operations", "install_service"),
    Section("assumptions", "The four assumptions", "verify_stack"),
    Section("limits", "What was not tested", "verify_stack"),
    Section("repeat", "Repeat", "verify_stack"),
    Section("provenance", "How this document was made", "verify_stack"),
)
KEYS = tuple(section.key for section in OUTLINE)
