import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

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
