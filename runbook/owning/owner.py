"""The owner of what is started: it ends everything once the process that asked for it is gone.

A program of its own, run by its file path under any Python 3.11 with nothing but the standard
library. Its standard input is the life line: the first line is the job, further lines are orders,
and the end of file (a clean close, or the creator's death, also by ``kill -9``) ends everything.
Standard output carries events, one JSON object a line; its end of file says that nothing is left.

It consists of two processes. The worker starts the child and serves the orders; the keeper only
waits for the worker. Whichever is killed, the other ends all that was started.

    job     {"argv", "env", "cwd", "log", "user", "limits": {name: number|null},
             "credentials": {name: path}, "lock": path|null, "cgroup": folder|null,
             "watch_pid": number|null, "at_end": [argv]}     run at_end when all has ended
    orders  {"do": "start"}                    start the child again after it has ended
            {"do": "stop", "grace_s": s}       SIGTERM, wait, SIGKILL of all; 0: SIGKILL at once
    events  {"event": "started", "pid", "limits"}   {"event": "exited", "code"}
            {"event": "failed", "why"}              {"event": "busy", "by"}
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import pwd
import resource
import runpy
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

PREFIX = "runbook-owner-"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLEAN_UP_S = 4.0
AT_END_S = 10.0

Job = dict[str, Any]


def prctl(option: int, value: int) -> None:
    """prctl(2); raises ``OSError``."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def say(**event: object) -> None:
    """One event to the creator; a creator that is gone shows on standard input."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(event).encode() + b"\n")


# --- processes ------------------------------------------------------------------------------


def descendants(root: int) -> set[int]:
    """The living processes below ``root`` (zombies left out)."""
    children: dict[int, list[int]] = {}
    dead = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                children.setdefault(int(parent), []).append(int(entry.name))
                dead.update([int(entry.name)] if state in "ZX" else [])
    found: set[int] = set()
    below = [root]
    while below:
        new = children.get(below.pop(), [])
        found.update(new)
        below.extend(new)
    return found - dead


def reap() -> dict[int, int]:
    """Collect every ended child, adopted ones too: pid -> code (negative: the signal)."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def end_descendants() -> dict[int, int]:
    """SIGKILL to all below this process until none is left; returns what was reaped."""
    deadline = time.monotonic() + CLEAN_UP_S
    ended = reap()
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
        ended |= reap()
    return ended | reap()


# --- cgroups and credentials: folders locked by their living owner ---------------------------


def lock_folder(folder: str) -> int | None:
    """The descriptor that holds ``folder``, ``None`` when a living owner holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def remove_orphans(parent: str, remove: Callable[[str], None]) -> None:
    """Remove what dead owners left in ``parent``."""
    for entry in os.scandir(parent):
        if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == os.geteuid():
                    descriptor = lock_folder(entry.path)
                    if descriptor is not None:
                        try:
                            remove(entry.path)
                        finally:
                            os.close(descriptor)


def make_folder(parent: str, remove: Callable[[str], None]) -> str:
    """A new private folder in ``parent``, locked for as long as this process (or a fork) lives."""
    remove_orphans(parent, remove)
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        with contextlib.suppress(FileNotFoundError):
            if lock_folder(folder) is not None and Path(folder).exists():
                return folder


def remove_cgroup(folder: str) -> None:
    """End every process of a cgroup and remove it with all below it."""
    if not Path(folder).exists():
        return
    deadline = time.monotonic() + CLEAN_UP_S
    with contextlib.suppress(OSError):
        Path(folder, "cgroup.kill").write_text("1")
    while time.monotonic() < deadline:
        reap()
        with contextlib.suppress(OSError):
            for below, _, _ in os.walk(folder, topdown=False):
                Path(below).rmdir()
            return
        time.sleep(0.01)


def make_cgroup(parent: str) -> str:
    """A cgroup with two leaves, ``outer`` for what starts the child and ``inner`` for the child.

    Processes live in the leaves only, so that controllers can be handed down to ``inner``.
    """
    folder = make_folder(parent, remove_cgroup)
    for name in Path(folder, "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            Path(folder, "cgroup.subtree_control").write_text(f"+{name}")
    for leaf in ("outer", "inner"):
        Path(folder, leaf).mkdir()
    return folder


def copy_credentials(credentials: dict[str, str], user: str) -> str:
    """A folder in memory, 0700, with a copy of each credential, readable by ``user`` alone."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    folder = make_folder(parent, shutil.rmtree)
    for name, source in credentials.items():
        path = Path(folder, name)
        path.touch(0o600)
        path.write_bytes(Path(source).read_bytes())
        path.chmod(0o400)
        if user:
            shutil.chown(path, user)
    if user:
        shutil.chown(folder, user)
    return folder


