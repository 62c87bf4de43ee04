"""How a notebook begins: from which parameters, in which run, and whose steps it may end."""

import subprocess
import sys

import pytest
from test_params import MINIMAL

from runbook import benchmark, notebook, params, stages
from runbook.checks import Verdict
from runbook.errors import BadInput, NotHere, NotProved, ParameterError, RunBusy
from runbook.run import Run

EMPTY = {key: type(value)() for key, value in MINIMAL.items()} | {
    "run": "",
    "figures": "",
    "apply": False,
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr("runbook.run.outputs_root", lambda: tmp_path)
    return Run.create(params.from_values(MINIMAL, "x"), tmp_path / "mini-20260101T000000Z")


@pytest.fixture(autouse=True)
def nothing_at_work():
    yield
    while notebook._at_work:
        notebook._at_work.pop().close()


def test_a_run_is_opened_and_its_steps_are_ended(run):
    work = notebook.open_stage("choose", {**EMPTY, "run": str(run.path)})
    assert work.kind == "run"
    work.begin("choose")
    assert run.step("choose").status == "in_progress"
    work.verdict(Verdict(True, "fine"))
    assert run.step("choose").status == "completed"


def test_a_negative_verdict_raises_and_is_noted(run):
    work = notebook.open_stage("choose", {**EMPTY, "run": str(run.path)})
    work.begin("choose")
    with pytest.raises(NotProved, match="undecided"):
        work.verdict(Verdict(False, "undecided"))
    step = run.step("choose")
    assert (step.status, step.exit_code) == ("failed", 1)


def test_the_newest_run_of_given_parameters_is_taken(run):
    work = notebook.open_stage("publish", {**EMPTY, **MINIMAL})
    assert work.folder == run.path


def test_without_a_run_the_command_to_run_is_named(run):
    other = {**EMPTY, **MINIMAL, "workload": {"seed": 9}}
    with pytest.raises(NotHere, match="runbook run PARAMS"):
        notebook.open_stage("choose", other)


def test_given_parameters_are_those_that_hold(run):
    run.finish("choose", "completed")
    changed = {**MINIMAL, "choose": {**MINIMAL["choose"], "margin": 0.1}}
    work = notebook.open_stage("choose", {**EMPTY, **changed, "run": str(run.path)})
    assert work.params.choose.margin == 0.1
    assert Run.open(run.path).params.choose.margin == 0.1
    assert run.step("choose").status == "pending"


@pytest.mark.parametrize("name", ["hsot", "stak", "recrod", "bencmark", "aply"])
def test_a_misspelt_parameter_is_refused(name):
    with pytest.raises(ParameterError, match="did you mean"):
        notebook.open_stage("verify_stack", {**EMPTY, name: {"kind": "box"}})


@pytest.mark.parametrize("name", ["report", "measured", "plan", "proofs", "x", "_hsot"])
def test_other_variables_of_a_notebook_are_its_own(run, name):
    assert notebook.open_stage("choose", {**EMPTY, "run": str(run.path), name: []}).kind == "run"


@pytest.mark.parametrize(("name", "value"), [("apply", "false"), ("run", 7), ("apply", 1)])
def test_a_wrong_type_is_refused(name, value):
    with pytest.raises(ParameterError, match=name):
        notebook.open_stage("choose", {**EMPTY, name: value})


def test_a_second_opening_in_the_same_kernel_takes_over(run):
    values = {**EMPTY, "run": str(run.path)}
    notebook.open_stage("choose", values).begin("choose")
    notebook.open_stage("choose", values).begin("choose")
    assert run.step("choose").status == "in_progress"


def test_an_intruder_is_refused_and_ends_nothing(run):
    work = notebook.open_stage("benchmark", {**EMPTY, "run": str(run.path)})
    work.begin("benchmark")
    script = (
        "from runbook import notebook\n"
        f"values = { ({**EMPTY, 'run': str(run.path)})!r}\n"
        "try:\n    notebook.open_stage('benchmark', values)\n"
        "except notebook.RunbookError as error:\n"
        "    [one.fail(error) for one in notebook._at_work]\n    print(type(error).__name__)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == RunBusy.__name__
    assert run.step("benchmark").status == "in_progress"


def test_another_process_step_is_not_ours_to_fail(run):
    opened = f"Run.open(pathlib.Path({str(run.path)!r}))"
    code = f"from runbook.run import Run; import pathlib, time; {opened}.begin('benchmark')"
    script = f"{code}; print('begun', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "begun\n"
        work = notebook.Work("benchmark", run, "run", False, notebook.ExitStack())
        work.fail(ValueError("ours"))
        assert run.step("benchmark").status == "in_progress"
        other.kill()


def test_no_record_on_the_target_of_a_run_that_failed(run, capsys):
    work = notebook.open_stage("publish", {**EMPTY, "run": str(run.path), "apply": True})
    record = work.params.record.model_copy(update={"document": "/nowhere/r.md", "plan": "p.md"})
    run.params = work.run.params = work.params.model_copy(update={"record": record})
    run.finish("install_service", "failed", "it does not serve", 1)
    stages.write_record(work)
    said = capsys.readouterr().out
    assert "none on the target: the service is not installed" in said
    assert "no plan document is changed: the service is not installed" in said
    assert "FAILED at install_service" in (run.path / "production_v2.md").read_text()


def test_the_draft_is_written_before_the_service_is_touched(run, monkeypatch):
    work = notebook.open_stage("choose", {**EMPTY, "run": str(run.path)})
    monkeypatch.setattr(stages, "chosen_verdict", lambda *_: Verdict(False, "undecided"))
    work.begin("choose")
    stages.write_draft(work, None)
    assert [run.step(name).status for name in ("choose", "draft")] == ["failed", "completed"]
    assert "FAILED at choose: undecided" in (run.path / "production_v2.md").read_text()
    with pytest.raises(NotProved, match="undecided"):
        work.verdict(Verdict(False, "undecided"))


def test_skipping_leaves_what_was_completed(run):
    work = notebook.open_stage("install_service", {**EMPTY, "run": str(run.path)})
    run.finish("boot", "completed")
    work.skip("boot", "only planned")
    work.skip("install_service", "only planned")
    assert run.step("boot").status == "completed"
    assert run.step("install_service").status == "skipped"


def figures(tmp_path):
    table = tmp_path / "figures.csv"
    rows = ["baseline,1,17.4", "baseline,8,32.9", "fast,1,22.6", "fast,8,32.0"]
    table.write_text("\n".join(["config,concurrency,output_tok_s", *rows]) + "\n")
    return {**EMPTY, "figures": str(table)}


def given_run(tmp_path, override):
    values = {
        **MINIMAL,
        "configurations": [{"name": "baseline"}, {"name": "fast"}],
        "benchmark": {"concurrencies": [1, 8]},
        "choose": {"mix": [{"concurrency": 1, "share": 1}], "override": override},
    }
    return Run.create(params.from_values(values, "x"), tmp_path / "given")


def test_figures_that_somebody_accepted_are_kept_in_the_run(tmp_path):
    accepted = {"choose": "fast", "reason": "weeks of it", "by": "me"}
    run = given_run(tmp_path, accepted)
    notebook.open_stage("benchmark", {**figures(tmp_path), "run": str(run.path)})
    assert benchmark.is_given(run)
    assert (run.path / "given/1-figures.csv").read_bytes() == (
        tmp_path / "figures.csv"
    ).read_bytes()


def test_figures_that_nobody_accepted_are_refused(tmp_path):
    run = given_run(tmp_path, None)
    with pytest.raises(BadInput, match="nobody has accepted"):
        notebook.open_stage("benchmark", {**figures(tmp_path), "run": str(run.path)})
    assert not benchmark.is_given(run)


def test_figures_need_a_run(tmp_path):
    with pytest.raises(ParameterError, match="figures"):
        notebook.open_stage("benchmark", figures(tmp_path))
