"""``make quick``: no test of it starts a server, a box, a kernel or a browser."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

#: What each test does, and whether a quick run takes it.
WAYS = {
    "nothing": ("pass", True),
    "an answer": ("subprocess.run(['git', '--version'], check=True)", True),
    "an argv": ("subprocess.Popen([PYTHON, '-c', MARK]).wait()", False),
    "a shell": ("subprocess.run(MADE, shell=True)", False),
    "os.system": ("os.system(MADE)", False),
    "a fork": ("os.fork() or (open('made', 'w'), os._exit(0))", False),
    "a spawn": ("os.posix_spawn(PYTHON, [PYTHON, '-c', MARK], os.environ)", False),
    "caught": ("try: os.system(MADE)\n    except BaseException: pass", False),
    "caught, and then wrong": ("try: os.system(MADE)\n    except BaseException: assert 0", False),
    "a thread": (
        "threads = ThreadPoolExecutor()\n    threads.submit(os.system, MADE).result()",
        False,
    ),
    "a fixture": ("getattr(request, 'getfixturevalue')('server')", False),
    "the fixture again": ("getattr(request, 'getfixturevalue')('server')", False),
}
SUITE = """
import os, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
import pytest
PYTHON, MARK, MADE = sys.executable, "open('made', 'w')", "touch made"

@pytest.fixture(scope="module")
def server():
    yield subprocess.Popen([PYTHON, "-c", MARK])
"""


def quick_run(folder, suite, *words):
    """What ``--quick`` says of this suite."""
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (folder / "quick.py").write_text((TESTS / "quick.py").read_text())
    (folder / "test_suite.py").write_text(suite)
    argv = [sys.executable, "-m", "pytest", "--quick", "-q", "-p", "no:cacheprovider", *words]
    argv += ["-c/dev/null", f"--rootdir={folder}", "-W", "ignore", "test_suite.py"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["alone", "two at a time"])
def test_a_test_ends_where_it_starts_a_process(words, tmp_path):
    tests = [f"def test_{n}(request):\n    {body}\n" for n, (body, _) in enumerate(WAYS.values())]
    done = quick_run(tmp_path, SUITE + "\n".join(tests), "-vv", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "made").exists()
    for number, (way, (_, taken)) in enumerate(WAYS.items()):
        line = re.search(
            rf"^.*test_{number}\b.*(?:PASSED|SKIPPED).*$|^.*(?:PASSED|SKIPPED).*test_{number}\b.*$",
            done.stdout,
            re.M,
        )
        assert line, (way, done.stdout)
        assert ("PASSED" in line[0]) is taken, way
    left = sum(not taken for _, taken in WAYS.values())
    assert f"{left} tests start processes: make test runs them too" in done.stdout


def test_a_failure_before_it_is_a_failure(tmp_path):
    done = quick_run(tmp_path, SUITE + "def test_it():\n    assert 1 == 2\n    os.system(MADE)\n")
    assert done.returncode == 1 and "assert 1 == 2" in done.stdout


def test_boxes_servers_and_kernels_are_left():
    left = ["hosts/test_hosts_faults.py", "publish/test_publish_document.py", "browser"]
    left += [
        "load/test_load_loops.py::test_an_open_loop_sends_on_time_whatever_is_in_flight",
    ]
    argv = [sys.executable, "-m", "pytest", "--quick", "-q", *(f"tests/{name}" for name in left)]
    done = subprocess.run(argv, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d\d+ tests start processes", done.stdout, re.M), done.stdout
