"""Whoever dies, nothing is left of a box."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from boxes import Traces, children_of, need_box, orphans, run_python, wait_until

from runbook.hosts.box import Box

HOLD = """
import os, sys, time
from pathlib import Path
from runbook.hosts.box import Box
box = Box(Path(sys.argv[1]))
box.open()
print(box._init, box._owned.pid, flush=True)
if os.environ.get("FORK"):
    os.fork() or time.sleep(20)
time.sleep(600)
"""
BOOT = """
import sys
from pathlib import Path
from runbook.hosts.box import Box
print("ready", flush=True)
Box(Path(sys.argv[1])).open()
"""


@pytest.fixture
def held(tmp_path):
    """``held(env)``: a box held by another process, as (process, its view of the box)."""
    need_box(tmp_path)
    with contextlib.ExitStack() as ends:

        def hold(**env):
            creator = run_python(HOLD, str(tmp_path / "box"), env={**os.environ, **env})
            ends.callback(creator.wait)
            ends.callback(creator.kill)
            ends.enter_context(creator.stdout)
            box = Box(tmp_path / "box")
            words = creator.stdout.readline().split()
            box._init, box._owned = int(words[0]), Pid(int(words[1]))
            return creator, Traces.of(box)

        yield hold


class Pid:
    def __init__(self, pid):
        self.pid = pid


def test_the_creator_dies_while_the_box_boots(tmp_path):
    need_box(tmp_path)
    for delay_s in (0.05, 0.2, 0.4):
        with run_python(BOOT, str(tmp_path / "box")) as creator:
            creator.stdout.readline()
            time.sleep(delay_s)
            creator.kill()
        wait_until(lambda: not using(tmp_path), 5)
    wait_until(lambda: not orphans(), 5, orphans)


def using(folder):
    """Processes whose arguments name the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and os.fsencode(folder) in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return found


def test_a_process_forked_from_the_creator_does_not_keep_the_box(held):
    creator, traces = held(FORK="1")
    creator.kill()
    traces.wait_gone()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_creator_dies(held, number):
    creator, traces = held()
    creator.send_signal(number)
    traces.wait_gone()


def test_the_watched_runner_dies_while_the_creator_lives(held):
    runner = run_python("import time; time.sleep(600)")
    creator, traces = held(RUNBOOK_RUNNER_PID=str(runner.pid))
    runner.kill()
    runner.wait()
    runner.stdout.close()
    traces.wait_gone()
    assert creator.poll() is None


def test_either_process_of_the_owner_is_killed(held, tmp_path):
    for which in (min, max):
        creator, traces = held()
        os.kill(which(traces.owners), signal.SIGKILL)
        traces.wait_gone()
        creator.kill()
        creator.wait()


def test_after_both_are_killed_the_next_start_cleans_up(held, tmp_path):
    creator, traces = held()
    for pid in traces.owners:
        os.kill(pid, signal.SIGKILL)
    creator.kill()
    creator.wait()
    with Box(tmp_path / "box") as box:
        assert box.run("true").code == 0
        assert not traces.cgroup.exists()
        traces = Traces.of(box)
    assert not traces.left()


def test_the_box_itself_dies(held):
    _, traces = held()
    unshare = [pid for owner in traces.owners for pid in children_of(owner)]
    os.kill(max(unshare), signal.SIGKILL)
    for pid in traces.owners:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    traces.wait_gone()
