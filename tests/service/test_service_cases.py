"""Servers that go wrong in the ways that others have reported, each in a real systemd."""

import time

import pytest
from boxes import wait_until
from standin_service import UNIT, StandIn, make_params

from runbook.errors import NotProved
from runbook.hosts.base import Host
from runbook.install_service import Service, install, logs, read_drift, status
from runbook.install_service.monitoring import render_liveness
from runbook.install_service.observe import prove_burst

GIB = 2**30


def with_values(deployment, **parts):
    """The parameters with other values, by section."""
    values = deployment.params.model_dump()
    for section, changes in parts.items():
        values[section] |= changes
    deployment.params = type(deployment.params).model_validate(values)


def test_healthy_outside_and_dead_inside_is_never_taken_for_ready(deployment):
    """Health says 200 and the models are listed; no request is ever answered."""
    install(deployment.box, deployment.plan())
    params = make_params(deployment.port, start_timeout_s=2.0)
    with pytest.raises(NotProved, match="was brought back and serves") as error:
        install(deployment.box, deployment.plan("--dead-inside", params=params))
    assert "waiting for a completion" in error.value.do
    assert deployment.serves() == "none"


def test_one_that_hangs_after_a_hundred_requests_is_seen_by_the_burst(deployment):
    plan = deployment.plan("--hang-after", "100")
    install(deployment.box, plan)
    with_values(deployment, server={"timeouts": {"start_s": 20, "stop_s": 3, "request_s": 1.0}})
    proof = prove_burst(Service(deployment.box, deployment.params, plan.target, StandIn()))
    assert proof.status == "refuted"
    assert "of 200 failed" in proof.evidence


def test_one_that_dies_inside_while_it_serves_is_restarted_by_the_liveness_check(deployment):
    box = deployment.box
    plan = deployment.plan("--hang-after", "1")
    install(box, plan)
    before = deployment.show("MainPID")
    for name, text in render_liveness(deployment.params, plan.target, []).items():
        box.write(f"/run/systemd/system/{name}", text.replace("--deadline 60", "--deadline 2"))
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", "standin-alive.timer")
    assert "standin-alive.timer" in box.run("systemctl", "list-timers", "--no-legend").out
    box.run("systemctl", "start", "standin-alive.service", timeout_s=30)
    wait_until(lambda: deployment.show("MainPID") not in ("0", before), 20)
    wait_until(lambda: deployment.show("ActiveState") == "active", 20)
    assert deployment.serves() == "none"
    box.run("systemctl", "stop", UNIT)
    box.run("systemctl", "start", "standin-alive.service")
    assert deployment.show("ActiveState") == "inactive", "a stopped service stays stopped"
    box.run("systemctl", "stop", "standin-alive.timer")


def free_shm(box: Host) -> float:
    blocks, size = box.run("stat", "-f", "-c", "%a %S", "/dev/shm").out.split()
    return int(blocks) * int(size) / GIB


def test_shared_memory_that_leftovers_fill_stops_the_next_start(deployment):
    box = deployment.box
    with_values(
        deployment,
        stack={"min_shm_gib": free_shm(box) - 0.05},
        service={"guard": {**deployment.params.service.guard.model_dump(), "shm": "fail"}},
    )
    try:
        install(box, deployment.plan("--fill-shm", "64"))
        box.run("systemctl", "stop", UNIT)
        began = time.monotonic()
        assert box.run("systemctl", "start", UNIT, check=False).code == 1
        assert time.monotonic() - began < 10
        assert any("fail: shm: " in line for line in status(box, UNIT).guard)
        assert "GiB free; wanted" in logs(box, UNIT)
    finally:
        box.run("sh", "-c", "rm -f /dev/shm/leftover-*")


def test_a_limit_that_the_host_clips_is_never_called_proved(deployment):
    """``systemctl show`` repeats what was declared; the kernel says what holds."""
    with_values(deployment, service={"nofile": None})
    plan = deployment.plan()
    measured = deployment.measured()
    assert measured.spec.nofile == 4096
    install(deployment.box, plan)
    found = {
        check.name: check
        for check in read_drift(Service(deployment.box, deployment.params, plan.target, StandIn()))
    }
    assert found["limits"].status == "pass"
    assert "nofile 4096" in found["limits"].found
