"""One service gives way to another: planned, measured, and undone where the new one fails."""

import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from boxes import on_each_host, wait_until
from standin_service import SERVER, UNIT, Folder, StandIn, make_params
from test_service_sudden_death import killed_after

from runbook import stages
from runbook.errors import Blocked, NotProved
from runbook.install_service import install, plan_uninstall, status, take_back, uninstall
from runbook.launch import systemd
from runbook.launch.resting import see
from runbook.notebook import Work
from runbook.preview import as_text, preview
from runbook.run import Run

OLD = "old.service"
STEPS = ("note what gives way", "enable", f"stop {OLD}", "start", f"disable {OLD}")


@pytest.fixture
def handover(deployment):
    """The stand-in's deployment, and a unit of somebody else that serves on its port."""
    box = deployment.box
    command = f"{sys.executable} {SERVER} {deployment.port} --speculation old"
    unit = f"[Service]\nExecStart={command}\n[Install]\nWantedBy=multi-user.target\n"
    box.write(f"/etc/systemd/system/{OLD}", unit)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "enable", "--now", OLD)
    wait_until(lambda: see(box, OLD).ports == (deployment.port,), 10)
    deployment.params = make_params(deployment.port, replaces=[OLD])
    yield deployment
    box.run("systemctl", "disable", "--now", OLD, check=False)
    box.remove(f"/etc/systemd/system/{OLD}")


def test_the_older_service_gives_way_and_the_downtime_is_measured(handover, tmp_path):
    plan = handover.plan("--load", "1")
    said = plan.describe()
    assert f"stop and disable {OLD}" in said
    assert f"{OLD} gives way" in said
    assert "nobody answers for about 1 s (its slowest measured load)" in said
    assert handover.serves() == "old"
    steps = []
    applied = install(handover.box, plan, Folder(tmp_path), step=steps.append)
    assert tuple(step for step in steps if step in STEPS) == STEPS
    assert handover.serves() == "none"
    assert 1 < applied.served_s <= applied.downtime_s
    stored = json.loads((tmp_path / "service/applied.json").read_text())
    assert stored["downtime_s"] == applied.downtime_s
    old = see(handover.box, OLD)
    assert (old.active, old.enabled) == (False, False)
    assert handover.plan("--load", "1").unchanged
    assert ("gave way", OLD) in status(handover.box, UNIT).rows()
    assert f"enable and start {OLD} again" in plan_uninstall(handover.box, UNIT)
    uninstall(handover.box, UNIT)
    assert handover.serves() == "old"
    old = see(handover.box, OLD)
    assert (old.active, old.enabled, old.answers) == (True, True, True)
    assert handover.left() == []


def test_nothing_rests_for_a_benchmark_without_apply(handover, tmp_path):
    """What would rest, and for how long, is said before; with it, the older one comes back."""
    box, params = handover.box, handover.params
    assert f"With --apply, {OLD} rests while it measures" in as_text(preview(params))
    with ExitStack() as scratch:
        work = Work("benchmark", Run.create(params, tmp_path / "run"), "run", False, scratch)
        work._host = box
        assert f"{OLD} rests (with `--apply` only)" in stages.cost(work).text
        said = rf"{OLD} serves on this host .* for about \d+:\d\d;"
        with pytest.raises(Blocked, match=f"(?s){said}"), stages._others_resting(work):
            pass
        assert handover.serves() == "old"
        work.apply = True
        with stages._others_resting(work):
            assert not see(box, OLD).active
        assert handover.serves() == "old"


def test_where_a_proof_is_refuted_the_older_one_comes_back(handover):
    install(handover.box, handover.plan())
    assert take_back(handover.box, UNIT).endswith(f"{OLD} was brought back and answers")
    assert handover.serves() == "old"
    assert see(handover.box, OLD).enabled
    assert handover.show("LoadState") == "not-found"


def test_what_gave_way_and_is_gone_since_is_said_and_holds_up_nothing(handover):
    install(handover.box, handover.plan())
    handover.box.remove(f"/etc/systemd/system/{OLD}")
    systemd.daemon_reload(handover.box)
    said = f"{OLD} gave way to it and is gone: nothing is brought back"
    assert said in plan_uninstall(handover.box, UNIT)
    uninstall(handover.box, UNIT)
    assert handover.left() == []


@on_each_host
def test_where_the_new_one_does_not_serve_the_older_one_comes_back(handover):
    with pytest.raises(NotProved, match=f"{OLD} was brought back and answers"):
        install(handover.box, handover.plan("--exit", "5"))
    assert handover.serves() == "old"
    assert see(handover.box, OLD).enabled
    assert handover.show("LoadState") == "not-found"


@pytest.mark.parametrize("step", STEPS)
def test_a_box_that_dies_in_the_middle_of_it_boots_with_a_service(handover, step):
    killed_after(handover.box, handover.plan(), step)
    handover.box.cut()
    StandIn().wait_ready(f"http://127.0.0.1:{handover.port}", lambda: True, 30)
    assert handover.serves() in ("old", "none")


RUNNER = """
import sys, time
sys.path[:0] = sys.argv[1].split(":")
from standin_service import make_measured, make_params
from runbook.hosts import LocalHost
from runbook.install_service import install, plan_service
port = int(sys.argv[2])
host = LocalHost()
params = make_params(port, replaces=["old.service"])
plan = plan_service(host, params, "baseline", make_measured(port), "test-run")
def step(name):
    if name == "stop old.service":
        print("handing over", flush=True)
        time.sleep(600)
install(host, plan, step=step)
"""


def test_after_kill_9_of_the_runner_in_the_middle_the_older_one_comes_back(handover):
    box = handover.box
    tests = Path(SERVER).parents[1]
    paths = f"{tests.parent}:{tests}:{tests / 'service'}"
    code = [sys.executable, "-u", "-c", RUNNER, paths, str(handover.port)]
    box.run("systemd-run", "--unit=runner", "--collect", "--property=KillMode=process", *code)
    wait_until(
        lambda: ": handing over\n" in box.journal("runner.service"),
        20,
        lambda: box.journal("runner.service"),
    )
    runner = box.host_pid(int(systemd.show(box, "runner.service", "MainPID")["MainPID"]))
    assert not see(box, OLD).active
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: see(box, OLD).ports == (handover.port,), 15)
    assert handover.serves() == "old"
    assert handover.show("ActiveState") == "inactive"
    box.run("systemctl", "disable", UNIT, check=False)
