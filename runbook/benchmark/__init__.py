"""The benchmark: workload, blocks of server lives, cells, resume."""

from __future__ import annotations

from runbook.benchmark.cost import Cost, estimate, foresee, longest_s
from runbook.benchmark.given import confirm, is_confirmed, is_given, keep
from runbook.benchmark.measure import measure, measure_again, measure_briefly
from runbook.benchmark.measurements import Measurements, load_measurements, verdict
from runbook.benchmark.surroundings import changes, surroundings_of
from runbook.benchmark.workload import plan_workload, shuffled, workload_of

__all__ = [
    "Cost",
    "Measurements",
    "changes",
    "confirm",
    "estimate",
    "foresee",
    "is_confirmed",
    "is_given",
    "keep",
    "load_measurements",
    "longest_s",
    "measure",
    "measure_again",
    "measure_briefly",
    "plan_workload",
    "shuffled",
    "surroundings_of",
    "verdict",
    "workload_of",
]
