"""A system user, an API key, a port that is taken, children that outlive their parent."""

import dataclasses
import subprocess
import sys
import time
from pathlib import Path

import pytest
from boxes import wait_until
from standin_service import SERVER, UNIT, Deployment, StandIn

from runbook.errors import NotProved
from runbook.install_service import install, plan_service, uninstall
from runbook.install_service.observe import prove_process
from runbook.install_service.service import Service
from runbook.launch import systemd
from runbook.launch.lint import lint


def test_a_system_user_with_a_key_that_shows_nowhere(deployment: Deployment):
    box = deployment.box
    secret = "s3cret-of-the-test"
    box.write("/etc/standin.key", secret + "\n", mode=0o600)
    box.write("/opt/standin_server.py", Path(SERVER).read_text())
    measured = deployment.measured()
    spec = dataclasses.replace(
        measured.spec,
        argv=("/usr/bin/python3", "/opt/standin_server.py", *measured.spec.argv[2:]),
        user="daemon",
        credentials={"api-key": "/etc/standin.key"},
    )
    measured = dataclasses.replace(measured, spec=spec)
    plan = plan_service(box, deployment.params, "baseline", measured, "test-run")
    install(box, plan)
    service = Service(box, deployment.params, plan.target, StandIn())
    found = {proof.name: proof for proof in prove_process(service)}
    assert {p.name: p.evidence for p in found.values() if p.status != "proved"} == {}
    assert found["user"].evidence == "uid 1"
    for _ in range(deployment.params.service.start_limit_burst + 1):  # its count is root's to reset
        box.run("systemctl", "restart", UNIT)
    assert all(check.status == "pass" for check in lint(plan.target.unit_text, box, UNIT))
    seen = [
        *plan.facts.files.values(),
        plan.describe(),
        systemd.journal(box, UNIT),
        str(systemd.show(box, UNIT)),
        box.run("sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ").out,
        box.run("sh", "-c", "cat -- /var/lib/golive-runbook/*/*/*/* /etc/systemd/system/s*").out,
    ]
    assert not [text for text in seen if secret in text]


def test_an_older_server_on_the_port_is_not_taken_for_the_new_one(deployment: Deployment):
    other = subprocess.Popen(
        [sys.executable, SERVER, str(deployment.port)], stdout=subprocess.PIPE, text=True
    )
    try:
        other.stdout.readline()
        with pytest.raises(NotProved) as error:
            install(deployment.box, deployment.plan())
        assert "guard: fail: port: held by" in error.value.do
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_children_and_a_deaf_server_are_gone_after_uninstall(deployment: Deployment):
    install(deployment.box, deployment.plan("--deaf", "--children", "3"))
    group = deployment.show("ControlGroup")
    processes = deployment.box.run("cat", f"/sys/fs/cgroup{group}/cgroup.procs").out.split()
    assert len(processes) == 4
    began = time.monotonic()
    uninstall(deployment.box, UNIT)
    assert time.monotonic() - began < 60  # systemd's own time to stop is 90 s
    assert not [pid for pid in processes if deployment.box.exists(f"/proc/{pid}")]
    assert deployment.left() == []


def test_the_death_of_the_main_process_takes_its_children_and_starts_anew(deployment: Deployment):
    install(deployment.box, deployment.plan("--children", "2"))
    main = deployment.show("MainPID")
    group = deployment.show("ControlGroup")
    before = set(deployment.box.run("cat", f"/sys/fs/cgroup{group}/cgroup.procs").out.split())
    deployment.box.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", UNIT)
    wait_until(lambda: deployment.show("MainPID") not in ("0", main), 60)
    wait_until(lambda: deployment.show("ActiveState") == "active", 60)
    after = set(deployment.box.run("cat", f"/sys/fs/cgroup{group}/cgroup.procs").out.split())
    assert len(after) == 3
    assert not before & after
