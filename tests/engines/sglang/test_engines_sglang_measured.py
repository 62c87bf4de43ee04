"""The engine through the benchmark, on a stand-in for SGLang that is started as SGLang is."""

import sys
from pathlib import Path

import pytest
from server_lives import free_port

from runbook.benchmark import measure_briefly
from runbook.engines import engine_for
from runbook.launch.process import ProcessLauncher
from runbook.params import from_values

STANDIN = Path(__file__).parents[2] / "standin_sglang"
SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"


def eagle(topk, tokens):
    return [
        *("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3"),
        *("--speculative-eagle-topk", str(topk), "--speculative-num-draft-tokens", str(tokens)),
    ]


@pytest.fixture
def parameters(tmp_path):
    key = tmp_path / "key"
    key.write_text("s3cret-k3y\n")
    return from_values(
        {
            "name": "standin",
            "server": {
                "engine": "sglang",
                "interpreter": sys.executable,
                "cwd": str(STANDIN),
                "port": free_port(),
                "model": "/models/target",
                "draft": "/models/draft",
                "args": ["--max-running-requests", "64", "--enable-metrics"],
                "timeouts": {"start_s": 30, "stop_s": 10},
                "api_key": {"file": str(key)},
            },
            "configurations": [
                {"name": "baseline"},
                {"name": "eagle3-topk4-v1", "args": eagle(4, 16), "env": {SPEC_V2: "False"}},
                {"name": "eagle3-topk1-spec-v2", "args": eagle(1, 4), "env": {SPEC_V2: "True"}},
                {"name": "mislabelled-spec-v2", "args": eagle(1, 4)},
            ],
            "benchmark": {"concurrencies": [2], "launch": "process", "client_lag_ms": 1000.0},
            "workload": {"output_tokens": 8},
            "choose": {"mix": [{"concurrency": 2, "share": 1}]},
            "service": {"unit": "standin.service"},
        },
        "test",
    )


def test_three_configurations_measured_and_a_mislabelled_one_void(parameters, tmp_path):
    engine = engine_for(parameters.server)
    launcher = ProcessLauncher(tmp_path / "logs")
    folder = tmp_path / "run"
    folder.mkdir()
    found = measure_briefly(parameters, launcher, engine, folder, lambda *_: None)
    cells = {cell.config: cell for cell in found.cells}
    for name, length in (
        ("baseline", None),
        ("eagle3-topk4-v1", 7 / 3),
        ("eagle3-topk1-spec-v2", 7 / 3),
    ):
        assert (cells[name].status, cells[name].errors) == ("ok", 0), cells[name].note
        assert cells[name].accept_length == (length and pytest.approx(length, abs=0.01))
    void = cells["mislabelled-spec-v2"]
    assert void.status == "void"
    assert "check worker failed: found v1, wanted v2 overlap" in void.note

    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "key"]
    assert not [path for path in written if b"s3cret" in path.read_bytes()]
