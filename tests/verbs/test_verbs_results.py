"""03_choose over figures that another tool measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbook import notebook, params, stages
from runbook.errors import BadInput
from runbook.verbs.choosing import run_of_results

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases" / "foreign"
MIX = (
    "choose.mix=["
    + ", ".join(
        f"{{concurrency: {c}, share: {share}}}" for c, share in ((1, 15), (30, 60), (100, 25))
    )
    + "]"
)
DECLARED = (
    MIX,
    "choose.expected=null",
    "choose.prefer=[]",
    "choose.limits={}",
    "benchmark.concurrencies=[1, 30, 100]",
)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("runbook.run.outputs_root", lambda: tmp_path)
    yield
    while notebook._at_work:
        notebook._at_work.pop().close()


@pytest.mark.parametrize("tool", ["sglang", "vllm", "guidellm", "aiperf"])
def test_the_notebook_takes_the_results_of_each_tool(tool, capsys):
    given = params.load(ROOT / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml", DECLARED)
    values = given.model_dump(mode="json") | {"run": str(CASES / tool), "apply": False}
    work = notebook.open_stage("choose", values)
    decision = stages.choose(work)
    assert (decision.status, decision.choice) == ("provisional", "topk1")
    assert decision.costs == ("C=1 loses 6.4 %", "C=100 is a tie (+0.2 %)")
    assert any("defines them" in note for note in decision.notes)
    assert stages.chosen_verdict(work, decision).ok
    assert "production_v2.md" in str(stages.write_draft(work, decision))
    record = (work.folder / "production_v2.md").read_text()
    assert "defines them" in record and "at C=1, the lowest load, speed: −6.4 %" in record
    step = work.run.step("benchmark")
    assert step.reason == f"figures of {CASES / tool}, not measured by this run"
    assert "rehearsal" not in record


def test_a_record_of_results_says_of_nothing_that_it_was_measured_here(capsys):
    given = params.load(ROOT / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml", DECLARED)
    values = given.model_dump(mode="json") | {"run": str(CASES / "sglang"), "apply": False}
    work = notebook.open_stage("choose", values)
    stages.write_draft(work, stages.choose(work))
    record = (work.folder / "production_v2.md").read_text()
    assert f"**The figures are of `{CASES / 'sglang'}`, not measured by this run.**" in record
    assert "with what speculation, is not recorded" in record
    assert f".venv/bin/runbook choose {CASES / 'sglang'} params.yaml\n" in record
    for claim in ("asks for speculation", "the project's own", "closed loop", "run params.yaml"):
        assert claim not in record


def test_a_table_alone_decides_without_a_record(tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text("config,concurrency,output_tok_s\nbaseline,1,9\nfast,1,12\n")
    work = notebook.open_stage("choose", {"run": str(table)})
    decision = stages.choose(work)
    assert decision.choice == "fast"
    assert any("every measured point weighs the same" in note for note in decision.notes)
    assert "Give parameters" in str(stages.write_draft(work, decision))


def test_a_name_that_no_configuration_may_have_is_refused(tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text("config,concurrency,output_tok_s\nbaseline,1,9\nThe fast one,1,12\n")
    given = params.load(ROOT / "params" / "rehearsal.yaml")
    with pytest.raises(BadInput, match="a name of a-z"):
        run_of_results(table, given, False, tmp_path / "run")
