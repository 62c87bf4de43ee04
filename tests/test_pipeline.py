"""Which stages are executed, and what may not begin before its time."""

import re
import subprocess
import sys

import nbformat
import papermill
import pytest
from nbclient.exceptions import CellTimeoutError
from nbformat.v4 import new_code_cell, new_notebook
from test_params import MINIMAL

from runbook import benchmark, params, pipeline
from runbook.errors import BadInput
from runbook.publish import document
from runbook.run import NOT_APPLIED, STAGES, STEPS, Run

KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
PARAMETERS = params.from_values(MINIMAL, "x")


@pytest.fixture
def run(tmp_path):
    return Run.create(PARAMETERS, tmp_path / "run")


def complete(run, *stages):
    for step, stage in STEPS.items():
        if stage in stages:
            run.finish(step, "completed")


def test_resume_begins_with_what_is_not_done(run):
    complete(run, "verify_stack", "benchmark")
    assert pipeline._undone(run, list(STAGES), False) == ["choose", "install_service", "publish"]
    complete(run, *STAGES)
    assert pipeline._undone(run, list(STAGES), True) == []


def test_what_was_only_planned_is_left_to_do_once_it_is_to_be_applied(run):
    complete(run, *STAGES)
    run.finish("install_service", "skipped", f"{NOT_APPLIED}: only planned")
    run.finish("boot", "skipped", "not provable here: no systemd")
    assert pipeline._undone(run, list(STAGES), False) == []
    assert pipeline._undone(run, list(STAGES), True) == ["install_service", "publish"]


def test_an_interruption_between_two_stages_is_noted(run):
    complete(run, "verify_stack")
    pipeline._fail_open_steps(run, "verify_stack", "interrupted by SIGINT", 130)
    assert run.step("benchmark").status == "failed"
    assert run.step("benchmark").reason == "interrupted by SIGINT"
    assert run.step("verify_stack").status == "completed"


def test_other_terms_than_an_earlier_stage_had_are_refused_before_anything_changes(run):
    complete(run, *STAGES)
    before = (run.path / "run.json").read_bytes()
    others = params.from_values({**MINIMAL, "choose": {**MINIMAL["choose"], "margin": 0.5}}, "x")
    with pytest.raises(BadInput, match=r"choose\.margin.*\n.*\n.*--from choose"):
        pipeline.run_stages(run, others, ["install_service", "publish"], False, print)
    assert (run.path / "run.json").read_bytes() == before
    assert Run.open(run.path).params == run.params


def test_a_stage_before_its_time_is_refused(run):
    complete(run, "verify_stack")
    with pytest.raises(BadInput, match="benchmark is pending"):
        pipeline._refuse_early(run, ["choose"])
    run.finish("benchmark", "failed", "a server died", 1)
    pipeline._refuse_early(run, ["choose"])
    with pytest.raises(BadInput, match="benchmark is failed"):
        pipeline._refuse_early(run, ["install_service"])
    complete(run, "benchmark")
    run.finish("choose", "failed", "undecided", 1)
    with pytest.raises(BadInput, match="--from choose"):
        pipeline._refuse_early(run, ["install_service"])


