"""An operator who is not root: everything through sudo, on the host itself and over ssh."""

import pytest
from boxes import leave_out, python_of_nobody, run_as_nobody
from server_lives import free_port
from standin_service import UNIT, make_measured, make_params

from runbook.errors import HostFailed
from runbook.hosts import SshHost
from runbook.install_service import install, plan_service, status, uninstall

LOCAL = """
import os, sys
from standin_service import UNIT, make_measured, make_params
from runbook.hosts import LocalHost
from runbook.install_service import install, plan_service, status, uninstall
assert os.geteuid() != 0
print(LocalHost().why_no_systemd())
host = LocalHost(sudo=True)
assert host.why_no_systemd() is None, host.why_no_systemd()
port = int(sys.argv[1])
plan = plan_service(host, make_params(port), "baseline", make_measured(port), "test-run")
install(host, plan)
owner = host.run("stat", "-c", "%U", f"/etc/systemd/system/{UNIT}").out.strip()
print(status(host, UNIT).ok, owner)
uninstall(host, UNIT)
print(host.exists(f"/etc/systemd/system/{UNIT}"))
"""


@pytest.fixture(scope="module")
def operator(far):
    """A user of the far host who may become root by sudo, without a password."""
    if far.box.run("sh", "-c", "command -v sudo", check=False).code:
        leave_out("no sudo on this machine: make needs-test")
    far.box.run("useradd", "--create-home", "--shell", "/bin/sh", "oncall")
    far.box.run("usermod", "--password", "*", "oncall")  # a locked one may not log in
    far.box.write("/etc/sudoers.d/oncall", "oncall ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    return far


def test_over_ssh_a_service_is_installed_looked_at_and_removed(operator):
    address = operator.address_of("oncall")
    with SshHost(address, config=operator.config) as plain:
        assert plain.run("id", "-un").out == "oncall\n"
        assert "set host.sudo: true" in plain.why_no_systemd()
        sudoers = operator.box.read("/etc/sudoers.d/oncall")
    operator.box.write("/etc/sudoers.d/oncall", "oncall ALL=(ALL) ALL\n", 0o440)
    with pytest.raises(HostFailed, match="sudo: a password is required") as error:
        SshHost(address, config=operator.config, sudo=True).__enter__()
    assert "NOPASSWD" in error.value.do
    operator.box.write("/etc/sudoers.d/oncall", sudoers, 0o440)
    with SshHost(address, config=operator.config, sudo=True) as host:
        assert host.why_no_systemd() is None
        nasty = ["a b", "$HOME", "it's", '"x"', "", "-n", "*", "\\", "ü", "a\nb"]
        assert host.run("printf", "<%s>", *nasty).out == "".join(f"<{word}>" for word in nasty)
        assert "SUDO_" not in host.run("env").out
        params = make_params(free_port())
        measured = make_measured(params.server.port)
        plan = plan_service(host, params, "baseline", measured, "test-run")
        install(host, plan)
        assert status(host, UNIT).ok
        assert plan_service(host, params, "baseline", measured, "test-run").unchanged
        uninstall(host, UNIT)
        assert not operator.box.exists(f"/etc/systemd/system/{UNIT}")


def test_on_the_host_itself_too(operator):
    """``kind: local`` by a runner inside the box, under the operator's own user."""
    box, python = operator.box, python_of_nobody()
    paths = run_as_nobody([python, "-c", "import os; print(os.environ['PYTHONPATH'])"]).stdout
    become = ["setpriv", "--reuid=oncall", "--regid=oncall", "--init-groups"]
    env = ["env", f"PYTHONPATH={paths.strip()}", "PYTHONDONTWRITEBYTECODE=1", "HOME=/home/oncall"]
    done = box.run(*become, *env, python, "-c", LOCAL, str(free_port()), timeout_s=120)
    assert done.out.splitlines() == [
        "managing units needs root: run as root (sudo), or set host.sudo: true",
        "True root",
        "False",
    ]