# --- the child -------------------------------------------------------------------------------


def set_limit(name: str, wanted: int | None) -> int | None:
    """Set a limit, clipped to what is allowed here; the effective value, ``None`` for infinity."""
    kind = getattr(resource, "RLIMIT_" + name.upper())
    hard = resource.getrlimit(kind)[1]
    tries = [resource.RLIM_INFINITY if wanted is None else wanted]
    if name == "nofile" and wanted is None:
        tries = [int(Path("/proc/sys/fs/nr_open").read_text())]
    for value in [*tries, hard]:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))
            break
    soft = resource.getrlimit(kind)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def set_attributes(wanted: dict[str, Any]) -> None:
    """Processors, memory nodes, priorities and umask, where any are asked for."""
    if wanted:
        path = Path(__file__).parents[1] / "probe" / "attributes.py"
        runpy.run_path(str(path))["set_attributes"](wanted)


def become(user: str) -> None:
    """Give up root for ``user``, with its groups."""
    if user and pwd.getpwnam(user).pw_uid != os.geteuid():
        entry = pwd.getpwnam(user)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)


def run_child(job: Job, env: dict[str, str], cgroup: str | None, report: int) -> NoReturn:
    """In the forked child: put everything in place as systemd would, then execute."""
    worker = os.getppid()
    os.setsid()
    if cgroup:
        Path(cgroup, "outer", "cgroup.procs").write_text("0")
    limits = {name: set_limit(name, wanted) for name, wanted in job["limits"].items()}
    os.umask(0o022)
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    set_attributes(job["process"])
    become(job["user"])
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:
        os._exit(1)
    os.chdir(job["cwd"])
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    os.write(report, json.dumps({"limits": limits}).encode() + b"\n")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execve(job["argv"][0], job["argv"], env)


