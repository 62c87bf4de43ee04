"""Progress of a long cell: a bar in JupyterLab, elsewhere one line per finished piece of work."""

from __future__ import annotations

import os
import time
from typing import Any, Protocol


class Report(Protocol):
    """Told of each finished piece: what it was, how many are done, how many there are."""

    def __call__(self, text: str, done: int, total: int) -> None:
        """Show it."""


class Lines:
    """One line per finished piece with done/total and the time left; no carriage returns."""

    def __init__(self) -> None:
        self.started_s = time.monotonic()

    def __call__(self, text: str, done: int, total: int) -> None:
        """Print one line."""
        print(f"[{done}/{total}] {text} ({time_left(self.started_s, done, total)})", flush=True)


class Bar:
    """An ipywidgets bar with the last figures beside it."""

    def __init__(self) -> None:
        import ipywidgets  # type: ignore[import-untyped]
        from IPython.display import display

        self.started_s = time.monotonic()
        self.bar: Any = ipywidgets.IntProgress(min=0, max=1, bar_style="info")
        self.label: Any = ipywidgets.Label("starting")
        display(ipywidgets.HBox([self.bar, self.label]))  # type: ignore[no-untyped-call]

    def __call__(self, text: str, done: int, total: int) -> None:
        """Move the bar."""
        self.bar.max, self.bar.value = max(total, 1), done
        self.bar.bar_style = "success" if done == total else "info"
        left = time_left(self.started_s, done, total)
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
