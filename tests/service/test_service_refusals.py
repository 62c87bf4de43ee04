"""What is not the host of the service is never changed, and what cannot be read is said plainly."""

import json
import os
import sys
from pathlib import Path

import pytest
from standin_service import UNIT, Folder, StandIn, make_measured, make_params

from runbook.errors import NotHere, RunbookError
from runbook.hosts import LocalHost
from runbook.hosts.local import WithoutSystemd
from runbook.install_service import (
    facts,
    install,
    installed,
    lock,
    logs,
    places,
    plan_rollback,
    plan_service,
    plan_uninstall,
    prove,
    status,
    undo,
    uninstall,
)
from runbook.install_service.lock import locked
from runbook.install_service.observe import PROCESS_PROOFS

REASON = "no box can be made here: a test"


class Recorder(WithoutSystemd):
    """Remembers what was executed on this machine."""

    def __init__(self):
        super().__init__(REASON)
        self.executed = []

    def execute(self, argv, stdin, timeout_s):
        self.executed.append(tuple(argv))
        return super().execute(argv, stdin, timeout_s)


@pytest.fixture
def bare_machine(tmp_path, monkeypatch):
    """Folders that stand for those of the real machine, with a service of the same name."""
    for name in ("UNITS", "STATE", "LOCKS"):
        folder = tmp_path / name
        folder.mkdir()
        for module in (places, undo, facts, lock):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, str(folder))
    (tmp_path / "UNITS" / UNIT).write_text("# managed\n")
    (tmp_path / "STATE" / UNIT).mkdir()
    return tmp_path


@pytest.mark.parametrize("verb", [plan_uninstall, uninstall, plan_rollback, logs])
def test_the_machine_in_place_of_a_box_is_left_alone(bare_machine, verb):
    before = sorted(bare_machine.rglob("*"))
    host = Recorder()
    with pytest.raises(NotHere) as error:
        verb(host, UNIT)
    assert error.value.found == REASON
    assert sorted(bare_machine.rglob("*")) == before
    assert host.executed == []


def test_the_machine_in_place_of_a_box_tells_nothing_of_its_own_service(bare_machine):
    host = Recorder()
    shown = status(host, UNIT)
    assert (shown.ok, shown.facts.files, host.executed) == (False, {}, [])
    assert ("systemd", REASON) in shown.rows()
    with pytest.raises(NotHere, match=REASON):
        installed(host, UNIT)
    assert host.executed == []


def test_nothing_is_installed_on_the_machine_in_place_of_a_box(tmp_path):
    host = Recorder()
    plan = plan_service(host, make_params(1), "baseline", make_measured(1), "run")
    host.executed.clear()
    with pytest.raises(NotHere, match=REASON):
        install(host, plan, Folder(tmp_path))
    assert host.executed == []


class Down(LocalHost):
    """A host on which every command fails, as on one that has just gone down."""

    def execute(self, argv, stdin, timeout_s):
        return super().execute(("/absent/program", *argv), stdin, timeout_s)

    def why_no_systemd(self):
        return None


def test_a_host_that_fails_refutes_the_proofs_and_loses_none(tmp_path):
    params = make_params(1, start_timeout_s=0.5)
    plan = plan_service(Recorder(), params, "baseline", make_measured(1), "run")
    told = []
    proofs = prove(Down(), params, plan.target, Folder(tmp_path), told.append, StandIn())
    assert told == proofs
    names = [proof.name for proof in proofs]
    assert names[1:12] == ["enabled", "active", "files", *PROCESS_PROOFS]
    assert len(names) == len(set(names)) == 24
    assert {proof.status for proof in proofs[1:12]} == {"refuted"}
    assert "/absent/program" in proofs[1].evidence
    stored = json.loads((tmp_path / "service/proofs.json").read_text())
    assert [proof["name"] for proof in stored] == names
    assert "cannot be read" in (tmp_path / "service/journal.txt").read_text()


def test_a_host_that_goes_down_between_the_proofs_of_a_process(deployment, tmp_path):
    plan = deployment.plan()
    install(deployment.box, plan)

    def cut_off(proof):
        if proof.name == "listener":
            deployment.box.close()

    try:
        proofs = prove(
            deployment.box, deployment.params, plan.target, Folder(tmp_path), cut_off, StandIn()
        )
    finally:
        deployment.box.open()
    found = {proof.name: proof for proof in proofs}
    assert len(found) == 24
    assert found["arguments"].status == "proved"
    assert found["working directory"].status == found["limits"].status == "refuted"
    assert "not booted" in found["working directory"].evidence
    assert (tmp_path / "service/proofs.json").exists()


# --- who may not -----------------------------------------------------------------------------

NOBODY = 65534


class SystemPython(LocalHost):
    python = "/usr/bin/python3"


def as_nobody(work):
    """What ``work`` raises when it is done by a user without rights, as text."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
            said = "nothing was raised"
        except RunbookError as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException as error:
            said = repr(error)
        os.write(tell, said.encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(told) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def open_folder(bare_machine):
    """Like ``bare_machine``, with parents that everybody may enter."""
    if os.geteuid() != 0 or not Path(SystemPython.python).exists():
        pytest.skip("needs root, to be somebody else, and a Python of the system")
    for folder in (bare_machine, *bare_machine.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o005)
    return bare_machine


def test_a_manifest_for_roots_eyes_is_said_to_need_root(open_folder):
    manifest = open_folder / "STATE" / UNIT / "manifest.json"
    manifest.write_text("{}")
    manifest.chmod(0o600)
    said = as_nobody(lambda: facts.read_facts(SystemPython(), UNIT))
    assert said == (
        f"HostFailed: reading the files of {UNIT} on local: {manifest}: Permission denied\n"
        "  wanted: root\n  next: run the runbook as root (sudo)"
    )


def test_a_lock_that_may_not_be_written_is_said_to_need_root(open_folder):
    def hold():
        with locked(SystemPython(), UNIT):
            pass

    said = as_nobody(hold)
    guard = open_folder / "LOCKS" / "guard"
    assert said.startswith(f"HostFailed: locking the unit on local: {guard}: Permission denied\n")
    assert "as root" in said
    assert "Traceback" not in said


ASK = """
import os, sys
from runbook.hosts import LocalHost
os.setuid(int(sys.argv[1]))
print(LocalHost().why_no_systemd())
"""


def test_a_user_who_may_not_manage_units_is_told_so(box):
    clone = str(Path(__file__).parents[2])
    script = f"import sys; sys.path.insert(0, {clone!r})\n{ASK}"
    assert box.run(sys.executable, "-c", script, "0").out == "None\n"
    said = box.run(sys.executable, "-c", script, str(NOBODY)).out
    assert said == "managing units needs root: run as root (sudo), or set host.sudo: true\n"
