"""Where a section comes from: the notebook that tells of the run as it is, else the artefacts."""

import os
import time

import nbformat
import pytest
from synthetic_run import build_run

from runbook.errors import BadInput
from runbook.hosts import LocalHost
from runbook.publish import document
from runbook.publish.outline import OUTLINE
from runbook.run import STAGES, process_mark

OLD = {"verify_stack": "stack", "choose": "decision", "publish": "assumptions"}
OLD |= {"benchmark": "benchmark", "install_service": "proofs"}


@pytest.fixture
def run(tmp_path):
    """A complete run of a chain by hand: every artefact, and no notebook."""
    return build_run(tmp_path / "r")


def change_step(run, name, **change):
    stored = run.read_json("run.json")
    next(step for step in stored["steps"] if step["name"] == name).update(change)
    run.write_json("run.json", stored)


def begin(run, *names):
    for name in names:
        change_step(run, name, status="in_progress", owner=process_mark(os.getpid()))


def write_notebook(run, stage, age_s=0.0):
    """An executed notebook of this age whose one cell says OLD."""
    output = nbformat.v4.new_output("display_data", {"text/markdown": f"OLD {stage}"})
    cell = nbformat.v4.new_code_cell("x", metadata={"record": OLD[stage]}, outputs=[output])
    path = run.path / f"{STAGES.index(stage) + 1:02}_{stage}.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    os.utime(path, (time.time() - age_s,) * 2)


def text_of(run):
    return document.render(run.path)[0]


def section(text, title):
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip()


# --- a chain by hand leaves no notebook in the run folder


def test_a_chain_by_hand_gives_the_whole_record(run):
    text, figures = document.render(run.path)
    assert "Not recorded" not in text
    assert "Not reached" not in text
    for one in OUTLINE:
        assert section(text, one.title), one.title
    assert "+16.3" in section(text, "Decision")
    assert "| baseline | 1 | 17.4 |" in section(text, "Benchmark")
    assert "ngram-simple" in section(text, "Configuration")
    assert "ExecStart" in section(text, "Service")
    assert "12 variables equal" in section(text, "Proofs")
    assert sorted(figures) == [
        "acceptance_length.png",
        "latency_distributions.png",
        "ratio_to_baseline.png",
        "run_order.png",
        "throughput_by_concurrency.png",
        "user_speed_by_throughput.png",
    ]
    assert "](figures/ratio_to_baseline.png)" in section(text, "Decision")


def test_rendering_changes_no_file(run):
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    text_of(run)
    assert before == {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}


def test_what_a_stage_did_not_leave_is_said(run):
    (run.path / "stack.json").unlink()
    said = section(text_of(run), "Stack")
    assert said == "Not recorded: verify_stack has ended, and left nothing for this section."


def test_a_negative_choice_by_hand_shows_its_figures(run):
    change_step(run, "choose", status="failed", reason="undecided")
    said = section(text_of(run), "Decision")
    assert said.startswith("**Unfinished: choose failed, see the verdict.** What follows is")
    assert "+16.3" in said


# --- a notebook of an earlier pass


def test_a_notebook_of_this_pass_bears_its_section(run):
    write_notebook(run, "choose")
    assert section(text_of(run), "Decision") == "OLD choose"


@pytest.mark.parametrize("status", ["in_progress", "interrupted"])
def test_the_notebook_of_a_stage_at_work_is_not_used(run, status):
    write_notebook(run, "publish")
    begin(run, "publish")
    if status == "interrupted":
        change_step(run, "publish", owner="1:1:gone")
    said = section(text_of(run), "The four assumptions")
    assert "OLD" not in said
    assert "no such proof" in said


@pytest.mark.parametrize("stage", STAGES)
def test_a_notebook_older_than_the_begin_of_its_stage_is_not_used(run, stage):
    write_notebook(run, stage, age_s=3600)
    assert "OLD" not in text_of(run)


def test_a_notebook_is_not_used_when_an_earlier_stage_was_begun_after_it(run):
    for step in ("install_service", "publish"):
        change_step(run, step, started="2020-01-01T00:00:00Z")
    write_notebook(run, "publish", age_s=60)
    assert "OLD" not in text_of(run)


def test_a_later_proof_outdates_the_notebooks_that_show_proofs(run):
    change_step(run, "install_service", started="2020-01-01T00:00:00Z")
    write_notebook(run, "install_service", age_s=0)
    assert "OLD install_service" in text_of(run)
    write_notebook(run, "install_service", age_s=60)
    write_notebook(run, "publish", age_s=60)
    run.begin("install_service")
    run.finish("install_service", "completed")
    proofs = run.read_json("service/proofs.json", list)
    proofs[0].update(status="refuted", evidence="PATH differs")
    run.write_json("service/proofs.json", proofs)
    text = text_of(run)
    assert "OLD" not in text
    assert "| environment | refuted | PATH differs |" in section(text, "Proofs")


