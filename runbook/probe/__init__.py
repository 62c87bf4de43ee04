"""Files that run on the target under the serving interpreter: standard library only, one file
each, shipped by their text and never imported there as ``runbook.probe``."""

from __future__ import annotations

from pathlib import Path


def source(name: str) -> str:
    """The text of one probe, like ``gate``, to be written to or run on a target."""
    return (Path(__file__).parent / f"{name}.py").read_text()
