"""The load generator and its records; benchmark, ``bench`` and the proofs use it."""

from __future__ import annotations

from runbook.load.client import run_load
from runbook.load.plan import LoadPlan, LoadResult
from runbook.load.records import ErrorKind, Prompt, Record

__all__ = ["ErrorKind", "LoadPlan", "LoadResult", "Prompt", "Record", "run_load"]
