"""What a run shows while it works: plain lines, a live view on a terminal, or verdicts alone.

The notebooks' processes write to the outlets of a screen: a pipe that it reads, or ``None`` where
they may write to the terminal themselves.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from runbook.pipeline import Outlets
from runbook.progress import clock
from runbook.run import Run, Step

_PROGRESS = re.compile(r"\[(\d+)/(\d+)\] (.*)")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_MARKS = {
    "completed": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "in_progress": ("▶", "cyan"),
    "interrupted": ("!", "yellow"),
    "skipped": ("-", "dim"),
    "pending": ("·", "dim"),
}


class Screen(Protocol):
    """Where a run's words go, and ``outlets`` for those of its notebooks."""

    outlets: Outlets

    def say(self, text: str) -> None:
        """Show one line of the runner itself."""


class Lines:
    """Every line as it comes, without colours or carriage returns of ours."""

    outlets: Outlets = (None, None)

    def __init__(self, stream: TextIO) -> None:
        self.say = _writer(stream)


class Quiet:
    """The verdict of each stage and nothing else; what notebooks write to stderr stays there."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.outlets: Outlets = (None, None)
        self._show = show

    def say(self, text: str) -> None:
        """Say nothing."""

    def line(self, text: str) -> None:
        """Show a line of a notebook when it is the verdict."""
        if text.startswith("VERDICT "):
            self._show(text)


class Live:
    """The to-do list with the work in progress below it; single lines scroll by above."""

    def __init__(self, run: Run, console: Any) -> None:
        self.run = run
        self.outlets: Outlets = (None, None)
        self.console = console
        self.done, self.total, self.last = 0, 0, ""
        self._started_s = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line above the view."""
        self.console.print(text, markup=False, highlight=False)

    def line(self, text: str) -> None:
        """A line of a notebook: progress moves the bar, all else is printed above the view."""
        match = _PROGRESS.fullmatch(text)
        if match:
            self.done, self.total, self.last = int(match[1]), int(match[2]), match[3]
        elif text.strip():
            self.say(text)

    def __rich__(self) -> Any:
        """The view as it stands now."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for step in self.run.todo():
            mark, style = _MARKS[step.status]
            table.add_row(Text(mark, style), Text(step.name, style), Text(_note(step)))
        parts: list[Any] = [table]
        if self.total:
            bar = Table.grid(padding=(0, 1))
            bar.add_row(ProgressBar(self.total, self.done, width=30), Text(self.last))
            parts.append(bar)
        spent = clock(time.monotonic() - self._started_s)
        parts.append(Text(f"{spent} · {self.run.path} · Ctrl-C stops the servers too", "dim"))
        return Group(*parts)


@contextmanager
def screen_for(run: Run, quiet: bool = False, to: TextIO | None = None) -> Iterator[Screen]:
    """The screen that fits: verdicts alone if ``quiet``, live on a terminal, else plain lines.

    ``to``: default stdout. ``NO_COLOR`` takes the colours away, ``TERM=dumb`` the live view.
    """
    stream = to or sys.stdout
    if quiet:
        screen = Quiet(_writer(stream))
        with _following(screen.line) as write:
            screen.outlets = (write, None)
            yield screen
    elif not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield Lines(stream)
    else:
        yield from _live(run, stream)


def _live(run: Run, stream: TextIO) -> Iterator[Live]:
    from rich.console import Console
    from rich.live import Live as View

    console = Console(file=stream)
    live = Live(run, console)
    view = View(get_renderable=live.__rich__, console=console, refresh_per_second=4)
    with view, _following(live.line) as write:
        live.outlets = (write, write)
        yield live


def _writer(stream: TextIO) -> Callable[[str], None]:
    return lambda text: print(text, file=stream, flush=True)


def _note(step: Step) -> str:
    if step.status == "in_progress":
        return f"since {str(step.started)[11:19]}"
    return step.reason.partition("\n")[0][:100]


@contextmanager
def _following(show: Callable[[str], None]) -> Iterator[int]:
    """A descriptor to write to; every line goes to ``show`` until all writers are gone."""
    read, write = os.pipe()

    def follow() -> None:
        with os.fdopen(read, errors="replace") as file:
            for line in file:
                show(_ESCAPES.sub("", line.rstrip("\n")).rpartition("\r")[2])

    thread = threading.Thread(target=follow, name="screen", daemon=True)
    thread.start()
    try:
        yield write
    finally:
        os.close(write)
        thread.join(5)  # a process that was left behind may hold the other end
