"""The whole runbook over a real SGLang with a draft that was never trained: it must stop."""

import json

import pytest
import yaml
from server_lives import free_port
from sglang_runs import ROOT, rows, run_runbook

from runbook.run import Run


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
        f"server.port={free_port()}",  # beside the run with the trained draft
        "stack.checks={sglang_arguments: off}",  # asked there
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
