"""The tests of a service in which the kind of host matters, by a runner on the host itself.

That is each kind's own part of an install: who holds the lock, what undoes it when the runner
breaks off, what is asked of the server and read from the host. The other tests of the service go
by the same commands and files, which ``tests/hosts`` holds to be the same on every kind.
"""

import re
import sys
from pathlib import Path

import pytest
import test_service_apply
import test_service_drift
import test_service_handover
from boxes import INSIDE, on_each_host

ROOT = Path(__file__).parents[2]
MARKED = [
    f"{module.__file__}::{name}"
    for module in (test_service_apply, test_service_drift, test_service_handover)
    for name, test in vars(module).items()
    if name.startswith("test_") and on_each_host.mark in getattr(test, "pytestmark", [])
]


@pytest.mark.parametrize("test", MARKED, ids=lambda test: test.partition("::test_")[2])
def test_a_runner_inside_the_box_is_on_the_host_itself(test, machine):
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{test}[box]"]
    env = [f"{INSIDE}=1", "PYTHONDONTWRITEBYTECODE=1"]
    done = machine.run("env", "-C", str(ROOT), *env, *argv, timeout_s=200, check=False)
    assert done.code == 0, done.out + done.err
    assert re.search(r"^1 passed in ", done.out, re.MULTILINE), done.out  # and not left out
