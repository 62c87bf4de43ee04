import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from runbook import probe
from runbook.probe import look


def test_a_process_is_seen_as_it_is(tmp_path):
    command = [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)", "a b", ""]
    process = subprocess.Popen(command, cwd=tmp_path, env={"A": "1=2"}, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = str(listener.getsockname()[1])
            said = subprocess.run(
                [sys.executable, "-I", "-S", "-", str(process.pid), port, str(tmp_path)],
                input=probe.source("look"),
                capture_output=True,
                text=True,
                check=True,
            )
        seen = json.loads(said.stdout)
        found = seen["process"]
        assert found["argv"] == command
        assert found["environ"] == ["A=1=2"]
        assert found["cwd"] == str(tmp_path)
        assert found["exe"] == str(Path(sys.executable).resolve())
        assert found["uid"] == os.getuid()
        assert found["limits"]["Max open files"].isdigit()
        assert abs(found["started"] - time.time()) < 30
        assert [one["pid"] for one in seen["listeners"]] == [os.getpid()]
        assert [(one["pid"], one["parent"]) for one in seen["family"]] == [
            (process.pid, os.getpid())
        ]
        assert seen["written"] == tmp_path.stat().st_mtime
    finally:
        process.kill()
        process.wait()
    assert look.look_at(str(process.pid)) is None


def test_an_overwritten_environment_is_unknown_and_never_empty(tmp_path):
    file = tmp_path / "environ"
    file.write_bytes(b"\0" * 40)
    assert look.lines_of(file) is None
    file.write_bytes(b"")
    assert look.lines_of(file) is None
    file.write_bytes(b"A=\0B=\0\0")
    assert look.lines_of(file) == ["A=", "B=", ""]
    assert look.lines_of(tmp_path / "absent") is None


def test_a_title_over_the_first_part_of_an_environment(tmp_path):
    file = tmp_path / "environ"
    for first in (b"\0" * 30, b"sglang::scheduler\0\0"):
        file.write_bytes(first + b"TH=/x\0B=2\0C=3\0")
        assert look.shown_environ(file) == (["TH=/x", "B=2", "C=3"], True)
    file.write_bytes(b"A=1\0B=2\0")
    assert look.shown_environ(file) == (["A=1", "B=2"], False)
    file.write_bytes(b"\0" * 40)
    assert look.shown_environ(file) == (None, False)


def test_a_port_that_nobody_holds_has_no_listeners():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert look.listeners(bound.getsockname()[1]) == []


# --- workers that have ended while their launcher waits --------------------------------------

LAUNCHER = """
import ctypes, os, signal, subprocess, sys, threading, time
started = []  # what is forgotten is reaped
def run(*words, **more):
    started.append(subprocess.Popen(words, **more))
def named(name):
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
def fork(name, end):
    pid = os.fork()
    if not pid:
        named(name)
        end()
        os._exit(0)
    return pid
def wait():
    print(flush=True)
    while True:
        time.sleep(1)
"""

LOST = {
    "shells under a launcher that waits": """
        for _ in range(3):
            run("/bin/sh", "-c", "exit 126")
        wait()
        """,
    "a scheduler that was killed, beside one that lives": """
        fork(b"sglang::schedul", lambda: time.sleep(600))
        os.kill(fork(b"sglang::schedul", lambda: time.sleep(600)), signal.SIGKILL)
        wait()
        """,
    "an interpreter that came to nothing, beside one that lives": """
        run(sys.executable, "-c", "import time; time.sleep(600)")
        run(sys.executable, "-c", "raise SystemExit(255)")
        wait()
        """,
    "all but the helper that tracks resources": """
        run(sys.executable, "-c", "import time; time.sleep(600) # multiprocessing.resource_tracker")
        run("/bin/sh", "-c", "kill -SEGV $$")
        wait()
        """,
    "a scheduler that its launcher has waited for": """
        child = fork(b"sglang::schedul", lambda: time.sleep(2))
        threading.Timer(0, lambda: os.waitpid(child, 0)).start()
        wait()
        """,
    "a fork without a program of its own": """
        os.fork() or os._exit(255)
        fork(b"sleeper", lambda: time.sleep(600))
        wait()
        """,
}

KEPT = {
    "a compiler that failed": """
        os.symlink("/bin/sh", sys.argv[1] + "/nvcc")
        run(sys.argv[1] + "/nvcc", "-c", "exit 1")
        wait()
        """,
    "children that are waited for": """
        for _ in range(5):
            subprocess.run(["/bin/sh", "-c", "exit 3"])
        wait()
        """,
    "children that ended well": """
        run("/bin/sh", "-c", "exit 0")
        run(sys.executable, "-c", "")
        wait()
        """,
    "a failed shell beside a child that lives": """
        run("/bin/sleep", "600")
        run("/bin/sh", "-c", "exit 1")
        wait()
        """,
    "a failed child of a server that is at work": """
        run("/bin/sh", "-c", "exit 1")
        print(flush=True)
        while True:
            sum(range(1000))
        """,
    "the failed child of a worker": """
        program = "import subprocess, sys, time; d = subprocess.Popen([sys.executable, '-c', '1/0']"
        run(sys.executable, "-c", program + "); time.sleep(600)", stderr=subprocess.DEVNULL)
        wait()
        """,
}


@pytest.fixture
def launched(tmp_path, monkeypatch):
    monkeypatch.setattr(look, "UNHEEDED_S", 1.0)
    started = []

    def launch(body, before=()):
        program = LAUNCHER + textwrap.dedent(body)
        command = [*before, sys.executable, "-c", program, str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        process.stdout.readline()
        return look.LostWorkers(process.pid, again_s=0.1)

    yield launch
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()


def look_for(watch, seconds):
    """What the watch says within some time, and when."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if said := watch.look():
            return said, time.monotonic() - began
        time.sleep(0.05)
    return "", seconds


@pytest.mark.parametrize("kind", LOST)
def test_workers_that_ended_are_told_and_only_after_a_while(launched, kind):
    said, after_s = look_for(launched(LOST[kind]), 20)
    assert said.startswith("its worker processes have ended (")
    assert "still waits for them" in said
    assert after_s >= 1.0


def test_a_launcher_behind_a_wrapper_is_looked_at(launched):
    before = ("/bin/bash", "-c", '"$@"; true', "bash")
    said, _ = look_for(launched(LOST["shells under a launcher that waits"], before), 20)
    assert "exit 126" in said


@pytest.mark.parametrize("kind", KEPT)
def test_what_ends_beside_a_server_is_no_lost_worker(launched, kind):
    watch = launched(KEPT[kind])
    assert look_for(watch, 3) == ("", 3)


def member(pid, parent, name, born="1"):
    return {
        **{"pid": pid, "parent": parent, "name": name, "state": "S", "ticks": 9, "born": born},
        **{"ended": 0, "helper": False},
    }


LAUNCHER_5 = member(5, 1, "python3")


@pytest.mark.parametrize(
    ("before", "after", "is_told"),
    [
        ([member(6, 5, "sglang::schedul")], [], True),
        ([member(6, 5, "VLLM::EngineCor")], [], True),
        ([member(6, 5, "sglang::schedul")], [member(6, 5, "sh", born="2")], True),
        ([member(6, 5, "sglang::dp"), member(7, 6, "sglang::schedul")], "all but 7", True),
        ([member(6, 5, "sh"), member(7, 6, "sglang::schedul")], [], False),  # moved to process 1
        ([member(6, 5, "ray::IDLE")], [], False),
        ([member(6, 5, "nvcc"), member(7, 5, "python3")], [], False),
        ([member(6, 5, "sglang::schedul")], "as before", False),
    ],
)
def test_a_worker_that_its_launcher_waited_for_and_goes_on_without(before, after, is_told):
    after = {"as before": before, "all but 7": before[:1]}.get(str(after), after)
    watch = look.LostWorkers(5)
    assert watch.judge([LAUNCHER_5, *before], 0.0) == ""
    assert watch.judge([LAUNCHER_5, *after], 4.9) == ""
    said = watch.judge([LAUNCHER_5, *after], 6.0)
    assert bool(said) is is_told
    assert not said or "its status is not known" in said
    assert watch.judge([LAUNCHER_5, *before], 7.0) == "", "it was only not seen"


def test_who_nobody_knows_has_lost_nothing():
    assert look.family_of(0) == []
    assert look.LostWorkers(0).look() == ""
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    assert look.LostWorkers(gone.pid).look() == ""


def test_the_end_of_a_worker_that_may_not_be_seen_is_no_end():
    family = [
        {"pid": 5, "parent": 1, "name": "python3", "state": "S", "ticks": 9, "born": "1"},
        {"pid": 6, "parent": 5, "name": "python3", "state": "Z", "ticks": 0, "born": "2"},
    ]
    for ended, is_told in ((0, False), (256, True), (9, True)):
        watch = look.LostWorkers(5)
        seen = [dict(one, ended=ended, helper=False) for one in family]
        assert watch.judge(seen, 0.0) == ""
        assert watch.judge(seen, 4.9) == ""
        assert bool(watch.judge(seen, 5.1)) is is_told
    another = [family[0], dict(family[1], born="3")]
    watch = look.LostWorkers(5)
    watch.judge([dict(one, ended=9, helper=False) for one in family], 0.0)
    assert watch.judge([dict(one, ended=9, helper=False) for one in another], 9.0) == ""
