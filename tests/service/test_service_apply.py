"""Install, change, fail, go back and uninstall, in a real systemd."""

import time
from contextlib import ExitStack

import pytest
from boxes import on_each_host, wait_until
from standin_service import UNIT, Deployment, Folder, StandIn, make_params

from runbook import stages
from runbook.errors import BadInput, Blocked, NotHere, NotProved
from runbook.install_service import (
    Proof,
    install,
    installed,
    logs,
    plan_rollback,
    plan_uninstall,
    status,
    take_back,
    uninstall,
)
from runbook.install_service.lock import locked
from runbook.install_service.places import WANTED_BY, Places
from runbook.notebook import Work
from runbook.run import Run

UNIT_FILE = f"/etc/systemd/system/{UNIT}"


@on_each_host
def test_install_change_back_and_gone(deployment: Deployment, tmp_path):
    box = deployment.box
    plan = deployment.plan("--load", "1")
    assert plan.actions == ("daemon-reload", "enable", "start")
    assert box.read(UNIT_FILE) is None

    applied = install(box, plan, Folder(tmp_path))
    assert applied.generation == 1
    assert applied.served_s >= 1
    assert deployment.show("UnitFileState") == "enabled"
    assert deployment.serves() == "none"
    said = (tmp_path / "service/diff.txt").read_text()
    assert "+ExecStart=" in said
    assert "unit: exposure" in said
    assert "+import" not in said
    assert (tmp_path / "service/guard.py").read_text() == plan.target.guard_text
    assert "gate: ready" in (tmp_path / "service/journal.txt").read_text()
    assert (tmp_path / "service/environment").read_text().startswith("PATH=/usr/bin:/bin\n")

    pid = deployment.show("MainPID")
    again = deployment.plan("--load", "1")
    assert again.unchanged
    assert again.diff == ""
    assert "nothing to do" in again.describe()
    assert install(box, again).changed is False
    assert deployment.show("MainPID") == pid

    changed = deployment.plan(configuration="fast", speculation="eagle", env={"X": "1"})
    assert "argument --speculation: 'none' -> 'eagle'" in changed.meaning
    assert "variable X: added, '1'" in changed.meaning
    assert changed.actions == ("daemon-reload", "restart")
    assert install(box, changed).generation == 2
    assert deployment.serves() == "eagle"
    assert installed(box, UNIT).manifest["configuration"] == "fast"

    back = plan_rollback(box, UNIT)
    assert back.generation == 1
    install(box, back)
    assert deployment.serves() == "none"
    shown = status(box, UNIT)
    assert shown.ok
    assert ("configuration", "baseline") in shown.rows()
    assert "stand-in serves" in logs(box, UNIT)
    with pytest.raises(BadInput, match="no earlier generation"):
        plan_rollback(box, UNIT)
    assert install(box, deployment.plan("--load", "1")).changed is False

    planned = plan_uninstall(box, UNIT)
    places, wants = Places(UNIT), f"/etc/systemd/system/{WANTED_BY}.wants"
    assert planned == [
        f"stop and disable {UNIT}",
        f"remove {UNIT_FILE}",
        f"remove {wants}/{UNIT}",
        f"remove {places.boot_file}",
        f"remove {wants}/{places.boot_unit}",
        f"remove /var/lib/golive-runbook/{UNIT}",
        "remove /var/lib/golive-runbook",
    ]
    uninstall(box, UNIT)
    assert deployment.left() == []


@on_each_host
def test_a_broken_configuration_brings_the_last_good_one_back(deployment: Deployment):
    install(deployment.box, deployment.plan())
    with pytest.raises(NotProved) as error:
        install(deployment.box, deployment.plan("--exit", "5", configuration="fast"))
    assert "generation 1 was brought back and serves" in error.value.found
    assert "dying at once" in error.value.do
    assert deployment.serves() == "none"
    assert status(deployment.box, UNIT).ok
    assert installed(deployment.box, UNIT).manifest["configuration"] == "baseline"
    assert deployment.box.list(f"/var/lib/golive-runbook/{UNIT}/generations") == ["1"]
    assert deployment.plan().unchanged


def test_it_comes_back_also_where_its_unit_or_its_generation_was_taken_away(deployment: Deployment):
    box = deployment.box
    install(box, deployment.plan())
    box.remove(UNIT_FILE)
    with pytest.raises(NotProved, match="generation 1 was brought back and serves"):
        install(box, deployment.plan("--exit", "5"))
    assert deployment.serves() == "none"
    assert status(box, UNIT).ok
    box.remove(f"{Places(UNIT).generation(1)}/guard.py")
    with pytest.raises(NotProved, match="brought back and serves"):
        install(box, deployment.plan("--exit", "5"))
    assert deployment.serves() == "none"
    assert deployment.show("UnitFileState") == "enabled"


