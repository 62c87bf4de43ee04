"""A rehearsal, whole, and what its user does with it afterwards: a short one, or with
``--documented`` the command of the README with its parameters as they are."""

import json
import re
import subprocess

import nbformat
import pytest
from boxes import need_box
from command import (
    REHEARSAL,
    ROOT,
    SHORT,
    overrides,
    runbook,
    short_parameters,
    wait_nothing_left,
)

from runbook.run import STEPS, Run

OVERRIDE = "choose.override={choose: ngram-lean, reason: CI tests the service, by: pytest}"
#: Two blocks with one request at a time: a spread between lives, and no crossover.
BLOCKS = (*SHORT, "benchmark.blocks=2")


@pytest.fixture(scope="module")
def documented(request):
    """Whether the documented rehearsal runs, and is judged as such."""
    return request.config.getoption("--documented")


@pytest.fixture(scope="module")
def rehearsal(documented, tmp_path_factory):
    """One whole run, with the real server."""
    before = sources()
    folder = tmp_path_factory.mktemp("re hearsal:")
    need_box(folder)
    run = run_documented() if documented else run_short(folder)
    wait_nothing_left(run.params.server.port)
    assert sources() == before
    return run


def run_short(folder):
    path, _ = short_parameters(folder, real=True)
    words = ["run", path, "--apply", "--out", folder / "run", *overrides(*BLOCKS)]
    ended = runbook(*words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Run.open(folder / "run")


def run_documented():
    """``make rehearse``; where a busy machine leaves it undecided, further by override."""
    ended = subprocess.run(
        ["make", "rehearse"], cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False
    )
    told = re.search(r"^run folder: (.+)$", ended.stdout, re.MULTILINE)
    assert told, ended.stdout + ended.stderr
    run, given, code = Run.open(ROOT / told[1]), [], ended.returncode
    if code and run.step("choose").status == "failed":
        assert run.step("install_service").status == "pending"
        assert not (run.path / "service").exists()
        assert (run.path / "production_v2.md").read_text().count("FAILED at choose")
        given = overrides(OVERRIDE)
        ended, code = go_on(run, "choose", given)
    if code and refuted(run) == {"speed"}:  # somebody else used this machine
        ended, code = go_on(run, "install_service", given)
    assert code == 0, ended.stdout + ended.stderr
    return run


def go_on(run, stage, given):
    words = ["run", REHEARSAL, "--apply", "--from", stage, "--out", run.path, *given]
    ended = runbook(*words, timeout_s=900)
    return ended, ended.returncode


def sources():
    """The committed notebooks, which a run leaves as they are."""
    return {path.name: path.read_bytes() for path in (ROOT / "notebooks").glob("*.ipynb")}


def refuted(run):
    proofs = run.read_json("service/proofs.json", list) or []
    return {proof["name"] for proof in proofs if proof["status"] == "refuted"}


def decision_of(run):
    return json.loads((run.path / "decision.json").read_text())


@pytest.mark.timeout(1800)
def test_everything_is_done(rehearsal):
    assert {step.name: step.status for step in rehearsal.todo()} == dict.fromkeys(
        STEPS, "completed"
    )


def test_the_record_is_consistent_with_the_figures(rehearsal, documented):
    decision = decision_of(rehearsal)
    text = (rehearsal.path / "production_v2.md").read_text()
    # Two blocks give no interval, so the choice of a short run is provisional.
    assert decision["status"] in (("chosen", "undecided") if documented else ("provisional",))
    assert decision["blocks"] == rehearsal.params.benchmark.blocks
    assert "Complete: measured, chosen and installed" in text
    assert "n-gram" in text and "not EAGLE-3" in text
    for name in ("baseline", "ngram-wide", "ngram-lean"):
        assert name in text
    if documented and decision["status"] == "undecided":
        assert OVERRIDE.split("reason: ")[1].split(",")[0] in text


def test_the_record_stands_alone(rehearsal, tmp_path):
    moved = tmp_path / "elsewhere" / "production_v2.md"
    said = runbook("export", rehearsal.path, "--to", moved)
    assert said.returncode == 0, said.stderr
    text = moved.read_text()
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (moved.parent / link).is_file(), link
    outside_code = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    assert not re.search(r"</?[a-zA-Z][^>]*>", outside_code)
    assert "\x1b" not in text


def test_every_proof_is_proved(rehearsal, documented):
    """The speed of a short run, with a single load, is not comparable."""
    proofs = json.loads((rehearsal.path / "service" / "proofs.json").read_text())
    unproved = {proof["name"] for proof in proofs if proof["status"] != "proved"}
    assert unproved <= (set() if documented else {"speed"}), proofs
    assert {"arguments", "environment", "back after SIGKILL", "back after reboot"} <= {
        proof["name"] for proof in proofs
    }


def test_the_executed_notebooks_are_kept_and_clean(rehearsal):
    books = sorted(rehearsal.path.glob("0*.ipynb"))
    assert len(books) == 5
    for path in books:
        book = nbformat.read(path, as_version=4)
        text = path.read_text()
        assert "VERDICT ok" in text
        assert "\\r" not in text.replace("\\r\\n", "")
        assert not [
            output
            for cell in book.cells
            for output in cell.get("outputs", [])
            if output.output_type == "error" or output.get("name") == "stderr"
        ]


def test_nothing_of_the_run_is_for_other_eyes(rehearsal):
    for path in rehearsal.path.rglob("*"):
        if "box" not in path.relative_to(rehearsal.path).parts and path.is_file():
            assert path.stat().st_mode & 0o077 == 0, path


class TestTheServiceAfterwards:
    """The verbs of an operator, on the box of the run."""

    def service(self, run, verb, *words):
        return runbook("service", verb, run.path / "params.yaml", "--run", run.path, *words)

    def test_status_is_good(self, rehearsal):
        said = self.service(rehearsal, "status")
        assert said.returncode == 0, said.stdout + said.stderr
        assert "active" in said.stdout
        assert "enabled" in said.stdout

    def test_a_second_install_changes_nothing(self, rehearsal):
        said = self.service(rehearsal, "install")
        assert said.returncode == 0, said.stderr
        assert "nothing changed" in said.stdout

    def test_the_journal_is_there(self, rehearsal):
        said = self.service(rehearsal, "logs")
        assert said.returncode == 0
        assert "READY" in said.stdout or "ready" in said.stdout

    def test_the_boot_that_a_verb_made_is_read_from_the_journal(self, rehearsal):
        said = self.service(rehearsal, "verify", "--after-boot")
        assert said.returncode == 0, said.stdout + said.stderr
        assert "back after reboot: proved" in said.stdout
        assert "started by nobody but systemd" in said.stdout
        assert rehearsal.step("boot").status == "completed"

    def test_nothing_has_drifted(self, rehearsal):
        said = runbook("drift", rehearsal.path)
        assert said.returncode == 0, said.stdout + said.stderr
        assert "0 drifted" in said.stdout

    def test_there_is_nothing_to_roll_back_to(self, rehearsal):
        said = self.service(rehearsal, "rollback")
        assert said.returncode == 2
        assert "no earlier generation" in said.stderr

    def test_the_unit_can_be_printed(self, rehearsal):
        said = runbook("unit", rehearsal.path / "params.yaml", "--config", "ngram-lean")
        assert said.returncode == 0, said.stderr
        kept = (rehearsal.path / "service" / rehearsal.params.service.unit).read_text()
        starts = [line for line in kept.splitlines() if line.startswith("ExecStart=")]
        assert starts[0] in said.stdout

    def test_another_measured_configuration_is_served_by_one_command(self, rehearsal):
        words = ("--reason", "a slow first user", "--by", "pytest")
        unknown = self.service(rehearsal, "switch", "ngram-slim", *words)
        assert (unknown.returncode, "use ngram-" in unknown.stderr) == (2, True), unknown.stderr
        said = self.service(rehearsal, "switch", "baseline", *words)
        assert said.returncode == 0, said.stdout + said.stderr
        assert "installed (generation 2" in said.stdout
        text = (rehearsal.path / "production_v2.md").read_text()
        assert "baseline, by override of pytest: a slow first user" in text
        manifest = json.loads((rehearsal.path / "service/manifest.json").read_text())
        assert manifest["configuration"] == "baseline"

    def test_it_is_removed_whole(self, rehearsal):
        said = self.service(rehearsal, "uninstall")
        assert said.returncode == 0, said.stderr
        after = self.service(rehearsal, "status")
        assert after.returncode == 1
