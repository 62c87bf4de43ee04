"""The references of ``docs/``, made from what the program itself knows."""

from __future__ import annotations

from pathlib import Path

from runbook.reference.checks import checks
from runbook.reference.command_line import command_line
from runbook.reference.parameters import parameters

__all__ = ["PAGES", "checks", "command_line", "parameters", "write"]

#: File name below ``docs/`` and what makes its text.
PAGES = {
    "parameters.md": parameters,
    "command-line.md": command_line,
    "checks.md": checks,
}


def write(folder: Path) -> list[Path]:
    """Write every page into ``folder``; returns where each lies."""
    for name, make in PAGES.items():
        (folder / name).write_text(make(), encoding="utf-8")
    return [folder / name for name in PAGES]