def test_parameters_are_changed_under_the_lock_only(run):
    changed = params.from_values({**MINIMAL, "choose": {**MINIMAL["choose"], "margin": 0.1}}, "x")
    script = (
        "import pathlib, sys\nfrom runbook.run import Run\n"
        f"with Run.open(pathlib.Path({str(run.path)!r})).locked():\n"
        "    print('locked', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(BadInput, match=str(other.pid)):
            pipeline.run_stages(run, changed, ["choose"], False, print)
        assert Run.open(run.path).params == PARAMETERS
        other.kill()


def test_nothing_left_to_do_is_no_fault(run, capsys):
    complete(run, *STAGES)
    assert pipeline.run_stages(run, PARAMETERS, list(STAGES), False, print, resume=True) == 0


def test_what_was_completed_is_not_failed_afterwards(run):
    complete(run, "choose")
    pipeline._fail_open_steps(run, "choose", "interrupted by SIGTERM", 143)
    assert run.step("choose").status == "completed"
    pipeline._fail_open_steps(run, "publish", "its kernel died", 70)
    assert run.step("publish").status == "failed"
    assert run.step("plan_document").status == "pending"


def test_an_error_of_the_notebook_keeps_its_exit_code(run):
    assert pipeline._note_failure(run, "choose", "BadInput", "no mix") == 2
    assert run.step("choose").exit_code == 2
    assert pipeline._note_failure(run, "publish", "ZeroDivisionError", "x") == 70


def notebook_of(folder, source):
    """A clone whose first notebook is one cell."""
    (folder / "notebooks").mkdir()
    book = new_notebook(cells=[new_code_cell(source)], metadata={"kernelspec": KERNEL})
    nbformat.write(book, folder / "notebooks" / pipeline.NOTEBOOKS["verify_stack"])


def test_a_killed_kernel_is_a_failure_whatever_papermill_notes(run, tmp_path, monkeypatch):
    notebook_of(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr(pipeline, "clone_root", lambda: tmp_path)
    run.begin("verify_stack")
    assert pipeline.execute_notebook("verify_stack", run.path, False) == 70
    assert run.step("verify_stack").status == "in_progress"  # the runner makes a failure of it


SLEEPING = """
import time, pathlib
from runbook.run import Run
Run.open(pathlib.Path({path!r})).begin("verify_stack")
time.sleep(60)
"""
FAILING = """
import json
from ipykernel.connect import get_connection_info
from runbook.errors import BadInput
raise BadInput("a kernel over " + json.loads(get_connection_info())["transport"], "x", "y")
"""


def test_a_cell_that_timed_out_is_no_success_whatever_papermill_notes(run, tmp_path):
    notebook_of(tmp_path, SLEEPING.format(path=str(run.path)))
    name = pipeline.NOTEBOOKS["verify_stack"]
    with pytest.raises(CellTimeoutError):
        papermill.execute_notebook(
            tmp_path / "notebooks" / name,
            tmp_path / name,
            kernel_name="python3",
            progress_bar=False,
            execution_timeout=6,
        )
    noted = nbformat.read(tmp_path / name, as_version=4).cells[-1].metadata.papermill
    assert noted.exception is not True  # as of papermill 2.7: not to be gone by
    assert run.step("verify_stack").status == "interrupted"
    assert "INTERRUPTED at verify_stack" in document.export(run.path).read_text()


def test_a_notebook_that_failed_gives_a_record_that_says_so(run, tmp_path, monkeypatch, capsys):
    notebook_of(tmp_path, FAILING)
    monkeypatch.setattr(pipeline, "clone_root", lambda: tmp_path)
    run.begin("verify_stack")
    assert pipeline.execute_notebook("verify_stack", run.path, False) == 2
    said = capsys.readouterr().err
    assert re.match(r"cell \d+ of \d+ of 01_verify_stack.ipynb: BadInput: a kernel over ipc", said)
    banner = nbformat.read(run.path / pipeline.NOTEBOOKS["verify_stack"], as_version=4).cells[0]
    assert "papermill-error" in banner.source
    text = document.export(run.path).read_text()
    assert "**FAILED at verify_stack: a kernel over ipc**" in text.splitlines()[:6]
    assert "papermill-error" not in text
    assert "<" not in re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)


SCRIPT = """
import sys, time, pathlib
from runbook.run import Run
run = Run.open(pathlib.Path({path!r}))
if {verdict}:
    run.finish("verify_stack", "completed", "fine")
time.sleep({sleep})
"""


@pytest.mark.parametrize(
    ("verdict", "sleep", "code", "status"),
    [(True, 0, 0, "completed"), (True, 600, 0, "completed"), (False, 0, 70, "failed")],
    ids=["as it should", "stuck after its verdict", "no verdict"],
)
def test_the_to_do_list_decides(run, tmp_path, monkeypatch, verdict, sleep, code, status):
    script = tmp_path / "python"
    body = SCRIPT.format(path=str(run.path), verdict=verdict, sleep=sleep)
    script.write_text(f"#!{sys.executable}\n{body}")
    script.chmod(0o700)
    monkeypatch.setattr(pipeline.sys, "executable", str(script))
    monkeypatch.setattr(pipeline, "LOOK_EVERY_S", 1.0)
    said = []
    assert pipeline._execute(run, "verify_stack", False, [], said.append, (None, None)) == code
    assert run.step("verify_stack").status == status
    assert any("does not end" in line for line in said) is bool(sleep)


def test_a_notebook_past_all_time_outs_is_ended_and_those_at_work_are_named(
    run, tmp_path, monkeypatch
):
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    script.chmod(0o700)
    monkeypatch.setattr(pipeline.sys, "executable", str(script))
    monkeypatch.setattr(pipeline, "LOOK_EVERY_S", 0.2)
    monkeypatch.setattr(pipeline, "_longest_s", lambda *_: 3.0)
    said = []
    assert pipeline._execute(run, "verify_stack", False, [], said.append, (None, None)) == 70
    step = run.step("verify_stack")
    assert (step.status, step.exit_code) == ("failed", 70)
    assert step.reason.startswith("01_verify_stack.ipynb was ended: not at its end after 0:03")
    assert any(line.startswith("01_verify_stack.ipynb: at work for 0:0") for line in said)


def test_the_longest_that_a_stage_may_take_is_beyond_what_it_costs():
    for path in sorted((pipeline.clone_root() / "params").glob("*.yaml")):
        parameters = params.load(path)
        longest_s = pipeline._longest_s(parameters, "benchmark")
        assert longest_s > 3600 + 2 * benchmark.estimate(parameters).seconds
        assert pipeline._longest_s(parameters, "choose") > 3600
