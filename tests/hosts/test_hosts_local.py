import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from boxes import is_alive, wait_until

from runbook import params
from runbook.errors import HostFailed
from runbook.hosts import LocalHost, open_for, open_host
from runbook.params import load

REHEARSAL = Path(__file__).parents[2] / "params" / "rehearsal.yaml"


@pytest.fixture
def host(tmp_path):
    with open_host(params.Host(kind="local"), tmp_path) as local:
        yield local


def test_a_command_gets_input_and_a_clean_environment(host, monkeypatch):
    monkeypatch.setenv("LEAK", "1")
    assert host.run("cat", stdin=b"a\0\xff").out == "a\0\\xff"
    assert "LEAK" not in host.run("env").out
    assert host.run("pwd").out == "/\n"


def test_a_failure_tells_what_the_command_said(host):
    with pytest.raises(HostFailed, match="ended with 3: not today"):
        host.run("sh", "-c", "echo not today >&2; exit 3")
    assert host.run("absent-command", check=False).code == 127


def test_a_command_that_hangs_is_ended_with_its_children(host, tmp_path):
    with pytest.raises(HostFailed, match=r"after 0\.5 s"):
        host.run("sh", "-c", f"sleep 600 & echo $! >{tmp_path}/pid; wait", timeout_s=0.5)
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(child), 5)


def test_whether_systemd_answers_is_asked_for_real(host):
    reason = host.why_no_systemd()
    if Path("/proc/1/comm").read_text() != "systemd\n":
        assert reason is not None and "PID 1" in reason
    else:
        assert reason is None


def test_a_process_here_keeps_its_number(host):
    assert host.host_pid(os.getpid()) == os.getpid()


def test_the_host_of_parameters_is_opened(tmp_path):
    with open_for(load(REHEARSAL, ["host.kind=local"]), tmp_path) as host:
        assert isinstance(host, LocalHost)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_ends_the_command(tmp_path):
    code = (
        "from runbook.hosts import LocalHost\n"
        f"LocalHost().run('sh', '-c', 'echo $$ >{tmp_path}/pid; exec sleep 600')"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as runner:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 10)
        child = int((tmp_path / "pid").read_text())
        time.sleep(0.1)
        runner.send_signal(2)
        assert b"KeyboardInterrupt" in runner.stderr.read()
    wait_until(lambda: not is_alive(child), 5)