def start_child(job: Job, env: dict[str, str], cgroup: str | None) -> int | None:
    """Fork and execute the child, tell the creator; ``None`` when it could not be executed."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            run_child(job, env, cgroup, write)
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"
            os.write(write, json.dumps({"why": why}).encode() + b"\n")
        os._exit(127)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer: Job = {}
        for line in pipe:
            answer.update(json.loads(line))
    if "limits" not in answer or "why" in answer:
        os.waitpid(pid, 0)
        say(event="failed", why=answer.get("why", "ended before it was executed"))
        return None
    say(event="started", pid=pid, limits=answer["limits"])
    return pid


# --- the two processes of the owner ----------------------------------------------------------


class Worker:
    """Starts the child and serves orders until the life line breaks."""

    def __init__(self, job: Job, creator: int, env: dict[str, str], cgroup: str | None) -> None:
        self.job, self.creator, self.env, self.cgroup = job, creator, env, cgroup
        self.child: int | None = None
        self.kill_at: float | None = None
        self.pending = b""

    def serve(self) -> None:
        """Return when the creator or the watched process is gone."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        wake = watch_signals()
        poll.register(wake, select.POLLIN)
        # The creator's own end, too: a process forked from it may hold the life line open.
        for pid in filter(None, (self.creator, self.job["watch_pid"])):
            try:
                poll.register(os.pidfd_open(pid), select.POLLIN)
            except ProcessLookupError:
                return
        self.start()
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(self.patience_ms())}
            if ready - {0, wake} or (0 in ready and not self.read_orders()):
                return
            if wake in ready:
                os.read(wake, 4096)
            self.notice(reap())
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.kill()

    def patience_ms(self) -> float | None:
        """How long nothing has to be done, ``None`` for ever."""
        return None if self.kill_at is None else max(0.0, (self.kill_at - time.monotonic()) * 1000)

    def read_orders(self) -> bool:
        """Serve what was written to the life line; false at its end."""
        data = os.read(0, 65536)
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if order["do"] == "start":
                self.start()
            elif self.child is not None:
                self.kill_at = time.monotonic() + order["grace_s"]
                if order["grace_s"]:
                    os.kill(self.child, signal.SIGTERM)
        return bool(data)

    def start(self) -> None:
        """Start the child unless it runs."""
        if self.child is None:
            self.child = start_child(self.job, self.env, self.cgroup)

    def kill(self) -> None:
        """End the child and all below it at once."""
        self.kill_at = None
        if self.cgroup:
            with contextlib.suppress(OSError):
                Path(self.cgroup, "cgroup.kill").write_text("1")
        self.notice(end_descendants())

    def notice(self, ended: dict[int, int]) -> None:
        """When the child has ended: end what it left behind, then tell the creator."""
        if self.child in ended:
            code = ended[self.child]
            self.child = self.kill_at = None
            end_descendants()
            if self.cgroup:
                remove_cgroup(f"{self.cgroup}/inner")
                Path(self.cgroup, "inner").mkdir()
            say(event="exited", code=code)


def watch_signals() -> int:
    """A descriptor that becomes readable with every signal; SIGTERM and its like end this."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    return read


def clean_up(job: Job, cgroup: str | None, credentials: str | None) -> None:
    """End and remove everything that was started or made; safe to call again."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if cgroup:
        remove_cgroup(cgroup)
    end_descendants()
    if credentials:
        shutil.rmtree(credentials, ignore_errors=True)
    for argv in job["at_end"]:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(argv, env=job["env"], stdout=sys.stderr, timeout=AT_END_S, check=False)


def take_lock(path: str) -> bool:
    """Hold ``path`` for the life of both processes; false (and said) when another owner does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(event="busy", by=os.read(descriptor, 100).decode().strip() or "unknown")
        return False
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getppid()}\n".encode())
    return True


def work(job: Job, creator: int, keeper: int, cgroup: str | None, credentials: str | None) -> None:
    """The worker process, from fork to end."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        if os.getppid() == keeper:
            env = dict(job["env"])
            env.update({"RUNBOOK_CGROUP": cgroup} if cgroup else {})
            env.update({"CREDENTIALS_DIRECTORY": credentials} if credentials else {})
            Worker(job, creator, env, cgroup).serve()
    finally:
        clean_up(job, cgroup, credentials)


def keep(worker: int) -> None:
    """The keeper process: wait for the worker, reaping what both adopt."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(worker, signal.SIGTERM))
    while True:
        if os.wait()[0] == worker:
            return


def main() -> int:
    """Read the job, prepare what outlives either process, and divide in two."""
    creator = os.getppid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    with open(0, "rb", buffering=0, closefd=False) as life_line:
        job: Job = json.loads(life_line.readline())
    if job["lock"] and not take_lock(job["lock"]):
        return 1
    cgroup = credentials = None
    try:
        cgroup = make_cgroup(job["cgroup"]) if job["cgroup"] else None
        if job["credentials"]:
            credentials = copy_credentials(job["credentials"], job["user"])
    except (OSError, LookupError) as error:
        say(event="failed", why=str(error))
        clean_up(job, cgroup, credentials)
        return 1
    keeper = os.getpid()
    worker = os.fork()
    if not worker:
        try:
            work(job, creator, keeper, cgroup, credentials)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)
    keep(worker)
    clean_up(job, cgroup, credentials)
    return 0


if __name__ == "__main__":
    sys.exit(main())