def test_where_a_proof_is_refuted_the_generation_before_comes_back(
    deployment: Deployment, tmp_path, monkeypatch
):
    box, run = deployment.box, Run.create(deployment.params, tmp_path / "run")
    install(box, deployment.plan(), run)
    assert take_back(box, UNIT) is None, "nothing served before"
    assert deployment.serves() == "none"
    plan = deployment.plan(configuration="fast", speculation="eagle")
    install(box, plan, run)
    refuted = [Proof("burst", "refuted", "3 of 200 failed")]
    monkeypatch.setattr(stages.service_room, "prove", lambda *_: refuted)
    with ExitStack() as scratch:
        work = Work("install_service", run, "run", True, scratch)
        work._host = box
        assert stages.prove_service(work, plan) == refuted
        said = str(stages.proved_verdict(work, refuted))
    assert said.startswith("VERDICT NO")
    assert said.endswith("refuted: burst; generation 1 was brought back and serves")
    assert deployment.serves() == "none"
    assert status(box, UNIT).ok
    assert box.list(f"/var/lib/golive-runbook/{UNIT}/generations") == ["1"]
    assert deployment.plan().unchanged


def test_a_server_that_never_becomes_ready_is_taken_back_in_bounded_time(deployment: Deployment):
    install(deployment.box, deployment.plan())
    params = make_params(deployment.port, start_timeout_s=2.0)
    began = time.monotonic()
    with pytest.raises(NotProved, match="was brought back and serves"):
        install(deployment.box, deployment.plan("--load", "600", "--deaf", params=params))
    assert time.monotonic() - began < 60
    assert deployment.serves() == "none"


def interrupt_after(wanted):
    def step(name):
        if name.startswith(wanted):
            raise KeyboardInterrupt

    return step


@on_each_host
def test_ctrl_c_brings_the_last_good_one_back(deployment: Deployment):
    install(deployment.box, deployment.plan())
    changed = deployment.plan(configuration="fast", speculation="eagle")
    with pytest.raises(KeyboardInterrupt):
        install(deployment.box, changed, step=interrupt_after("restart"))
    assert deployment.serves() == "none"
    assert status(deployment.box, UNIT).ok
    assert deployment.plan().unchanged


def test_a_service_that_did_not_run_before_does_not_run_after_a_failure(deployment: Deployment):
    box = deployment.box
    install(box, deployment.plan())
    box.run("systemctl", "disable", "--now", UNIT)
    with pytest.raises(NotProved, match="as before, it does not run"):
        install(box, deployment.plan("--exit", "5"))
    assert deployment.show("ActiveState") == "inactive"
    assert deployment.show("UnitFileState") == "disabled"
    assert all(change.same for change in deployment.plan().files)


@on_each_host
def test_a_first_install_that_fails_leaves_nothing(deployment: Deployment):
    with pytest.raises(NotProved, match="no earlier generation"):
        install(deployment.box, deployment.plan("--exit", "5"))
    deployment.box.remove("/run/golive-runbook")
    assert deployment.left() == []


class Explains(StandIn):
    def explain_log(self, log, launch=None):
        return f"unit of {launch.argv[-1]} (systemd: {'status=5' in log}): do this"


def test_why_a_first_install_does_not_serve_is_told_by_its_own_journal(deployment: Deployment):
    with pytest.raises(NotProved, match=r"unit of 5 \(systemd: True\): do this"):
        install(deployment.box, deployment.plan("--exit", "5"), engine=Explains())


def test_a_server_that_dies_in_every_start_does_not_loop_for_ever(deployment: Deployment):
    """At boot nobody is there to take it back: systemd must give up by itself."""
    box = deployment.box
    target = deployment.plan("--exit", "5").target
    box.make_dir(target.places.root)
    box.write(target.places.guard(target.guard_text), target.guard_text)
    box.write(UNIT_FILE, target.unit_text)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", UNIT, check=False)
    wait_until(lambda: deployment.show("SubState") == "failed", 60)
    assert deployment.show("ActiveState") == "failed"
    assert deployment.show("NRestarts") == str(deployment.params.service.start_limit_burst)
    assert "Start request repeated too quickly" in logs(box, UNIT)


@on_each_host
def test_a_hand_edit_is_shown_refused_and_kept(deployment: Deployment):
    box = deployment.box
    install(box, deployment.plan())
    edited = box.read(UNIT_FILE).replace(b"Restart=always", b"Restart=no")
    box.write(UNIT_FILE, edited)
    shown = status(box, UNIT)
    assert not shown.ok
    assert any("changed by hand" in text for text in shown.drift)
    plan = deployment.plan()
    assert "drift:" in plan.describe()
    assert "-Restart=no" in plan.diff
    with pytest.raises(Blocked, match="changed by hand"):
        install(box, plan)
    with pytest.raises(Blocked, match="changed by hand"):
        uninstall(box, UNIT)
    assert box.read(UNIT_FILE) == edited
    install(box, plan, overwrite_edits=True)
    root = f"/var/lib/golive-runbook/{UNIT}"
    (backup,) = [name for name in box.list(root) if name.startswith("edited-")]
    assert box.read(f"{root}/{backup}") == edited
    assert status(box, UNIT).ok


