"""The tests of a service on the other kinds of host: on the host itself, and behind ssh."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from boxes import HOST
from far import far

__all__ = ["far"]

ROOT = Path(__file__).parents[2]
SAME = (
    "test_service_apply.py",
    "test_service_drift.py",
    "test_service_handover.py::test_where_the_new_one_does_not_serve_the_older_one_comes_back",
)


@pytest.mark.parametrize("kind", ["local", "ssh"])
def test_the_same_tests_pass_there(kind, far):
    """A runner inside the box is on the host itself; one outside reaches it by ssh."""
    tests = [str(ROOT / "tests/service" / name) for name in SAME]
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", *tests]
    if kind == "local":
        env = [f"{HOST}=local", "PYTHONDONTWRITEBYTECODE=1"]
        done = far.box.run("env", "-C", str(ROOT), *env, *argv, timeout_s=600, check=False)
        code, said = done.code, done.out + done.err
    else:
        env = {**os.environ, HOST: f"ssh {far.address} {far.config}"}
        ran = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
        code, said = ran.returncode, ran.stdout + ran.stderr
    assert code == 0, said[-4000:]
    assert re.search(r"\d passed in ", said), said  # none left out
