"""The typed parameters of one deployment and their strict loader.

One YAML file a deployment. Files, papermill's injected values and ``-p KEY=VALUE`` all pass
through ``load``/``from_values``, so that a wrong value is refused in one place, with the same
words, before anything starts.
"""

from runbook.params.faults import options_of
from runbook.params.kinds import BASELINE, FORMS, Format, Level, is_everywhere
from runbook.params.loading import from_values, load
from runbook.params.model import (
    ApiKey,
    Benchmark,
    Choose,
    Configuration,
    Guard,
    Host,
    Limits,
    MixShare,
    Override,
    Params,
    Point,
    Server,
    Service,
    Stack,
    Strict,
    Workload,
)

__all__ = [
    "BASELINE",
    "FORMS",
    "ApiKey",
    "Benchmark",
    "Choose",
    "Configuration",
    "Format",
    "Guard",
    "Host",
    "Level",
    "Limits",
    "MixShare",
    "Override",
    "Params",
    "Point",
    "Server",
    "Service",
    "Stack",
    "Strict",
    "Workload",
    "from_values",
    "is_everywhere",
    "load",
    "options_of",
]
