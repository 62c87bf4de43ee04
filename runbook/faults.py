"""Reports of faults of the runbook itself: few, private, without secrets, where they are found."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from runbook.redaction import redact

#: How many reports are kept in one folder, the newest.
KEPT = 10

_run_folder: Path | None = None


def belong_to(run_folder: Path) -> None:
    """Reports of this process from now on lie in this run folder."""
    global _run_folder
    _run_folder = run_folder


def report(error: BaseException) -> tuple[str, Path | None]:
    """The traceback without secrets, and the file (mode 0600) that it was written to: in the run
    folder that this process works in, else in the user's state directory; ``None`` where neither
    can be written."""
    import traceback

    from runbook import atomic

    text = redact("".join(traceback.format_exception(error)))
    name = f"fault-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{os.getpid()}.txt"
    for folder in _folders():
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic.write(folder / name, text)
            _keep_newest(folder)
            return text, folder / name
    return text, None


def _keep_newest(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for old in sorted(folder.glob("fault-*.txt"))[:-KEPT]:
            old.unlink()


def _folders() -> Iterator[Path]:
    """Where reports may lie, the best first: folders of this user alone."""
    with contextlib.suppress(OSError):
        if _run_folder and _is_own(_run_folder) and (_run_folder / "run.json").is_file():
            yield _run_folder
    with contextlib.suppress(OSError, RuntimeError):  # a user without a home
        state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
        if not state.is_absolute():  # to be ignored, says the XDG base directory specification
            state = Path("~/.local/state").expanduser()
        folder = state / "golive-runbook"
        if _is_own(next(one for one in (folder, *folder.parents) if one.exists())):
            yield folder


def _is_own(folder: Path) -> bool:
    return folder.stat().st_uid == os.geteuid()
