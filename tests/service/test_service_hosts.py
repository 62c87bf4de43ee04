"""The tests of a service in which the kind of host matters, by a runner on the host itself.

That is each kind's own part of an install: who holds the lock, what undoes it when the runner
breaks off, what is asked of the server and read from the host. The other tests of the service go
by the same commands and files, which ``tests/hosts`` holds to be the same on every kind.
"""

import sys
from pathlib import Path

import pytest
import test_service_apply
import test_service_drift
import test_service_handover
from boxes import INSIDE, on_each_host

ROOT = Path(__file__).parents[2]
MARKED = [
    f"{Path(module.__file__).relative_to(ROOT)}::{name}[box]"
    for module in (test_service_apply, test_service_drift, test_service_handover)
    for name, test in vars(module).items()
    if name.startswith("test_") and on_each_host.mark in getattr(test, "pytestmark", [])
]


@pytest.fixture(scope="module")
def inside(machine):
    """What pytest says of them, run once for all inside the box."""
    argv = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *MARKED]
    env = [f"{INSIDE}=1", "PYTHONDONTWRITEBYTECODE=1"]
    done = machine.run("env", "-C", str(ROOT), *env, *argv, timeout_s=600, check=False)
    return done.out + done.err


@pytest.mark.timeout(600)
@pytest.mark.parametrize("test", MARKED)
def test_a_runner_inside_the_box_is_on_the_host_itself(test, inside):
    assert f"PASSED {test}" in inside.splitlines(), inside
