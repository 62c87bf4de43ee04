"""One short real run: llama.cpp, with and without speculation, one block."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from server_lives import REHEARSAL, free_port

from runbook.benchmark import load_measurements, measure, verdict
from runbook.benchmark.request_log import read_answers
from runbook.engines import engine_named
from runbook.launch.ports import port_holder
from runbook.launch.process import ProcessLauncher
from runbook.params import Params, load
from runbook.run import Run


def short_rehearsal(port: int) -> Params:
    params = load(
        REHEARSAL,
        [
            f"server.port={port}",
            "workload.output_tokens=32",
            "benchmark={concurrencies: [1, 2], requests: 2, rounds: 1, warmup: 0, blocks: 1, "
            "client_lag_ms: 1000}",  # tests run beside others
            "choose.mix=[{concurrency: 1, share: 1}]",
        ],
    )
    two = [one for one in params.configurations if one.name != "ngram-wide"]
    return params.model_copy(update={"configurations": two})


@pytest.mark.timeout(600)
def test_llama_cpp_with_and_without_speculation(tmp_path: Path) -> None:
    port = free_port()
    run = Run(tmp_path, short_rehearsal(port))
    lines: list[str] = []
    found = measure(
        run,
        ProcessLauncher(tmp_path / "logs"),
        engine_named("llamacpp"),
        lambda text, done, total: lines.append(f"[{done}/{total}] {text}"),
    )
    assert verdict(found).ok, verdict(found)
    assert lines[-1].startswith("[4/4] block 1, ")
    places = {(cell.config, cell.concurrency): cell for cell in found.cells}
    assert places.keys() == {(c, n) for c in ("baseline", "ngram-lean") for n in (1, 2)}
    for (config, _), cell in places.items():
        assert cell.requests == 2 and cell.errors == 0
        assert cell.output_tok_s and cell.ttft_p50_ms and cell.tpot_p50_ms
        assert cell.accept_length is not None
        assert (cell.accept_length > 1.05) == (config == "ngram-lean")

    records = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    answers = {
        config: {
            said["prompt_id"]: said["text"]
            for said in read_answers(tmp_path / "answers.jsonl.gz")
            if said["config"] == config and said["cell"].endswith("-c1")
        }
        for config in ("baseline", "ngram-lean")
    }
    assert answers["baseline"] == answers["ngram-lean"]  # temperature 0: drafts change no word
    assert all(r["tokens_out"] and r["tokens_in"] and r["finish_reason"] for r in records)
    assert load_measurements(tmp_path).launches["ngram-lean"]["info"]["speculation"] != "none"
    assert port_holder(port) is None
