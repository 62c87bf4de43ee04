"""Units in a real systemd; one that runs on this machine itself is shown by a runner in a box."""

import dataclasses
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from boxes import is_alive, wait_for_word, wait_until
from standins import ENV, ask, standin

from runbook.errors import HostFailed, ServerFailed
from runbook.install_service.proofs import prove_limits
from runbook.launch import systemd
from runbook.launch.ports import port_holder
from runbook.launch.spec import MANAGER_SETS
from runbook.launch.systemd import RUNTIME_UNITS, UnitLauncher
from runbook.probe.look import look_at

TESTS = Path(__file__).parents[1]


@pytest.fixture
def launcher(box):
    return UnitLauncher(box)


def test_a_server_as_a_unit_gets_exactly_what_its_spec_says(launcher):
    with launcher.start(standin(cwd="/var", nofile=300), "one", 10, 5) as server:
        facts = ask(server)
        assert {
            k: v for k, v in facts["env"].items() if k not in {*MANAGER_SETS, "LC_CTYPE"}
        } == ENV
        assert (facts["cwd"], facts["umask"]) == ("/var", 0o022)
        assert facts["limits"]["nofile"] == [300, 300]
        assert server.spec.argv[2] in Path(f"/proc/{server.pid}/cmdline").read_text()
        assert server.alive()
        assert "hello from the server" in server.log_tail()
    assert not server.alive()
    assert "goodbye" in server.log_tail()
    assert not is_alive(server.pid)


PROCESS = {
    **{"cpus": "0", "nice": 6, "cpu_policy": "batch", "io_class": "best-effort", "io_priority": 6},
    **{"umask": "0027", "oom_score_adjust": 150, "numa_policy": "bind", "numa_nodes": "0"},
}


def test_processors_memory_and_priorities_of_a_unit_are_those_of_its_spec(launcher):
    spec = standin(process=PROCESS, limits={"core": 4096}, memlock=65536)
    with launcher.start(spec, "bound", 10, 5) as server:
        assert ask(server)["umask"] == 0o027
        found = look_at(str(server.pid))
        proof = prove_limits(spec, found["limits"], found["attributes"])
        assert proof.status == "proved" and "core 4096, cpus 0, nice 6" in proof.evidence, proof
        wider = dataclasses.replace(spec, process={**PROCESS, "cpus": "0-9"})
        proof = prove_limits(wider, found["limits"], found["attributes"])
        assert (proof.status, proof.evidence) == ("refuted", "cpus is 0, measured 0-9")


def test_nothing_of_a_stopped_unit_is_left_even_when_it_failed(box, launcher):
    server = launcher.start(standin("deaf", "children"), "deaf", 10, 0.5)
    children = ask(server)["children"]
    server.stop()
    assert not is_alive(server.pid)
    assert not [pid for pid in children if box.host_pid(pid)]
    assert systemd.show(box, server.unit, "LoadState")["LoadState"] == "not-found"
    assert not box.exists(RUNTIME_UNITS / server.unit)
    assert box.run("systemctl", "--failed", "--no-legend").out == ""
    server.stop()


def test_a_unit_that_dies_is_noticed_and_not_restarted(box, launcher):
    with launcher.start(standin("die"), "dies", 10, 5) as server:
        wait_until(lambda: not server.alive(), 5)
        assert "the server dies on purpose" in server.log_tail()
        shown = systemd.show(box, server.unit, "ActiveState", "Restart", "NRestarts")
        assert shown == {"ActiveState": "failed", "Restart": "no", "NRestarts": "0"}
        assert not server.alive()


def test_workers_that_died_under_a_living_unit_are_told_here_and_from_afar(box, launcher):
    with launcher.start(standin("orphaned"), "waits", 10, 5) as server:
        assert "exit 126" in wait_for_word(server.lost_workers, 30)
        assert server.alive()
        afar = systemd.LostWorkers(
            server.main_pid, lambda: systemd._look(box, server.main_pid, 0)["family"], 1.0
        )
        assert "exit 126" in wait_for_word(afar.look, 30)


