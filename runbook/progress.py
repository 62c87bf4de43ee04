"""Progress of a long cell: a bar in JupyterLab, elsewhere one line per finished piece of work."""

from __future__ import annotations

import os
import time
from typing import Any, Protocol


class Report(Protocol):
    """Told of each finished piece: what it was, how many are done, how many there are."""

    def __call__(self, text: str, done: int, total: int) -> None:
        """Show it."""


class Pace:
    """How long the rest takes, by the pieces that were done since this was made."""

    def __init__(self) -> None:
        self.started_s = time.monotonic()
        self._before: int | None = None

    def left(self, done: int, total: int) -> str:
        """``1:05 left``; a first call that tells of several pieces tells what was done before."""
        if self._before is None:
            self._before = done if done > 1 else 0
        return time_left(self.started_s, done - self._before, total - self._before)


class Lines:
    """One line per finished piece with done/total and the time left; no carriage returns."""

    def __init__(self) -> None:
        self.pace = Pace()

    def __call__(self, text: str, done: int, total: int) -> None:
        """Print one line."""
        print(f"[{done}/{total}] {text} ({self.pace.left(done, total)})", flush=True)


class Bar:
    """An ipywidgets bar with the last figures beside it."""

    def __init__(self) -> None:
        import ipywidgets  # type: ignore[import-untyped]
        from IPython.display import display

        self.pace = Pace()
        self.bar: Any = ipywidgets.IntProgress(min=0, max=1, bar_style="info")
        self.label: Any = ipywidgets.Label("starting")
        display(ipywidgets.HBox([self.bar, self.label]))  # type: ignore[no-untyped-call]

    def __call__(self, text: str, done: int, total: int) -> None:
        """Move the bar."""
        self.bar.max, self.bar.value = max(total, 1), done
        self.bar.bar_style = "success" if done == total else "info"
        left = self.pace.left(done, total)
        self.label.value = f"{done}/{total}, {left}: {text}"


def in_jupyterlab() -> bool:
    """Whether this kernel was started by a Jupyter server (it names its session), for a person."""
    return "JPY_SESSION_NAME" in os.environ


def report() -> Report:
    """The right way to show progress here."""
    if in_jupyterlab():
        try:
            return Bar()
        except ImportError:
            pass
    return Lines()


def time_left(started_s: float, done: int, total: int) -> str:
    """``1:05 left``, from the mean time of what is done; ``done`` when nothing is left."""
    if done >= total:
        return f"done in {clock(time.monotonic() - started_s)}"
    if not done:
        return "time left unknown"
    return f"{clock((time.monotonic() - started_s) / done * (total - done))} left"


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
