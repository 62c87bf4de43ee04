import os
import subprocess
import sys
from pathlib import Path

import pytest
from boxes import is_alive, wait_until

from runbook import params
from runbook.errors import HostFailed, NotHere
from runbook.hosts import LocalHost, open_for, open_host
from runbook.hosts.local import WithoutSystemd
from runbook.params import load

REHEARSAL = Path(__file__).parents[2] / "params" / "rehearsal.yaml"


@pytest.fixture
def host(tmp_path):
    with open_host(params.Host(kind="local"), tmp_path) as local:
        yield local


def test_a_command_runs_in_the_root_folder(host):
    assert host.run("pwd").out == "/\n"


def test_a_command_that_hangs_is_ended_with_its_children(host, tmp_path):
    with pytest.raises(HostFailed, match=r"after 0\.5 s"):
        host.run("sh", "-c", f"sleep 600 & echo $! >{tmp_path}/pid; wait", timeout_s=0.5)
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(child), 5)


def test_whether_systemd_answers_is_asked_for_real(host):
    reason = host.why_no_systemd()
    if Path("/proc/1/comm").read_text() != "systemd\n":
        assert reason is not None and "PID 1" in reason
    elif os.geteuid() == 0:
        assert reason is None
    else:
        assert "needs root" in reason


def test_a_process_here_keeps_its_number(host):
    assert host.host_pid(os.getpid()) == os.getpid()


def test_the_host_of_parameters_is_opened(tmp_path):
    with open_for(load(REHEARSAL, ["host.kind=local"]), tmp_path) as host:
        assert isinstance(host, LocalHost)
    assert list(tmp_path.iterdir()) == []


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_an_interrupt_ends_the_command(tmp_path):
    code = (
        "from runbook.hosts import LocalHost\n"
        f"LocalHost().run('sh', '-c', 'echo $$ >{tmp_path}/pid; exec sleep 600')"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as runner:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 10)
        child = int((tmp_path / "pid").read_text())
        wait_until(lambda: state_of(runner.pid) == "S", 10)  # it waits for the command
        runner.send_signal(2)
        assert b"KeyboardInterrupt" in runner.stderr.read()
    wait_until(lambda: not is_alive(child), 5)


def test_a_systemd_that_hangs_does_not_answer(monkeypatch):
    """``systemctl`` gets its time and is ended; the verbs get a reason, not an error."""

    class Hangs(LocalHost):
        def execute(self, argv, stdin, timeout_s):
            return super().execute(("sleep", "600"), stdin, 0.2)

    monkeypatch.setattr(Path, "is_dir", lambda path: True)
    assert "had not ended after 0.2 s" in Hangs().why_no_systemd()


def test_the_machine_in_place_of_a_host_is_looked_at_and_never_changed(tmp_path):
    host = WithoutSystemd("no box can be made here: a test")
    (tmp_path / "kept").write_text("x")
    for change in (
        lambda: host.write(tmp_path / "new", ""),
        lambda: host.make_dir(tmp_path / "new"),
        lambda: host.remove(tmp_path / "kept"),
    ):
        with pytest.raises(NotHere, match="a test"):
            change()
    assert host.list(tmp_path) == ["kept"]
    assert host.read(tmp_path / "kept") == b"x"
