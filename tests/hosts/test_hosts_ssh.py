"""A host behind ssh: a real sshd in a box on loopback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from boxes import wait_until

from runbook import params
from runbook.errors import HostFailed, ParameterError
from runbook.hosts import SshHost, open_host
from runbook.launch import systemd
from runbook.launch.cards import read_cards
from runbook.launch.resting import resting, see


def test_one_connection_serves_all_and_its_end_is_seen_there(far):
    with SshHost(far.address, config=far.config) as host:
        before = far.said().count("Accepted publickey")
        for _ in range(5):
            host.run("true")
        assert far.said().count("Accepted publickey") == before
        assert far.box.exists(f"/proc/{host.runner_pid()}")
        pid = host.runner_pid()
    wait_until(lambda: not far.box.exists(f"/proc/{pid}"), 5)


def test_a_host_that_cannot_be_reached_says_what_ssh_says(far, tmp_path):
    far_key = tmp_path / "config"
    far_key.write_text("UserKnownHostsFile /dev/null\n")
    with pytest.raises(HostFailed, match=r"does not reach .*Host key verification") as error:
        SshHost(far.address, config=str(far_key)).__enter__()
    assert "ssh ssh://root@127.0.0.1" in error.value.do
    with (
        pytest.raises(HostFailed, match="does not reach"),
        open_host(params.Host(kind="ssh", address="ssh://root@127.0.0.1:1"), tmp_path),
    ):
        pass


def test_a_port_there_is_reached_here(far):
    unit = "[Service]\nExecStart={} -m http.server --bind 127.0.0.1 {}\n"
    from server_lives import free_port

    port = free_port()
    with SshHost(far.address, None, far.config) as host:
        host.write("/run/systemd/system/old.service", unit.format(sys.executable, port))
        systemd.daemon_reload(host)
        systemd.start(host, "old.service", 10)
        wait_until(lambda: see(host, "old.service").ports == (port,), 10)
        launcher = systemd.UnitLauncher(host)
        assert "old.service" in launcher.port_holder(port)
        with resting(host, ["old.service"], print):
            assert launcher.port_holder(port) is None
        assert see(host, "old.service").ports == (port,)


def test_the_cards_of_the_far_host_are_asked_and_not_those_here(far, monkeypatch):
    smi = "/usr/local/bin/nvidia-smi"
    far.box.write(smi, "#!/bin/sh\necho 0, 80000, 100, 128.4, 600.00\n", 0o755)
    monkeypatch.setattr("runbook.launch.cards.COMMAND_ENV", {"PATH": "/nonexistent"})
    with SshHost(far.address, None, far.config) as host:
        launcher = systemd.UnitLauncher(host)
        (card,) = read_cards(launcher.ask_driver)
        assert (card.used_mib, card.power_w) == (80000, 128.4)
        host.remove(smi)
        assert read_cards(launcher.ask_driver) == read_cards() == []


RUNNER = """
import sys, time
from runbook.hosts import SshHost
from runbook.launch.resting import resting
with SshHost(sys.argv[1], config=sys.argv[2]) as host, resting(host, ["kept.service"], print):
    print("it rests", flush=True)
    time.sleep(600)
"""


def test_after_kill_9_of_the_runner_the_far_side_brings_back_what_rests(far):
    far.box.write("/run/systemd/system/kept.service", "[Service]\nExecStart=/bin/sleep 1000\n")
    far.box.run("systemctl", "daemon-reload")
    far.box.run("systemctl", "start", "kept.service")
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, far.address, far.config],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert any("it rests" in line for line in runner.stdout)
        assert not see(far.box, "kept.service").active
    finally:
        runner.send_signal(signal.SIGKILL)
        runner.wait()
    wait_until(lambda: see(far.box, "kept.service").active, 10)


def test_what_cannot_be_over_ssh_is_refused_with_the_parameters(tmp_path):
    file = Path(__file__).parents[2] / "params" / "rehearsal.yaml"
    with pytest.raises(ParameterError, match="paths of that host"):
        params.load(file, ["host={kind: ssh, address: root@gpu}"])
    with pytest.raises(ParameterError, match="an option of ssh"):
        params.load(file, ["host={kind: ssh, address: -oProxyCommand=x}"])
