"""Real boxes for tests, and what must not be left of them."""

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import pytest

from runbook.hosts import Box, LocalHost, SshHost
from runbook.hosts.box_needs import cgroup2_folder, why_no_box
from runbook.owning import owner

NOBODY = 65534


def need_box(folder: Path) -> None:
    """Leave the test out where no box can be made."""
    if reason := why_no_box(folder):
        leave_out(f"no box can be made: {reason}")


def leave_out(reason: str) -> None:
    """Skip with the reason; in CI that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


#: Where set, this process is inside a box, which is its own machine.
INSIDE = "RUNBOOK_TEST_INSIDE"
#: Programs of packages that are not installed (requirements-system.txt).
UNPACKED = Path(sys.prefix) / "system/usr"


def program(name: str) -> str | None:
    """Where a program lies: installed (Debian's sshd is not on everybody's PATH), or unpacked."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:{UNPACKED}/bin:{UNPACKED}/sbin"
    return shutil.which(name, path=path)


SSHD = program("sshd")


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A booted box, shared by the tests of one file."""
    if os.environ.get(INSIDE):
        yield LocalHost()
        return
    folder = tmp_path_factory.mktemp("box")
    need_box(folder)
    seen = [Path(__file__).parents[1], *([Path(SSHD).parents[1]] if SSHD else [])]
    with Box(folder / "box", seen) as booted:
        yield booted


@pytest.fixture(scope="module")
def box(request, machine):
    """The box as a host; for tests that are marked so, reached by its sshd."""
    if getattr(request, "param", "box") == "box":
        yield machine
        return
    far = request.getfixturevalue("far")
    with SshHost(far.address, config=far.config) as host:
        yield host


#: Tests in which the kind of host matters; ``test_service_hosts.py`` runs them inside a box too.
on_each_host = pytest.mark.parametrize("box", ["box", "ssh"], indirect=True)


@dataclass(frozen=True)
class Traces:
    """Where a box shows on this machine."""

    namespace: Path
    cgroup: Path
    owners: frozenset[int]
    pin: TextIO  # while it is open, no other box's namespace gets the same number

    @classmethod
    def of(cls, box: Box) -> "Traces":
        inner = Path(f"/proc/{box._init}/cgroup").read_text().splitlines()[-1].split("::")[1]
        name = next(part for part in Path(inner).parts if part.startswith("runbook-owner-"))
        return cls(
            Path(f"/proc/{box._init}/ns/mnt").readlink(),
            cgroup2_folder() / name,
            frozenset({box._owned.pid, *children_of(box._owned.pid)}),
            Path(f"/proc/{box._init}/ns/mnt").open(),
        )

    def left(self) -> list[str]:
        """What is still there: processes (and with them mounts), the cgroup, the owner."""
        found = [str(self.cgroup)] if self.cgroup.exists() else []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and (entry / "ns/mnt").readlink() == self.namespace:
                    found.append(f"process {entry.name}: {(entry / 'comm').read_text().strip()}")
        return found + [f"owner {pid}" for pid in self.owners if is_alive(pid)]

    def wait_gone(self, timeout_s: float = 5.0) -> None:
        wait_until(lambda: not self.left(), timeout_s, self.left)


def orphans() -> list[Path]:
    """Cgroups of owners that are dead; those of living ones (other tests, other people) do not
    count."""
    found = []
    for folder in cgroup2_folder().glob(f"{owner.PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            descriptor = owner.lock_folder(str(folder))
            if descriptor is not None:
                os.close(descriptor)
                found.append(folder)
    return found


def wait_until(true, timeout_s, what=lambda: ""):
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def wait_for_word(say, timeout_s):
    """What ``say`` returns once it is not empty."""
    said = []
    wait_until(lambda: said.append(say()) or said[-1], timeout_s)
    return said[-1]


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def run_python(script: str, *arguments: str, **options) -> subprocess.Popen:
    """A separate process that runs ``script``; its first line of output says it is ready."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True, **options
    )


def python_of_nobody() -> str:
    """An interpreter of this version that an ordinary user can run."""
    for name in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        if run_as_nobody(["sh", "-c", '"$1" -c 1', "sh", name]).returncode == 0:
            return name
    pytest.skip("the interpreter lies where no ordinary user can read it")


def run_as_nobody(argv, cgroup=None):
    tests = Path(__file__).parent
    paths = [tests.parent, tests, tests / "service", sysconfig.get_path("purelib")]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(map(str, paths))}
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    join = f"echo $$ >{cgroup}/cgroup.procs; " if cgroup else ""
    command = ["sh", "-c", f'{join}exec "$@"', "sh", "setpriv", *ids, "--", *argv]
    return subprocess.run(
        command,
        env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
    )
