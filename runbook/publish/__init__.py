"""The record: tables, figures, the document of a run, and the block in the plan document."""

from __future__ import annotations

from runbook.publish import run_figures, sections

__all__ = ["run_figures", "sections"]
