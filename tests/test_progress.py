"""Progress headless: one line per finished piece, with done/total and the time left."""

import pytest

from runbook import progress


def test_one_line_a_piece_without_carriage_returns(capsys, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    report = progress.report()
    report("baseline C=1: 17.4 tok/s", 1, 2)
    report("lean C=1: 22.6 tok/s", 2, 2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[1/2] baseline C=1: 17.4 tok/s (0:0")
    assert lines[0].endswith("left)")
    assert lines[1].startswith("[2/2] lean C=1: 22.6 tok/s (done in 0:0")


def test_time_left_is_the_mean_of_what_is_done(monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    assert progress.time_left(40.0, 2, 6) == "2:00 left"
    assert progress.time_left(40.0, 0, 6) == "time left unknown"
    assert progress.time_left(40.0, 6, 6) == "done in 1:00"


def test_what_was_done_before_costs_no_time_now(monkeypatch):
    clock = iter([0.0, 20.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    pace = progress.Pace()
    assert pace.left(12, 18) == "time left unknown"
    assert pace.left(13, 18) == "1:40 left"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (125, "2:05"), (3725, "1:02:05")]
)
def test_clock(seconds, text):
    assert progress.clock(seconds) == text


def test_in_jupyterlab_a_bar_moves(monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "x.ipynb")
    bar = progress.report()
    assert isinstance(bar, progress.Bar)
    bar("first", 1, 3)
    assert (bar.bar.value, bar.bar.max) == (1, 3)
    assert bar.label.value.startswith("1/3, ")
    assert bar.label.value.endswith("left: first")
    bar("last", 3, 3)
    assert bar.bar.bar_style == "success"
