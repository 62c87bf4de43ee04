"""What a run shows: plain lines, verdicts alone, or a live view on a real pseudo-terminal."""

import os
import re
import subprocess
import threading

import pytest

from runbook.params import load
from runbook.run import Run, clone_root
from runbook.screen import Lines, Live, Quiet, screen_for

LINES = "[1/18] baseline C=1: 17.4 tok/s (1:05 left)\nVERDICT ok: stack: 20 checks\n"


@pytest.fixture
def run(tmp_path):
    run = Run.create(load(clone_root() / "params" / "rehearsal.yaml"), tmp_path / "run")
    run.begin("verify_stack")
    run.finish("verify_stack", "completed", "stack: 20 checks\nmore")
    run.begin("benchmark")
    return run


class Terminal:
    """A pseudo-terminal and all that was written to it."""

    def __init__(self):
        self.master, slave = os.openpty()
        self.stream = os.fdopen(slave, "w")
        self.seen = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            if not data:
                return
            self.seen += data

    def text(self):
        self.stream.close()
        self._reader.join(10)
        os.close(self.master)
        return self.seen.decode()


def write(screen, text):
    """A process that writes to the screen as a notebook's does."""
    subprocess.run(
        ["printf", "%s", text], stdout=screen.outlets[0], stderr=screen.outlets[1], check=True
    )


def test_elsewhere_than_on_a_terminal_it_is_plain_lines(run, capfd):
    with screen_for(run) as screen:
        assert isinstance(screen, Lines)
        screen.say("choose: 03_choose.ipynb")
        write(screen, LINES)
    assert capfd.readouterr().out == "choose: 03_choose.ipynb\n" + LINES


def test_quiet_says_the_verdicts_alone(run, capfd):
    with screen_for(run, quiet=True) as screen:
        assert isinstance(screen, Quiet)
        screen.say("choose: 03_choose.ipynb")
        write(screen, LINES + "VERDICT: no verdict of ours\n")
    assert capfd.readouterr().out == "VERDICT ok: stack: 20 checks\n"


def test_on_a_terminal_it_is_live(run, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    with screen_for(run, to=terminal.stream) as screen:
        assert isinstance(screen, Live)
        write(screen, LINES + "[red]no markup[/red] \x1b[31mred\x1b[0m\n")
    text = terminal.text()
    for step in ("verify_stack", "benchmark", "plan_document"):
        assert step in text
    assert "VERDICT ok: stack: 20 checks" in text
    assert "baseline C=1: 17.4 tok/s (1:05 left)" in text
    assert "[red]no markup[/red] red" in text
    assert re.search(r"\x1b\[(1;)?3\d", text)


def test_no_color_takes_the_colours_away(run, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    with screen_for(run, to=terminal.stream) as screen:
        write(screen, LINES)
    text = terminal.text()
    assert "benchmark" in text
    assert not re.search(r"\x1b\[(?:\d;)*(?:3|4|9)\d", text)


def test_a_dumb_terminal_gets_plain_lines(run, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with screen_for(run, to=terminal.stream) as screen:
        assert isinstance(screen, Lines)
    assert terminal.text() == ""


def test_a_process_left_behind_does_not_hold_the_screen(run, monkeypatch):
    monkeypatch.setattr("threading.Thread.join", lambda self, timeout=None: None)
    with screen_for(run, quiet=True) as screen:
        left = subprocess.Popen(["sleep", "30"], stdout=screen.outlets[0])
    left.kill()
    left.wait()