@pytest.mark.parametrize("fields", [{"argv": ("/absent/python", "x")}, {"user": "no-such-user"}])
def test_a_unit_that_cannot_be_executed_says_why_and_leaves_nothing(box, launcher, fields):
    with pytest.raises(ServerFailed, match=r"runbook-wrong\.service did not start"):
        launcher.start(standin(**fields), "wrong", 10, 5)
    assert not box.exists(RUNTIME_UNITS / "runbook-wrong.service")


def test_the_holder_of_a_port_is_named_with_its_unit(launcher):
    with launcher.start(standin(), "holder", 10, 5) as server:
        ask(server)
        said = port_holder(int(server.spec.argv[2]))
        assert said.startswith(f"pid {server.pid} (python")
        assert said.endswith(", unit runbook-holder.service")


def test_units_are_started_shown_and_enabled(box):
    text = "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=multi-user.target\n"
    box.write("/etc/systemd/system/plain.service", text)
    systemd.daemon_reload(box)
    systemd.enable(box, "plain.service")
    systemd.start(box, "plain.service", 10)
    shown = systemd.show(box, "plain.service", "ActiveState", "UnitFileState", "ExecStart")
    assert (shown["ActiveState"], shown["UnitFileState"]) == ("active", "enabled")
    assert "argv[]=/bin/sleep 1000" in shown["ExecStart"]
    systemd.stop(box, "plain.service", 10)
    systemd.disable(box, "plain.service")
    shown = systemd.show(box, "plain.service", "ActiveState", "UnitFileState")
    assert shown == {"ActiveState": "inactive", "UnitFileState": "disabled"}
    with pytest.raises(ServerFailed, match=r"absent\.service"):
        systemd.start(box, "absent.service", 10)
    with pytest.raises(HostFailed):
        systemd.enable(box, "absent.service")


RUNNER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from standins import ask, standin
from runbook.hosts import LocalHost
from runbook.launch.systemd import UnitLauncher
host = LocalHost()
assert host.why_no_systemd() is None, host.why_no_systemd()
server = UnitLauncher(host).start(standin("deaf", "children"), "held", 10, 60)
print(server.pid, *ask(server)["children"], flush=True)
time.sleep(600)
"""


def test_a_unit_on_the_machine_itself_ends_when_its_runner_is_killed(box):
    code = [sys.executable, "-c", RUNNER, str(TESTS)]
    box.run("systemd-run", "--unit=runner", "--property=KillMode=process", *code)
    wait_until(lambda: len(said(box)) == 3, 10, lambda: box.journal("runner.service"))
    pids = [box.host_pid(int(word)) for word in said(box)]
    assert all(pids)
    runner = box.host_pid(int(systemd.show(box, "runner.service", "MainPID")["MainPID"]))
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)), 5)
    unit = "/run/systemd/system/runbook-held.service"
    wait_until(lambda: not box.exists(unit), 5)


def said(box):
    """The numbers that the runner has printed."""
    lines = [line.rpartition(": ")[2] for line in box.journal("runner.service").splitlines()]
    return next((line.split() for line in lines if line[:1].isdigit()), [])


@pytest.mark.parametrize(
    ("woken", "left", "entered", "within"),
    [
        ("@100", "", "@130", (100.0, 131.0)),  # active since its start
        ("@100", "@500", "@530", (500.0, 531.0)),  # active again after a crash
        ("@100", "@500", "@130", (100.0, None)),  # it was stopped
        ("@600", "@500", "@130", (500.0, None)),  # it starts, or waits for its next try
        ("@900", "@500", "@130", (780.0, None)),  # as it does after tries that failed
        ("@600", "", "", (480.0, None)),
        ("", "@0", "", (None, None)),
    ],
)
def test_the_last_start_is_told_apart_from_all_that_was_logged_since(woken, left, entered, within):
    said = f"InactiveExitTimestamp={woken}\nActiveExitTimestamp={left}\n"
    host = SimpleNamespace(
        run=lambda *_, check: SimpleNamespace(out=f"{said}ActiveEnterTimestamp={entered}\n")
    )
    assert systemd.last_start(host, "x.service") == within
