"""The whole runbook over a real SGLang: one block of its rehearsal."""

import json
from collections import Counter

import pytest
from boxes import need_box
from sglang_runs import rows, run_runbook

from runbook.benchmark.request_log import read_answers
from runbook.run import Run

STEPS = 3


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
        assert found["longest prompt"] == "pass", launch["checks"]


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
        if row["verify_steps"]:
            for key in (row["config"], (row["config"], row["kind"])):
                tokens[key] += row["tokens_out"] - 1
                steps[key] += row["verify_steps"]
    for one in read_answers(folder / "answers.jsonl.gz"):
        point = one["cell"].partition("-")[2], one["prompt_id"]
        answers.setdefault(point, {})[one["config"]] = one["text"]
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
