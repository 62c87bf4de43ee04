"""From benchmarked LLM serving configurations to a proved systemd service.

The rooms are imported when they are first used, so that ``import runbook`` costs nothing:
``runbook.open_stage`` begins a notebook, ``runbook.stages`` does a stage's work in its run,
``runbook.exploring`` asks the rule of choice under other terms.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["exploring", "open_stage", "publish", "stages"]


def __getattr__(name: str) -> Any:
    if name == "open_stage":
        return importlib.import_module("runbook.notebook").open_stage
    if name in __all__:
        return importlib.import_module(f"runbook.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
