"""Reports of faults of the runbook itself: where they lie, how many, and what is not in them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs/example-run"
KEY = "sk-Melde.4d-Stelle77"
#: The command line, with a fault in what ``check`` and ``status`` call.
FAULTY = f"""
import sys
from runbook import cli, preview, redaction
from runbook.run import Run
def fault(*_):
    redaction.remember({KEY!r})
    raise ZeroDivisionError("a key in an error: " + {KEY!r})
preview.preview = Run.todo_rows = fault
cli.main()
"""


def faulty(*words, **environment):
    env = {**os.environ, **environment}
    argv = [sys.executable, "-c", FAULTY, *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 70
    assert KEY not in done.stdout + done.stderr
    assert "a fault of the runbook itself (ZeroDivisionError: a key" in done.stderr
    return done.stderr


def reports(folder):
    return sorted(folder.glob("fault-*.txt"))


def check(**environment):
    return faulty("check", ROOT / "params/rehearsal.yaml", **environment)


def is_whole(report):
    text = report.read_text()
    assert KEY not in text and "<removed>" in text and text.startswith("Traceback")
    assert report.stat().st_mode & 0o777 == 0o600
    return True


def test_it_lies_in_the_run_folder_where_there_is_one(tmp_path):
    run = shutil.copytree(EXAMPLE, tmp_path / "run")
    said = faulty("status", run, XDG_STATE_HOME=str(tmp_path / "state"))
    (report,) = reports(run)
    assert is_whole(report) and f"next: report it with {report}" in said
    assert not (tmp_path / "state").exists()


def test_it_lies_in_the_state_directory_without_one(tmp_path):
    said = check(XDG_STATE_HOME=str(tmp_path / "state"), TMPDIR=str(tmp_path))
    folder = tmp_path / "state/golive-runbook"
    (report,) = reports(folder)
    assert is_whole(report) and str(report) in said
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in tmp_path.iterdir()} == {"state"}


@pytest.mark.parametrize("state", ["", "relative/state", "~"])
def test_it_lies_below_the_home_where_no_state_directory_is_named(state, tmp_path):
    check(XDG_STATE_HOME=state, HOME=str(tmp_path))
    place = tmp_path if state == "~" else tmp_path / ".local/state"
    assert is_whole(*reports(place / "golive-runbook"))


def test_the_newest_ten_are_kept_and_nothing_else_is_removed(tmp_path):
    folder = tmp_path / "golive-runbook"
    folder.mkdir()
    for name in ("notes.txt", "default-1.txt", "fault.txt"):
        (folder / name).touch()
    for day in range(1, 16):
        (folder / f"fault-202601{day:02}T000000.000000Z-1.txt").touch()
    for _ in range(2):
        check(XDG_STATE_HOME=str(tmp_path))
    kept = reports(folder)
    assert len(kept) == 10 and kept[0].name.startswith("fault-20260108T")
    assert all(map(is_whole, kept[-2:]))
    assert len(list(folder.iterdir())) == 13


@pytest.mark.parametrize("state", ["/proc", "/dev/null", "/proc/self/fd"])
def test_where_nothing_can_be_written_it_is_printed(state, tmp_path):
    said = check(XDG_STATE_HOME=state, TMPDIR=str(tmp_path))
    assert "Traceback" in said and "next: report it with the lines above" in said
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_nothing_is_written_to_the_home_of_another_user(tmp_path):
    os.chown(tmp_path, 12345, 12345)
    assert "the lines above" in check(XDG_STATE_HOME="", HOME=str(tmp_path))
    assert not any(tmp_path.iterdir())
