"""Working folders of processes that were killed: the next verb clears them, and nothing else."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from boxes import wait_until

from runbook import scratch

ROOT = Path(__file__).parents[1]
EXAMPLE = str(ROOT / "docs/example-run")
REHEARSAL = str(ROOT / "params/rehearsal.yaml")
VERBS = {
    "status": ["status", EXAMPLE],
    "check": ["check", REHEARSAL],
    "facts": ["facts"],
    "compare": ["compare", EXAMPLE, EXAMPLE],
    "unit": ["unit", REHEARSAL],
    "bad input": ["status", "/nowhere"],
}
OWNER = """
import sys
from pathlib import Path
from runbook import scratch
with scratch.folder(sys.argv[1], sys.argv[2]) as folder:
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").write_text("x")
    (folder / "a/work").mkdir(mode=0)
    (folder / "a/outside").symlink_to(sys.argv[3])
    print(folder, flush=True)
    sys.stdin.read()
"""
#: An ``ssh`` that reaches this machine; ``-M`` is the connection that is kept.
SSH = """#!/bin/sh
for word; do last=$word; done
exec sh -c "$last"
"""


@pytest.fixture
def place():
    """A temporary directory with a short name: kernels talk over sockets in there."""
    name = tempfile.mkdtemp(prefix="t-", dir="/tmp")
    yield Path(name)
    shutil.rmtree(name)


@contextmanager
def process(*argv, **settings):
    """A process that is killed at the latest at the end."""
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **settings
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def owner(prefix, parent, outside):
    return process(sys.executable, "-c", OWNER, prefix, str(parent), str(outside))


def runbook(place, *words):
    env = {**os.environ, "TMPDIR": str(place)}
    argv = [sys.executable, "-m", "runbook.cli", *words]
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=120, check=False)


def left(place):
    return sorted(entry.name for entry in place.iterdir() if entry.name.startswith("runbook-"))


@pytest.mark.parametrize(
    ("verb", "prefix"), list(zip(VERBS, itertools.cycle(scratch.PREFIXES), strict=False))
)
def test_any_verb_clears_what_a_killed_process_left(verb, prefix, place, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with owner(prefix, place, tmp_path) as living, owner(prefix, place, tmp_path) as dying:
        stays, goes = (Path(one.stdout.readline().strip()) for one in (living, dying))
        dying.kill()
        dying.wait()
        assert goes.exists()
        runbook(place, *VERBS[verb])
        assert left(place) == [stays.name]
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("place_of_death", "with_notebook"),
    [("folder", False), ("kernel.json", False), ("kernel.json", True), ("*.ipynb", True)],
)
def test_a_killed_run_leaves_nothing_to_the_next_verb(
    place_of_death, with_notebook, place, tmp_path
):
    env = {**os.environ, "TMPDIR": str(place)}
    words = ["run", REHEARSAL, "--to", "verify_stack", "--out", str(tmp_path / "run")]
    pattern = "runbook-kernel-*" + ("" if place_of_death == "folder" else f"/{place_of_death}")
    with process(sys.executable, "-m", "runbook.cli", *words, env=env) as run:
        wait_until(lambda: any(place.glob(pattern)), 60)
        if with_notebook:
            holder = next(place.glob("runbook-kernel-*"))
            os.kill(holder_of(holder), signal.SIGKILL)
        run.kill()
        run.wait()
    # Its notebook's process sees that and ends; until then the folder has an owner.
    wait_until(lambda: runbook(place, "status", EXAMPLE) and not any(place.iterdir()), 60)
    assert runbook(place, "status", str(tmp_path / "run")).returncode == 0


def holder_of(folder):
    """The process that locks a folder, by the kernel's list."""

    def found():
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5].endswith(f":{folder.stat().st_ino}"):
                return int(words[4])
        return 0

    wait_until(found, 30)
    return found()


