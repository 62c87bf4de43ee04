"""The typed parameters of one deployment and their strict loader.

One YAML file a deployment. Files, papermill's injected values and ``-p KEY=VALUE`` all pass
through ``load``/``from_values``, so that a wrong value is refused in one place, with the same
words, before anything starts.
"""

from runbook.params.faults import options_of
from runbook.params.kinds import BASELINE, FORMS, Format, Level, is_everywhere
from runbook.params.loading import (
    ChoiceTerms,
    choose_from_values,
    from_values,
    load,
    load_choice,
)
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
    "ChoiceTerms",
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
    "choose_from_values",
    "from_values",
    "is_everywhere",
    "load",
    "load_choice",
    "options_of",
]
