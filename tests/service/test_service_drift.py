"""The guard and drift on a real service: what changes is seen, and stops a start where it must."""

import dataclasses
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from boxes import on_each_host
from standin_service import SERVER, UNIT, Deployment, StandIn, make_params

from runbook import streams
from runbook.checks import Check
from runbook.errors import BadInput, NotProved
from runbook.install_service import (
    Service,
    drifted,
    install,
    logs,
    plan_rollback,
    plan_service,
    read_drift,
    status,
)
from runbook.launch.lint import lint
from runbook.probe.ask import Questions, ask_serving
from runbook.verbs import drifting
from runbook.verbs.drifting import as_text

MODEL = "/opt/model.bin"
SITE = "/opt/site/sitecustomize.py"


@pytest.fixture
def guarded(deployment: Deployment):
    """A stand-in service with a model, a sitecustomize, and what was measured of both."""
    box = deployment.box
    box.write(MODEL, b"weights")
    box.make_dir("/opt/site")
    box.write(SITE, "import os\n")
    server = deployment.params.server.model_copy(update={"model": MODEL})
    deployment.params = deployment.params.model_copy(update={"server": server})
    measured = deployment.measured(env={"PYTHONPATH": "/opt/site"})
    questions = Questions(("pytest",), (MODEL,), 1000, ("/",))
    facts = ask_serving(box, measured.spec, questions).facts
    deployment.known = dataclasses.replace(measured, facts=facts)
    return deployment


def plan(guarded, configuration="baseline"):
    return plan_service(guarded.box, guarded.params, configuration, guarded.known, "test-run")


def drift(guarded):
    made = plan(guarded)
    service = Service(guarded.box, guarded.params, made.target, StandIn())
    return read_drift(service, guarded.known)


def names(checks):
    return {check.name for check in drifted(checks)}


@on_each_host
def test_a_service_as_measured_has_no_drift_and_each_change_is_named(guarded):
    box = guarded.box
    made = plan(guarded)
    install(box, made)
    assert "guard: 7 good, 0 not, 6 not measured" in logs(box, UNIT)
    assert status(box, UNIT).ok
    assert any("7 good" in said for said in status(box, UNIT).guard)
    first = drift(guarded)
    assert drifted(first) == []
    assert {"measurement", "files", "arguments", "model", "python"} <= {c.name for c in first}

    box.write(MODEL, b"WEIGHTS")
    box.write(SITE, "import sys\n")
    box.make_dir(f"/etc/systemd/system/{UNIT}.d")
    box.write(f"/etc/systemd/system/{UNIT}.d/x.conf", "[Service]\nNice=1\n")
    found = drift(guarded)
    assert names(found) == {"files", "model", "sitecustomize"}
    [site] = [check for check in found if check.name == "sitecustomize"]
    assert SITE in site.found
    assert site.found != site.wanted

    box.remove(f"/etc/systemd/system/{UNIT}.d")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", UNIT, check=False)
    said = status(box, UNIT).guard
    assert any(line.startswith("fail: model: 7 bytes") for line in said)
    assert guarded.show("ActiveState") != "active"
    assert "active" in names(drift(guarded))


def test_a_watch_looks_again_until_there_is_drift(monkeypatch):
    looks = [[Check("files", "pass", "as installed")], [Check("files", "fail", "x", "y", "z")]]
    said = []
    monkeypatch.setattr(drifting, "look", lambda work: looks.pop(0))
    work = SimpleNamespace(params=make_params(1))
    assert drifting.watch(work, 0.01, said.append, as_json=False) == 1
    assert said[0] == f"VERDICT ok: {UNIT}: 1 as measured, 0 drifted, 0 unknown"
    assert said[1].startswith("drift: files: x; wanted: y\n  next: z\nVERDICT NO")
    looks += [[Check("files", "pass", "as installed")]]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread:
        monkeypatch.setattr(sys, "stdout", streams.patient(unread))
        assert drifting.watch(work, 60, print, as_json=False) == 0
        monkeypatch.undo()
    with pytest.raises(BadInput, match="--watch 0"):
        drifting.watch(work, 0, said.append, as_json=False)


