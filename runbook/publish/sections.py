"""The sections of the record from a run's artefacts: what the notebooks call, a cell each."""

from __future__ import annotations

from runbook.publish.assumptions import assumptions
from runbook.publish.decision import decision_table
from runbook.publish.findings import (
    benchmark_table,
    checks_table,
    models,
    stack_table,
    todo_table,
)
from runbook.publish.handover import operations, proofs_table, repeat, rollback, service_section
from runbook.publish.honesty import limits, what_it_is
from runbook.publish.launched import launch_section
from runbook.publish.provenance import provenance

__all__ = [
    "assumptions",
    "benchmark_table",
    "checks_table",
    "decision_table",
    "launch_section",
    "limits",
    "models",
    "operations",
    "proofs_table",
    "provenance",
    "repeat",
    "rollback",
    "service_section",
    "stack_table",
    "todo_table",
    "what_it_is",
]