def test_a_damaged_notebook_is_named(run):
    (run.path / "02_benchmark.ipynb").write_text("{")
    with pytest.raises(BadInput, match=r"02_benchmark\.ipynb is no notebook"):
        text_of(run)


@pytest.mark.parametrize(
    ("name", "stage", "said"),
    [
        ("decision.json", "choose", "Not reached: choose failed: no cells"),
        ("service/proofs.json", "install_service", "Not reached: install_service failed: no cells"),
    ],
)
def test_an_answer_of_an_earlier_pass_is_not_given_for_this_one(run, name, stage, said):
    change_step(run, stage, status="failed", reason="no cells")
    os.utime(run.path / name, (time.time() - 3600,) * 2)
    text = text_of(run)
    assert said in text
    lost = "**Choice.** None yet" if stage == "choose" else "not proved: no proof was made"
    assert lost in section(text, "Verdict")


# --- the document that 05 writes on the target


def test_the_document_of_a_stage_at_work_is_that_work(run, tmp_path):
    begin(run, "publish")
    change_step(run, "plan_document", status="pending", started=None, ended=None, reason="")
    path = tmp_path / "there.md"
    document.write_on(LocalHost(), run.path, str(path))
    text = path.read_text()
    assert "Complete: measured, chosen and installed" in text
    assert "| publish | in progress (this document) |" in text
    assert "| plan_document | pending (follows this document) |" in text


def test_the_plan_document_in_progress_is_of_this_document_too(run):
    begin(run, "publish", "plan_document")
    assert text_of(run).count("in progress (this document)") == 2


def test_a_stage_at_work_elsewhere_is_said_as_it_is(run):
    begin(run, "install_service")
    assert "| install_service | in progress |" in text_of(run)


# --- the service


def test_operations_stand_there_when_a_proof_was_refuted(run):
    change_step(run, "install_service", status="failed", reason="environment: refuted")
    for step in ("publish", "plan_document"):
        change_step(run, step, status="pending", started=None)
    said = section(text_of(run), "Operations")
    assert said.startswith("**install_service failed: environment: refuted**")
    assert "The service may run all the same" in said
    assert "runbook service verify" in said


def test_there_are_no_operations_without_a_manifest(run):
    change_step(run, "install_service", status="failed", reason="no root")
    (run.path / "service/manifest.json").unlink()
    assert section(text_of(run), "Operations") == "Not reached: install_service failed: no root"


def test_a_service_installed_without_a_measurement_says_so_first(run):
    manifest = run.read_json("service/manifest.json")
    run.write_json("service/manifest.json", {**manifest, "run": "unmeasured: a | trial"})
    text = text_of(run)
    said = section(text, "Service")
    assert r"**Installed without a measurement: a \| trial**" in said
    assert "Complete" not in text
    assert "**UNMEASURED: the service was installed without a measurement: a" in text
    assert "installed without a measurement" in section(text, "Verdict").splitlines()[1]


def test_the_service_of_an_earlier_pass_can_be_operated_and_proves_nothing(run):
    change_step(run, "install_service", status="pending", started=None)
    text = text_of(run)
    assert section(text, "Service") == "Not reached: install_service has not been started."
    assert "no proof was made" in section(text, "Verdict")
    assert "service verify" in section(text, "Operations")
    assert "service rollback" in section(text, "Roll back")


def test_a_run_whose_service_could_not_be_installed_does_not_claim_it(run):
    reason = "not installed: systemd is not PID 1 on this machine"
    change_step(run, "install_service", status="skipped", reason=reason)
    text = text_of(run)
    assert f"**Measured and chosen, {reason}**" in text.splitlines()[:4]
    assert "and installed" not in text


# --- figures of equal names beside the document


def test_figures_of_another_document_beside_it_are_left_alone(run, tmp_path):
    theirs = tmp_path / "figures" / "ratio_to_baseline.png"
    theirs.parent.mkdir()
    theirs.write_bytes(b"theirs")
    for name in ("a b.md", "b.md"):
        document.write_on(LocalHost(), run.path, str(tmp_path / name))
    assert theirs.read_bytes() == b"theirs"
    assert "](a%20b.md.figures/ratio_to_baseline.png)" in (tmp_path / "a b.md").read_text()
    assert len(list((tmp_path / "a b.md.figures").iterdir())) == 6
    assert len(list((tmp_path / "b.md.figures").iterdir())) == 6


def test_what_cannot_be_written_is_bad_input(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        document.export(run.path, tmp_path / "file" / "record.md")


def test_an_export_without_figures_makes_no_folder_for_them(run, tmp_path):
    for name in ("cells.csv", "decision.json"):
        (run.path / name).unlink()
    document.export(run.path, tmp_path / "new" / "record.md")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["record.md"]