BROKEN = """[Service]
ExecStart=-bin/server --api-key=k $HOME
Environment=A=$B
Environment=A=1
User=nobody-here
WorkingDirectory=/absent
LoadCredential=k:/absent
LimitMEMLOK=1
"""


def test_whatever_is_not_as_it_should_be_says_what_was_found_wanted_and_what_to_do(guarded):
    box = guarded.box
    made = plan(guarded)
    install(box, made)
    running = drift(guarded)
    box.run("systemctl", "disable", "--now", UNIT)
    box.remove(f"/etc/systemd/system/{UNIT}")
    box.write(MODEL, b"WEIGHTS")
    service = Service(box, guarded.params, made.target, StandIn())
    stopped = read_drift(service)
    linted = [*lint(BROKEN, box, UNIT), *lint("[Service]\nEnvironment='A=1\n")]
    linted += lint("[Service]\nExecStart=/bin/true\n", box, UNIT)
    others = [one for one in (*running, *stopped, *linted) if one.status != "pass"]
    assert {one.status for one in others} >= {"fail", "unknown", "skipped", "warn"}
    rules = ("environment", "secrets", "command", "user", "directory", "files", "verify", "syntax")
    assert {f"unit: {rule}" for rule in rules} <= {one.name for one in others}
    assert [one for one in others if not (one.found and one.wanted and one.fix)] == []
    said = as_text(stopped, UNIT)
    gone = (
        "arguments, environment, worker environment, working directory, interpreter, user, limits"
    )
    assert f"drift: {gone}: no process runs; wanted: " in said
    told = {one.fix for one in stopped if one.status in ("fail", "unknown", "warn")}
    assert said.count("\n  next: ") == len(told) > 3


def test_a_level_of_warn_lets_it_start_and_says_so(guarded):
    levels = guarded.params.service.guard.model_copy(update={"model": "warn"})
    service = guarded.params.service.model_copy(update={"guard": levels})
    guarded.params = guarded.params.model_copy(update={"service": service})
    guarded.box.write(MODEL, b"WEIGHTS")
    install(guarded.box, plan(guarded))
    shown = status(guarded.box, UNIT)
    assert any(line.startswith("warn: model") for line in shown.guard)
    assert ("guard", shown.guard[0]) in shown.rows()
    found = drift(guarded)
    assert "model" in names(found)
    [warned] = [check for check in found if check.name == "guard at the last start"]
    assert (warned.status, warned.found[:14]) == ("warn", "model: 7 bytes")
    assert "warned: guard at the last start: model: 7 bytes" in as_text(found, UNIT)


def test_who_holds_the_port_is_named_and_the_last_good_service_comes_back(guarded):
    box = guarded.box
    install(box, plan(guarded))
    box.run("systemctl", "stop", UNIT)
    command = [sys.executable, SERVER, str(guarded.port)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        other.stdout.readline()
        guarded.known = dataclasses.replace(guarded.known, load_s=(0.9,), facts={})
        with pytest.raises(NotProved) as error:
            install(box, plan(guarded, "fast"))
        assert "guard: fail: port: held by " in error.value.do
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_an_older_generation_comes_back_with_its_own_guard(guarded):
    box = guarded.box
    install(box, plan(guarded))
    before = plan(guarded).target.beside
    box.write(MODEL, b"other weights")
    facts = {**guarded.known.facts}
    facts["files"] = {MODEL: {**facts["files"][MODEL]}}
    questions = Questions(("pytest",), (MODEL,), 1000, ("/",))
    facts = ask_serving(box, guarded.known.spec, questions).facts
    old, guarded.known = guarded.known, dataclasses.replace(guarded.known, facts=facts)
    assert install(box, plan(guarded)).generation == 2
    with pytest.raises(NotProved, match="generation 2 was brought back and serves"):
        install(box, plan_rollback(box, UNIT))
    guarded.known = old
    box.write(MODEL, b"weights")
    guarded.box.run("touch", "-r", "/opt/site", MODEL)
    install(box, plan_rollback(box, UNIT))
    assert all(box.exists(path) for path in before)
