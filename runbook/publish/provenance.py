"""How a document was made: by which versions, from which commit, when each step was done."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path

from runbook.publish.artefacts import Artefacts
from runbook.publish.findings import todo_table
from runbook.publish.tables import UNKNOWN, Code, Markdown, table
from runbook.run import clone_root, now

_PACKAGES = ("golive-runbook", "papermill", "nbconvert", "matplotlib", "scipy", "httpx")


def provenance(run_path: Path) -> Markdown:
    """Run, parameters, commit and versions; then the to-do list with its times."""
    found = Artefacts.of(run_path)
    stored = found.run.read_json("run.json") or {}
    versions = ", ".join(f"{name} {version_of(name)}" for name in _PACKAGES)
    rows = [
        ("run", Code(found.path.resolve().name)),
        ("begun", stored.get("created")),
        ("exported", now()),
        ("parameters", Code(found.run.params.identity())),
        ("commit of the project", commit()),
        ("Python of the runbook", platform.python_version()),
        ("packages", versions),
        ("made by", Code("runbook export")),
    ]
    made = table({"what": what, "value": value} for what, value in rows)
    return Markdown(f"{made}\n\n### To-do list\n\n{todo_table(run_path, in_document=True)}")


def version_of(package: str) -> str:
    """The installed version of a package, ``unknown`` where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


def commit() -> str | None:
    """The commit of the clone this package runs from, ``(changed)`` where files differ from it."""
    root = clone_root()
    if root is None:
        return None

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=20
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head, changed = git("rev-parse", "HEAD"), git("status", "--porcelain")
    return f"{head} (changed)" if head and changed else head
