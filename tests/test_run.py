"""The run folder: atomic artefacts, a to-do list that tells the truth, one worker at a time."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from test_params import MINIMAL

from runbook import atomic, params
from runbook.errors import BadInput, NotHere, RunBusy
from runbook.run import RUNNER_PID, STAGES, STEPS, Run


@pytest.fixture
def run(tmp_path):
    return Run.create(params.from_values(MINIMAL, "x"), tmp_path / "run")


def test_a_new_run_has_everything_to_do(run):
    assert [step.name for step in run.todo()] == list(STEPS)
    assert {step.status for step in run.todo()} == {"pending"}
    assert Run.open(run.path).params == run.params
    assert (run.path.stat().st_mode & 0o077) == 0
    assert ((run.path / "params.yaml").stat().st_mode & 0o077) == 0


def test_a_folder_in_use_is_no_new_run(run, tmp_path):
    with pytest.raises(BadInput, match="resume"):
        Run.create(run.params, run.path)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(BadInput):
        Run.create(run.params, file / "run")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"steps": 1}', '{"steps": [{"x": 1}]}', '{"steps": []}', "[" * 9999]
)
def test_a_damaged_to_do_list_is_said(run, content):
    (run.path / "run.json").write_text(content)
    with pytest.raises(BadInput, match=r"run\.json"):
        run.todo()


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", [1]), ("name", "other"), ("status", -1.5), ("started", "noon"), ("reason", None)],
)
def test_a_damaged_step_is_said(run, field, value):
    stored = run.read_json("run.json")
    stored["steps"][2][field] = value
    run.write_json("run.json", stored)
    with pytest.raises(BadInput, match=r"run\.json is no to-do list"):
        run.todo()


@pytest.mark.parametrize("content", ["[]", '"x"', "1", "[" * 9999, "\xff"])
def test_an_artefact_of_another_kind_is_said(run, content):
    (run.path / "stack.json").write_text(content, "latin-1")
    with pytest.raises(BadInput, match=r"stack\.json cannot be read"):
        run.read_json("stack.json")


def test_steps_begin_and_end(run):
    run.begin("benchmark")
    assert run.step("benchmark").status == "in_progress"
    run.finish("benchmark", "failed", "server died", 1)
    step = run.step("benchmark")
    assert (step.status, step.reason, step.exit_code) == ("failed", "server died", 1)
    assert step.started is not None
    assert step.ended is not None
    run.reset(["benchmark"])
    assert run.step("benchmark").status == "pending"
    assert not run.finished
    for name in STEPS:
        run.finish(name, "completed")
    assert run.finished


def test_in_progress_of_a_dead_process_reads_interrupted(run):
    opened = f"Run.open(pathlib.Path({str(run.path)!r}))"
    code = f"from runbook.run import Run; import pathlib; {opened}.begin('benchmark')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert json.loads((run.path / "run.json").read_text())["steps"][1]["status"] == "in_progress"
    assert run.step("benchmark").status == "interrupted"


def test_one_worker_at_a_time(run):
    script = textwrap.dedent(f"""
        import pathlib, sys
        from runbook.run import Run
        with Run.open(pathlib.Path({str(run.path)!r})).locked():
            print("locked", flush=True)
            sys.stdin.read()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(RunBusy, match=str(other.pid)), run.locked():
            pass
        os.environ[RUNNER_PID] = str(other.pid)
        try:
            with run.locked():
                pass
        finally:
            del os.environ[RUNNER_PID]
        other.kill()
    with run.locked():
        pass


def test_the_newest_of_these_parameters(tmp_path, monkeypatch):
    monkeypatch.setattr("runbook.run.outputs_root", lambda: tmp_path)
    mini = params.from_values(MINIMAL, "x")
    with pytest.raises(NotHere, match="runbook run"):
        Run.newest(mini)
    old = Run.create(mini, tmp_path / "mini-20260101T000000Z")
    new = Run.create(mini, tmp_path / "mini-20260102T000000Z")
    Run.create(
        params.from_values({**MINIMAL, "workload": {"seed": 9}}, "x"),
        tmp_path / "mini-20260103T000000Z",
    )
    (tmp_path / "mini-20260104T000000Z").mkdir()
    assert Run.newest(mini).path == new.path
    for name in STEPS:
        new.finish(name, "completed")
    assert Run.newest(mini).path == new.path
    assert Run.newest(mini, unfinished=True).path == old.path
    old.write("decision.json", "{}")
    assert Run.newest(mini, holding="decision.json").path == old.path
    assert Run.newest(mini, holding="nothing.json").path == new.path


def test_the_newest_is_found_under_a_name_of_its_own_too(tmp_path, monkeypatch):
    monkeypatch.setattr("runbook.run.outputs_root", lambda: tmp_path)
    mini = params.from_values(MINIMAL, "x")
    Run.create(mini, tmp_path / "mini-20260101T000000Z")
    named = Run.create(mini, tmp_path / "first try")
    assert Run.newest(mini, unfinished=True).path == tmp_path / "mini-20260101T000000Z"
    stored = named.read_json("run.json")
    named.write_json("run.json", {**stored, "created": "2100-01-01T00:00:00Z"})
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    assert Run.newest(mini, unfinished=True).path == named.path


def test_stages_are_in_the_order_of_the_notebooks():
    assert STAGES == ("verify_stack", "benchmark", "choose", "install_service", "publish")


def test_an_atomic_write_leaves_old_or_new(tmp_path):
    path = tmp_path / "deep" / "file.json"
    atomic.write(path, "one")
    atomic.write(path, b"two", 0o644)
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]
    with pytest.raises(UnicodeEncodeError):
        atomic.write(path, "\udc80")
    assert path.read_text() == "two"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]
