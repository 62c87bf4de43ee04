"""The whole runbook over a real SGLang: one block of its rehearsal, and the untrained draft."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from boxes import need_box

from runbook.run import Run

ROOT = Path(__file__).parents[2]
RUNBOOK = Path(sys.executable).with_name("runbook")
STEPS = 3


def run_runbook(name, folder, *overrides, timeout_s=2300):
    words = [word for one in overrides for word in ("-p", one)]
    return subprocess.run(
        [RUNBOOK, "run", ROOT / "params" / name, "--apply", "--out", folder, *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        check=False,
    )


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real") / "run"
    need_box(folder.parent)
    ended = run_runbook(
        "rehearsal-sglang.yaml",
        folder,
        "benchmark.blocks=1",
        "benchmark.requests=8",
        "benchmark.rounds=3",
        "choose.override={choose: eagle3-topk1, reason: one block decides nothing, by: pytest}",
        "service.burst=8",
        "service.unproved=warn",  # a speed has no interval after one block
    )
    return folder, ended


def rows(folder):
    text = (folder / "requests.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.timeout(2400)
def test_every_step_is_completed(rehearsal):
    folder, ended = rehearsal
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    assert {step.status for step in Run.open(folder).todo()} == {"completed"}


def test_the_parser_was_asked_and_the_server_runs_what_it_resolved(rehearsal):
    folder, _ = rehearsal
    checks = json.loads((folder / "stack.json").read_text())["checks"]
    asked = {check["name"]: check["status"] for check in checks}
    assert asked["sglang_arguments"] == asked["sglang_worker"] == asked["draft_fits"] == "pass"
    launches = json.loads((folder / "launches.json").read_text())
    assert set(launches) == {"baseline", "eagle3-topk4", "eagle3-topk1"}
    for launch in launches.values():
        found = {check["name"]: check["status"] for check in launch["checks"]}
        assert found["as parsed"] == found["speculation"] == "pass", launch["checks"]


def test_the_worker_that_runs_is_proved(rehearsal):
    folder, _ = rehearsal
    launches = json.loads((folder / "launches.json").read_text())
    for name, topk in (("eagle3-topk4", 4), ("eagle3-topk1", 1)):
        info = launches[name]["info"]
        assert info["speculation"] == "EAGLE3"
        assert info["settings"]["worker"] == "v2"
        assert info["settings"]["speculative_eagle_topk"] == topk
        found = {check["name"]: check["found"] for check in launches[name]["checks"]}
        assert found["worker"] == found["worker in the log"] == "v2"
    proofs = json.loads((folder / "service" / "proofs.json").read_text())
    open_ones = [proof["name"] for proof in proofs if proof["status"] != "proved"]
    assert open_ones == ["speed"], proofs


def test_drafts_are_accepted_and_answers_are_the_baselines(rehearsal):
    folder, _ = rehearsal
    tokens, steps, answers = Counter(), Counter(), {}
    for row in rows(folder):
        assert row["error"] is None
        answers.setdefault((row["concurrency"], row["prompt_id"]), {})[row["config"]] = row["text"]
        if row["verify_steps"]:
            for key in (row["config"], (row["config"], row["kind"])):
                tokens[key] += row["tokens_out"] - 1
                steps[key] += row["verify_steps"]
    assert all(len(said) == 3 and len(set(said.values())) == 1 for said in answers.values())
    for name in ("eagle3-topk4", "eagle3-topk1"):
        assert 3.4 <= tokens[name] / steps[name] <= STEPS + 1
        of_kind = {kind: tokens[name, kind] / steps[name, kind] for kind in ("json", "edit")}
        assert of_kind["json"] > of_kind["edit"] + 0.2, of_kind


def test_counters_and_requests_tell_the_same_acceptance(rehearsal):
    folder, _ = rehearsal
    header, *lines = (folder / "cells.csv").read_text().splitlines()
    for line in lines:
        cell = dict(zip(header.split(","), line.split(","), strict=False))
        if cell["config"] == "baseline":
            continue
        own = [
            row
            for row in rows(folder)
            if (row["config"], str(row["concurrency"])) == (cell["config"], cell["concurrency"])
        ]
        told = sum(row["tokens_out"] - 1 for row in own) / sum(row["verify_steps"] for row in own)
        assert float(cell["accept_length"]) == pytest.approx(told, rel=0.02)


@pytest.mark.timeout(1500)
def test_an_untrained_draft_stops_the_run_before_the_service(tmp_path):
    values = yaml.safe_load((ROOT / "params" / "rehearsal-sglang-untrained.yaml").read_text())
    values["workload"]["prompts"] = str(ROOT / "params" / "rehearsal-sglang.jsonl")
    values["configurations"] = [
        one for one in values["configurations"] if one["name"] != "eagle3-topk4"
    ]
    values["choose"]["prefer"] = ["eagle3-topk1"]
    (tmp_path / "untrained.yaml").write_text(yaml.safe_dump(values))
    ended = run_runbook(
        tmp_path / "untrained.yaml",
        tmp_path / "run",
        "benchmark.blocks=1",
        "benchmark.concurrencies=[1]",
        "benchmark.requests=4",
        "choose.mix=[{concurrency: 1, share: 1}]",
        "host.kind=local",
        "benchmark.launch=process",
    )
    assert ended.returncode == 1, ended.stdout[-4000:] + ended.stderr[-2000:]
    run = Run.open(tmp_path / "run")
    assert run.step("choose").status == "failed"
    assert run.step("install_service").status == "pending"
    assert json.loads((tmp_path / "run" / "decision.json").read_text())["choice"] == "baseline"
    drafted = [row for row in rows(tmp_path / "run") if row["verify_steps"]]
    told = sum(row["tokens_out"] - 1 for row in drafted) / sum(r["verify_steps"] for r in drafted)
    assert 1.0 <= told < 1.3