def test_the_folder_of_a_killed_ssh_connection_is_cleared(place):
    (place / "ssh").write_text(SSH)
    (place / "ssh").chmod(0o755)
    code = (
        "import os, sys\nfrom runbook.hosts.ssh import SshHost\n"
        "SshHost._client_env = lambda _: dict(os.environ)\n"
        "with SshHost('there') as host:\n"
        "    print(host._folder, flush=True)\n    sys.stdin.read()\n"
    )
    env = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
    with process(sys.executable, "-c", code, env=env) as dying:
        folder = Path(dying.stdout.readline().strip())
        assert folder.name.startswith("runbook-ssh-")
        runbook(place, "check", REHEARSAL)
        assert folder.exists()
        dying.kill()
        dying.wait()
        runbook(place, "check", REHEARSAL)
        assert not folder.exists()


def test_the_folder_of_an_ssh_connection_without_a_lock_is_left_while_it_answers(place):
    (place / "runbook-ssh-old").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place / "runbook-ssh-old/socket"))
        listening.listen()
        runbook(place, "status", EXAMPLE)
        assert left(place) == ["runbook-ssh-old"]
    runbook(place, "status", EXAMPLE)
    assert left(place) == []


def test_what_is_no_folder_of_ours_is_left(place):
    (place / "other").mkdir()
    (place / "other/file").touch()
    for name in ("runbook-2026", "runbook", "runbook-kernels", "my-runbook-run-1", "rb-1234"):
        (place / name).mkdir()
    (place / "runbook-run-file").write_text("a file")
    (place / "runbook-kernel-link").symlink_to(place / "other")
    (place / "runbook-ssh-dangling").symlink_to("/nowhere")
    os.mkfifo(place / "runbook-ssh-fifo")
    before = sorted(place.rglob("*"))
    (place / "runbook-kernel-dead").mkdir()
    assert runbook(place, "status", EXAMPLE).returncode == 0
    assert sorted(place.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_folders_of_another_user_are_left(place):
    for prefix in scratch.PREFIXES:
        (place / f"{prefix}theirs").mkdir()
        os.chown(place / f"{prefix}theirs", 12345, 12345)
    assert runbook(place, "status", EXAMPLE).returncode == 0
    assert len(left(place)) == len(scratch.PREFIXES)


@pytest.mark.parametrize("broken", ["/nowhere", "/proc", "relative", "/dev/null", ""])
def test_a_temporary_directory_that_cannot_be_used_is_no_error(broken):
    done = runbook(broken, "status", EXAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("verify_stack ")


def test_a_folder_that_cannot_be_removed_is_no_error(place, monkeypatch):
    (place / "runbook-run-stuck").mkdir()
    (place / "runbook-run-then").mkdir()
    removed = shutil.rmtree

    def refuse(path):
        if path.endswith("stuck"):
            raise OSError(30, "Read-only file system")
        removed(path)

    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(shutil, "rmtree", refuse)
    scratch.clear()
    assert left(place) == ["runbook-run-stuck"]


@pytest.mark.parametrize("removed", ["before its lock", "while another holds the lock"])
def test_a_folder_that_is_taken_for_left_over_before_its_lock_is_made_again(
    removed, place, monkeypatch
):
    locked, taken = scratch._locked, []

    def take_first(path):
        if not taken:
            taken.append(path)
            if removed == "before its lock":
                Path(path).rmdir()
            else:
                raise BlockingIOError
        return locked(path)

    monkeypatch.setattr(scratch, "_locked", take_first)
    with scratch.folder("runbook-run-", str(place)) as folder:
        assert folder.is_dir() and str(folder) != taken[0]
        scratch._remove_unowned(str(folder))
        assert folder.is_dir()
    assert left(place) == []


def test_folders_that_are_made_while_others_clear_are_never_taken_away(place):
    code = (
        "import sys\nfrom runbook import scratch\n"
        "for _ in range(300):\n"
        "    with scratch.folder('runbook-run-', sys.argv[1]) as folder:\n"
        "        (folder / 'file').touch()\n        scratch.clear()\n"
        "        assert (folder / 'file').exists()\n"
    )
    env = {**os.environ, "TMPDIR": str(place)}
    with contextlib.ExitStack() as stack:
        argv = (sys.executable, "-c", code, str(place))
        both = [stack.enter_context(process(*argv, env=env)) for _ in range(2)]
        assert [one.wait(120) for one in both] == [0, 0]
    assert left(place) == []
