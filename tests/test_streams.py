"""What is said where nobody can take it: the work goes on, and its exit code is its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from boxes import leave_out

from runbook import streams
from runbook.rehearsal.model import cache_folder

ROOT = Path(__file__).parents[1]
RUNBOOK = Path(sys.executable).with_name("runbook")
EXAMPLE = ROOT / "docs" / "example-run"


def ended(*words, **streams):
    return subprocess.run([RUNBOOK, *map(str, words)], check=False, cwd=ROOT, **streams)


@pytest.fixture
def nobody():
    """The end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_a_reader_that_goes_away_stops_no_work(nobody):
    stream = streams.patient(os.fdopen(nobody, "w", closefd=False))
    print("lost", file=stream, flush=True)
    assert stream.write("lost too\n") == 9
    assert streams.lost(stream) == ""


@pytest.mark.parametrize(
    ("words", "code"), [(["status", EXAMPLE], 0), (["status", "absent"], 2), (["nonsense"], 2)]
)
def test_the_exit_code_is_that_of_the_work(nobody, words, code):
    said = ended(*words, stdout=nobody, stderr=subprocess.PIPE, text=True)
    assert said.returncode == code
    assert "BrokenPipe" not in said.stderr
    assert ended(*words, stdout=nobody, stderr=nobody).returncode == code


def test_a_result_that_is_lost_is_none():
    with Path("/dev/full").open("w") as full:
        said = ended("status", EXAMPLE, stdout=full, stderr=subprocess.PIPE, text=True)
        assert ended("status", "absent", stdout=full, stderr=full).returncode == 2
    assert said.returncode == 1
    assert said.stderr.startswith("runbook: what was to be said could not be written: No space")
    assert "next: make room" in said.stderr and "Exception ignored" not in said.stderr


def test_a_full_disk_is_said_as_that_also_without_a_home(tmp_path):
    """A run folder on a disk of 40 KiB, in a mount namespace of its own."""
    if os.geteuid() != 0:
        leave_out("a small disk is mounted by root alone")
    words = ["run", ROOT / "params" / "rehearsal.yaml", "--to", "verify_stack", "--out", "run"]
    script = f'mount -t tmpfs -o size=40k tmpfs {tmp_path} && cd {tmp_path} && exec "$@"'
    said = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", RUNBOOK, *words, "-p", "host.kind=local"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HOME": "/proc", "RUNBOOK_CACHE": str(cache_folder().parent)},
    )
    assert said.returncode == 1, said.stderr
    assert "cannot be written: No space left on device" in said.stderr
    assert "next: see df -h" in said.stderr
    assert "Traceback" not in said.stderr and "a fault of the runbook" not in said.stderr
