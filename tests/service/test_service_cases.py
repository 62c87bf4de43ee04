"""Servers that go wrong in the ways that others have reported, each in a real systemd."""

import time

import pytest
from boxes import wait_until
from standin_service import UNIT, StandIn, make_params

from runbook.errors import NotProved
from runbook.hosts.base import Host
from runbook.install_service import Service, install, logs, read_drift, status, uninstall
from runbook.install_service.monitoring import render_liveness
from runbook.install_service.observe import prove_burst
from runbook.launch.spec import MANAGER_SETS

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
    with_values(deployment, server={"timeouts": {"start_s": 20, "stop_s": 3, "request_s": 0.3}})
    proof = prove_burst(Service(deployment.box, deployment.params, plan.target, StandIn()))
    assert proof.status == "refuted"
    assert "of 200 failed" in proof.evidence


def watch_over(deployment, plan):
    """The liveness check as it is handed over, with less patience; its timer is not started."""
    box = deployment.box
    box.write(plan.target.places.monitor, plan.target.guard_text)
    for name, text in render_liveness(deployment.params, plan.target, []).items():
        box.write(f"/run/systemd/system/{name}", text.replace("--deadline 60", "--deadline 0.5"))
    box.run("systemctl", "daemon-reload")


def look_once(deployment):
    """The exit code of one check, and what it said."""
    box, alive = deployment.box, "standin-alive.service"
    box.run("systemctl", "start", alive, timeout_s=30, check=False)
    said = logs(box, alive, lines=20).rpartition("alive: ")[2]
    return int(box.run("systemctl", "show", "-P", "ExecMainStatus", alive).out), said


def test_one_that_dies_inside_while_it_serves_is_restarted_by_the_liveness_check(deployment):
    """Not for one late answer: for two, with counters that stand still between them."""
    box = deployment.box
    plan = deployment.plan("--hang-after", "1")
    install(box, plan)
    before = deployment.show("MainPID")
    watch_over(deployment, plan)
    box.run("systemctl", "start", "standin-alive.timer")
    assert "standin-alive.timer" in box.run("systemctl", "list-timers", "--no-legend").out
    box.run("systemctl", "stop", "standin-alive.timer")
    code, said = look_once(deployment)
    assert (code, deployment.show("MainPID")) == (11, before), said
    assert "first strike" in said
    code, said = look_once(deployment)
    assert code == 0 and "second strike" in said and "llamacpp:n_decode_total" in said
    wait_until(lambda: deployment.show("MainPID") not in ("0", before), 20)
    wait_until(lambda: deployment.show("ActiveState") == "active", 20)
    assert deployment.serves() == "none"
    before = deployment.show("MainPID")
    box.remove(plan.target.places.monitor)
    assert box.run("systemctl", "start", "standin-alive.service", check=False).code
    assert deployment.show("MainPID") == before, "nobody is restarted for a check that cannot ask"
    box.write(plan.target.places.monitor, plan.target.guard_text)
    box.run("systemctl", "stop", UNIT)
    box.run("systemctl", "start", "standin-alive.service")
    assert deployment.show("ActiveState") == "inactive", "a stopped service stays stopped"


def test_a_full_queue_and_counters_that_are_not_told_restart_nobody(deployment):
    box, full = deployment.box, "/run/standin-full"
    plan = deployment.plan("--full-while", full)
    install(box, plan)
    before = deployment.show("MainPID")
    watch_over(deployment, plan)
    box.write(full, "")
    for _ in range(3):
        code, said = look_once(deployment)
        assert code == 0 and "busy" in said
    box.remove(full)
    assert look_once(deployment)[0] == 0
    assert deployment.show("MainPID") == before
    plan = deployment.plan("--hang-after", "1", "--no-metrics")
    install(box, plan)
    before = deployment.show("MainPID")
    for _ in range(3):
        code, said = look_once(deployment)
        assert code == 11 and "proves nothing" in said
    assert deployment.show("MainPID") == before


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
        assert box.run("systemctl", "start", UNIT, check=False).code == 1
        assert deployment.show("Result") in ("exit-code", "start-limit-hit"), "not waited out"
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


def environ_of(box, pid):
    words = box.run("cat", f"/proc/{pid}/environ").out.split("\0")
    return dict(word.split("=", 1) for word in words if word)


def test_the_command_in_the_document_starts_what_the_unit_starts(deployment):
    """One launch, two renderings: a shell and systemd give the process the same words."""
    box, nasty = deployment.box, {"NASTY": "a b$c%d\"'\\;#", "EMPTY": "", "JSON": '{"a": [1, "é"]}'}
    plan = deployment.plan("-x", "$HOME", "a  b ", "%h", env=nasty)
    install(box, plan)
    main = deployment.show("MainPID")
    by_unit = box.run("cat", f"/proc/{main}/cmdline").out, environ_of(box, main)
    box.run("systemctl", "stop", UNIT)
    spec = deployment.measured("-x", "$HOME", "a  b ", "%h", env=nasty).spec
    box.write("/run/by-hand", spec.shell_command())
    box.run("systemd-run", "--quiet", "--collect", "--unit=by-hand", "sh", "/run/by-hand")
    try:
        StandIn().wait_ready(f"http://127.0.0.1:{deployment.port}", lambda: True, 20)
        pid = box.run("pgrep", "-f", f"standin_server.py {deployment.port}").out.strip()
        by_hand = box.run("cat", f"/proc/{pid}/cmdline").out, environ_of(box, pid)
    finally:
        box.run("systemctl", "stop", "by-hand")
    assert by_hand == (by_unit[0], spec.env)
    assert {n: v for n, v in by_unit[1].items() if n not in MANAGER_SETS} == spec.env


def test_no_line_of_a_chatty_server_is_dropped_and_the_guard_is_still_heard(deployment):
    """systemd's default drops all beyond 10,000 lines in 30 s."""
    install(deployment.box, deployment.plan("--chatter", "12000"))
    journal = logs(deployment.box, UNIT, lines=None)
    assert journal.count(": chatter ") == 12000
    assert "uppressed" not in journal
    said = status(deployment.box, UNIT).guard
    assert any(" good, " in line for line in said)
    time.sleep(2)  # what looks like its words is none of them once the unit is active
    enter = f"echo $$ >/sys/fs/cgroup{deployment.show('ControlGroup')}/cgroup.procs"
    said_by_it = "echo 'guard: fail: model: gone'; journalctl --sync"  # it lives until it is heard
    forged = f'exec systemd-cat sh -c "{said_by_it}"'
    deployment.box.run("sh", "-c", f"{enter}; {forged}")
    assert "guard: fail: model: gone" in logs(deployment.box, UNIT)
    assert status(deployment.box, UNIT).guard == said
    uninstall(deployment.box, UNIT)
    absent = dict(status(deployment.box, UNIT).rows())
    assert absent[UNIT] == "not installed"
    assert absent["next"].endswith("runbook service install PARAMS")


def test_a_server_that_is_slow_is_given_the_time_that_was_measured(deployment):
    """Not systemd's 90 s and not a guess: three times the slowest load, and it is waited for."""
    plan = deployment.plan("--load", "2")
    applied = install(deployment.box, plan)
    assert 2 <= applied.served_s < 20
    assert deployment.show("TimeoutStartUSec") != "1min 30s"
    assert "measured" in plan.target.manifest["start_timeout_origin"]
