"""A process started for a runner does not outlive it."""

import os
import subprocess
import sys
import time

import pytest

from runbook.run import RUNNER_PID

SCRIPT = """
import time
from runbook.watch import end_with_runner
end_with_runner()
print("watching", flush=True)
time.sleep(60)
"""


def start(runner):
    environment = {**os.environ, RUNNER_PID: runner}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, text=True
    )


def test_it_ends_when_the_runner_is_killed():
    with subprocess.Popen(["sleep", "60"]) as runner, start(str(runner.pid)) as watched:
        assert watched.stdout.readline() == "watching\n"
        assert watched.poll() is None
        runner.kill()
        runner.wait()
        assert watched.wait(10) == -9


def test_it_ends_at_once_when_the_runner_is_gone_already():
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with start(str(gone.pid)) as watched:
        assert watched.wait(10) == -9


@pytest.mark.parametrize("runner", ["", "text"])
def test_it_watches_nobody_when_no_runner_is_named(runner):
    with start(runner) as watched:
        assert watched.stdout.readline() == "watching\n"
        time.sleep(0.2)
        assert watched.poll() is None
        watched.kill()