def test_a_drop_in_is_never_overwritten(deployment: Deployment):
    box = deployment.box
    install(box, deployment.plan())
    box.make_dir(f"{UNIT_FILE}.d")
    box.write(f"{UNIT_FILE}.d/x.conf", "[Service]\nEnvironment=A=1\n")
    with pytest.raises(Blocked, match="drop-in"):
        install(box, deployment.plan("--load", "0.1"), overwrite_edits=True)
    assert box.exists(f"{UNIT_FILE}.d/x.conf")


def test_a_faulty_unit_is_refused_before_anything_is_written(deployment: Deployment):
    plan = deployment.plan(env={"PATH": "/usr/local/cuda/bin:$PATH"})
    assert "fail: unit: environment" in plan.describe()
    with pytest.raises(Blocked, match="expands nothing"):
        install(deployment.box, plan)
    assert not deployment.box.exists(UNIT_FILE)
    assert not deployment.box.exists("/var/lib/golive-runbook")


def test_a_foreign_unit_is_refused_wherever_it_lies(deployment: Deployment):
    box = deployment.box
    box.write(UNIT_FILE, "[Service]\nExecStart=/bin/sleep 100\n")
    with pytest.raises(Blocked, match="somebody else"):
        deployment.plan()
    with pytest.raises(Blocked, match="somebody else"):
        uninstall(box, UNIT)
    box.remove(UNIT_FILE)
    box.make_dir("/run/systemd/system")
    box.write(f"/run/systemd/system/{UNIT}", "[Service]\nExecStart=/bin/sleep 100\n")
    box.run("systemctl", "daemon-reload")
    try:
        with pytest.raises(Blocked, match="/run/systemd/system"):
            deployment.plan()
    finally:
        box.remove(f"/run/systemd/system/{UNIT}")
        box.run("systemctl", "daemon-reload")


def test_what_is_not_installed_is_not_uninstalled(deployment: Deployment):
    for verb in (plan_uninstall, uninstall):
        with pytest.raises(NotHere, match="not installed") as error:
            verb(deployment.box, UNIT)
        assert error.value.do == "runbook service install PARAMS"
    assert not deployment.box.exists("/run/golive-runbook")


def test_what_a_cut_install_left_is_uninstalled(deployment: Deployment):
    box, root = deployment.box, f"/var/lib/golive-runbook/{UNIT}"
    box.make_dir(root)
    box.make_dir("/var/lib/golive-runbook/other.service")
    assert plan_uninstall(box, UNIT)[1:] == [f"remove {root}"]
    uninstall(box, UNIT)
    assert box.list("/var/lib/golive-runbook") == ["other.service"]
    box.remove("/var/lib/golive-runbook/other.service")  # so does an uninstall that was cut
    assert plan_uninstall(box, UNIT)[1:] == ["remove /var/lib/golive-runbook"]
    uninstall(box, UNIT)
    assert deployment.left() == []


@on_each_host
def test_one_at_a_time_and_a_dead_holder_loses_it(deployment: Deployment):
    plan = deployment.plan()
    path = f"/run/golive-runbook/{UNIT}.lock"
    with locked(deployment.box, UNIT), pytest.raises(Blocked, match="one at a time"):
        install(deployment.box, plan)
    assert not deployment.box.exists(path)
    with locked(deployment.box, UNIT):
        held = deployment.box.read(path).decode()
    pid = held.split('"')[3].split(":")[0]
    deployment.box.write(path, held.replace(f'"{pid}:', '"4194303:'))
    with locked(deployment.box, UNIT):
        pass
    deployment.box.write(path, "somebody elsewhere")
    with pytest.raises(Blocked, match="somebody elsewhere"):
        install(deployment.box, plan)


def test_a_plan_made_before_somebody_else_changed_the_host_is_refused(deployment: Deployment):
    stale = deployment.plan(speculation="eagle")
    install(deployment.box, deployment.plan())
    with pytest.raises(Blocked, match="since the plan was made"):
        install(deployment.box, stale)


def test_a_stopped_service_is_started_and_an_unchanged_one_is_not_rewritten(deployment: Deployment):
    install(deployment.box, deployment.plan())
    deployment.box.run("systemctl", "disable", "--now", UNIT)
    plan = deployment.plan()
    assert plan.actions == ("enable", "start")
    assert not plan.is_new
    assert install(deployment.box, plan).generation == 1
    assert status(deployment.box, UNIT).ok
