"""By which versions something is done: the clone's commit, the interpreter, the packages."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path

_PACKAGES = ("golive-runbook", "papermill", "nbconvert", "matplotlib", "scipy", "httpx")


def versions(clone: Path | None) -> dict[str, str | None]:
    """``commit`` of the clone (``(changed)`` where files differ from it, ``None`` unknown),
    ``python`` and ``packages``."""
    packages = ", ".join(f"{name} {version_of(name)}" for name in _PACKAGES)
    return {
        "commit": commit_of(clone),
        "python": platform.python_version(),
        "packages": packages,
    }


def version_of(package: str) -> str:
    """The installed version of a package, ``unknown`` where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def commit_of(clone: Path | None) -> str | None:
    """The commit a clone is at, ``(changed)`` where files differ from it."""
    if clone is None:
        return None
    head, changed = _git(clone, "rev-parse", "HEAD"), _git(clone, "status", "--porcelain")
    return f"{head} (changed)" if head and changed else head


def _git(clone: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(clone), *words],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
