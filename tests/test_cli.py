"""The contract of the command line: exit codes, and words for people."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.params import load
from runbook.run import Run

ROOT = Path(__file__).parents[1]
REHEARSAL = ROOT / "params" / "rehearsal.yaml"
RUNBOOK = Path(sys.executable).with_name("runbook")


def runbook(*words, cwd=ROOT):
    return subprocess.run(
        [RUNBOOK, *map(str, words)], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_check_prints_every_launch_and_the_cost():
    said = runbook("check", REHEARSAL)
    assert said.returncode == 0, said.stderr
    for name in ("baseline", "ngram-wide", "ngram-lean"):
        assert f"# {name}" in said.stdout
    assert said.stdout.count("env -i") == 3
    assert "9 server lives" in said.stdout


def test_check_as_json():
    shown = json.loads(runbook("check", REHEARSAL, "--json").stdout)
    assert shown["lives"] == 9
    assert shown["estimated_s"] > 60


def test_the_production_host_is_checked_from_afar_and_says_what_it_could_not():
    said = runbook("check", ROOT / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml")
    assert said.returncode == 0
    for name in ("sglang_release", "sglang_worker", "sglang_model", "sglang_arguments"):
        assert f"  {name}: unknown, " in said.stdout
    (line,) = [one for one in said.stdout.splitlines() if one.startswith("Not looked at")]
    for name in ("interpreter", "model", "draft_fits", "mig", "topology", "collective", "port"):
        assert f" {name}," in line
    assert "runbook facts PARAMS" in line
    own = runbook("check", REHEARSAL, "-p", "stack.checks={shm: off}").stdout
    assert "mig" not in own and " shm," not in own and " memory," in own


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "absent.yaml"], "No such file"),
        (["check", REHEARSAL, "-p", "server.prot=1"], "did you mean port?"),
        (["check", REHEARSAL, "-p", "stack.checks={coers: off}"], "cores"),
        (["run", REHEARSAL, "-p", "server.port=007"], "wanted: 7 for a number"),
        (["check", REHEARSAL, "-p", "server.interpreter=/o'er/python"], "a quote or a backslash"),
        (["run", REHEARSAL, "--from", "chose"], "did you mean choose?"),
        (["run", REHEARSAL, "--to", "x"], "next: name one of these"),
        (["run", REHEARSAL, "--from", "publish", "--to", "choose"], "after --to"),
        (["run", REHEARSAL, "--resume", "--out", "absent"], "no run folder"),
        (["status", "absent"], "no run folder"),
        (["export", "."], "no run folder"),
        (["unit", REHEARSAL, "--config", "ngram-laen"], "use ngram-lean"),
        (["service", "status", REHEARSAL, "--run", "absent"], "no run folder"),
        (["choose", "absent.csv"], "absent.csv"),
        (["nonsense"], "No such command"),
        (["run"], "Missing argument"),
    ],
    ids=lambda value: (
        " ".join(Path(str(word)).name for word in value) if type(value) is list else ""
    ),
)
def test_bad_input_is_refused_before_anything_starts(words, said):
    before = sorted((ROOT / "outputs").iterdir())
    ended = runbook(*words)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert sorted((ROOT / "outputs").iterdir()) == before


def test_a_folder_in_use_is_no_place_for_a_new_run(tmp_path):
    (tmp_path / "file").write_text("x")
    ended = runbook("run", REHEARSAL, "--out", tmp_path)
    assert ended.returncode == 2
    assert "exists already" in ended.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_status_and_export_of_a_run_that_did_nothing_yet(tmp_path):
    run = Run.create(load(REHEARSAL), tmp_path / "run")
    said = runbook("status", run.path)
    assert said.returncode == 0
    assert said.stdout.count("pending") == 8
    steps = json.loads(runbook("status", run.path, "--json").stdout)
    assert steps[0]["name"] == "verify_stack"
    exported = runbook("export", run.path)
    assert exported.returncode == 0, exported.stderr
    assert "DRAFT" in (run.path / "production_v2.md").read_text()


def test_a_run_of_other_parameters_is_not_continued(tmp_path):
    run = Run.create(load(REHEARSAL), tmp_path / "run")
    ended = runbook("run", REHEARSAL, "--resume", "--out", run.path, "-p", "workload.seed=9")
    assert ended.returncode == 2
    assert "other parameters" in ended.stderr


def test_the_unit_is_printed_without_asking_a_host():
    said = runbook("unit", REHEARSAL)
    assert said.returncode == 0, said.stderr
    assert "[Service]" in said.stdout
    assert "--ngram-n 3" in said.stdout


class TestChoose:
    """From a file of cells, which may come from anywhere."""

    PUBLISHED = "config,concurrency,output_tok_s\n" + "".join(
        f"{config},{concurrency},{figure}\n"
        for config, figures in {
            "baseline": (92.7, 689.4, 773.1),
            "topk1": (86.8, 759.3, 775.0),
        }.items()
        for concurrency, figure in zip((1, 30, 100), figures, strict=True)
    )

    def test_single_figures_give_a_provisional_choice(self, tmp_path):
        path = tmp_path / "cells.csv"
        path.write_text(self.PUBLISHED)
        said = runbook("choose", path)
        assert said.returncode == 0, said.stderr
        assert "provisional" in said.stdout
        assert json.loads(runbook("choose", path, "--json").stdout)["status"] == "provisional"

    def test_a_baseline_that_is_not_there(self, tmp_path):
        path = tmp_path / "cells.csv"
        path.write_text(self.PUBLISHED)
        ended = runbook("choose", path, "--baseline", "base")
        assert ended.returncode == 2
        assert "Traceback" not in ended.stderr

    @pytest.mark.parametrize(
        "content",
        [b"", b"\x00", b"a,b\n1,2\n", b"\xff\xfe", b"config,concurrency,output_tok_s\nx,y,z\n"],
    )
    def test_garbage_is_bad_input(self, tmp_path, content):
        path = tmp_path / "cells.csv"
        path.write_bytes(content)
        ended = runbook("choose", path)
        assert ended.returncode == 2, ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr


def test_help_names_every_verb():
    said = runbook("--help").stdout
    for verb in ("check", "run", "status", "export", "unit", "service", "choose", "bench"):
        assert f"  {verb} " in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_complete(shell):
    environment = {**os.environ, "_RUNBOOK_COMPLETE": f"{shell}_source"}
    done = subprocess.run([RUNBOOK], env=environment, capture_output=True, text=True, check=False)
    assert "_RUNBOOK_COMPLETE" in done.stdout
    assert "Traceback" not in done.stderr


def test_completion_knows_verbs_and_options():
    for words, expected in (
        (["ser"], "service"),
        (["run", "--qu"], "--quiet"),
        (["run", "x.yaml", "--from", "inst"], "install_service"),
    ):
        environment = {
            **os.environ,
            "_RUNBOOK_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["runbook", *words]),
            "COMP_CWORD": str(len(words)),
        }
        said = subprocess.run(
            [RUNBOOK], env=environment, capture_output=True, text=True, check=True
        )
        assert f"plain,{expected}" in said.stdout


def test_the_version_is_that_of_the_package():
    assert (
        runbook("--version").stdout == f"runbook {importlib.metadata.version('golive-runbook')}\n"
    )


def test_a_damaged_decision_is_bad_input(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(ROOT / "docs" / "example-run", folder)
    path = folder / "decision.json"
    found = json.loads(path.read_text())
    del found["effects"][0]["word"]
    path.write_text(json.dumps(found))
    ended = runbook("export", folder)
    assert ended.returncode == 2, ended.stderr
    assert f"{path} is no decision (effects.0.word" in ended.stderr
    assert "next: run choose again" in ended.stderr
