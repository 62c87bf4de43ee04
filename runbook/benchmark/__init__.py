"""The benchmark: workload, blocks of server lives, cells, resume."""

from __future__ import annotations

from runbook.benchmark.cost import Cost, estimate
from runbook.benchmark.measure import measure, measure_briefly
from runbook.benchmark.measurements import Measurements, load_measurements, verdict

__all__ = [
    "Cost",
    "Measurements",
    "estimate",
    "load_measurements",
    "measure",
    "measure_briefly",
    "verdict",
]
