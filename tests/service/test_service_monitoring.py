"""The hand-over to Prometheus is parsed, by its own tool where there is one."""

import dataclasses
import re
import shutil
import subprocess

import pytest
import yaml
from standin_service import Folder, make_measured, make_params

from runbook.cells import Cell, to_csv
from runbook.install_service import record_monitoring
from runbook.install_service.monitoring import METRICS, render_alerts, render_scrape
from runbook.install_service.plan import make_target
from runbook.params import ApiKey

CELLS = [
    Cell("fast", 1, 1, 1, output_tok_s=90.0, ttft_p99_ms=120.0, accept_length=2.5),
    Cell("fast", 1, 1, 30, output_tok_s=700.0, ttft_p99_ms=900.0, accept_length=2.0),
]


def params(engine="sglang", **server):
    made = make_params(18080)
    return made.model_copy(
        update={"server": made.server.model_copy(update={"engine": engine, **server})}
    )


def spec(*words):
    return dataclasses.replace(make_measured(18080).spec, argv=("/p", *words))


METERED = spec("--enable-metrics")


def rules(text):
    [group] = yaml.safe_load(text)["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_the_thresholds_are_the_measured_figures():
    found = rules(render_alerts(params(), METERED, CELLS, "a-run"))
    assert found["LlmServerFirstToken"]["expr"].endswith("> 0.9")
    assert found["LlmServerAcceptance"]["expr"].endswith("< 1.6")
    assert "2.00 to 2.50" in found["LlmServerAcceptance"]["annotations"]["summary"]
    assert found["LlmServerBeyondMeasured"]["expr"].endswith("> 30")
    assert set(found) >= {"LlmServerDown", "LlmServerRestarts", "LlmServerQueue", "LlmServerDrift"}
    for rule in found.values():
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert "{S}" not in rule["expr"]


def test_what_was_not_measured_has_no_rule():
    bare = [dataclasses.replace(cell, ttft_p99_ms=None, accept_length=1.0) for cell in CELLS]
    found = rules(render_alerts(params(), METERED, bare, ""))
    assert not {"LlmServerFirstToken", "LlmServerAcceptance"} & set(found)
    assert "LlmServerBeyondMeasured" not in rules(render_alerts(params(), METERED, [], ""))
    assert "LlmServerFirstToken" not in rules(render_alerts(params("llamacpp"), METERED, CELLS, ""))


def test_a_launch_without_metrics_is_said_and_gets_no_rules_on_them():
    assert "--enable-metrics" in render_scrape(params(), spec())
    assert set(rules(render_alerts(params(), spec(), CELLS, ""))) == {
        "LlmServerDown",
        "LlmServerDrift",
    }
    assert "--enable-metrics" not in render_scrape(params(), METERED)


@pytest.mark.parametrize(
    ("address", "where"), [("0.0.0.0", "127.0.0.1:18080"), ("::", "[::1]:18080")]
)
def test_the_scrape_names_the_server_and_where_its_key_lies(address, where):
    key = ApiKey(file="/etc/key")
    [job] = yaml.safe_load(render_scrape(params(address=address, api_key=key), METERED))[
        "scrape_configs"
    ]
    assert job["static_configs"] == [{"targets": [where]}]
    assert job["authorization"] == {"credentials_file": "/etc/key"}
    assert job["job_name"] == "standin"


def test_every_engine_of_the_parameters_has_metrics():
    assert set(METRICS) == {"sglang", "llamacpp"}


def test_all_files_lie_in_the_run(tmp_path):
    folder = Folder(tmp_path)
    folder.write("cells.csv", to_csv([*CELLS, Cell("fast", 2, 2, 900, status="void")]))
    made = make_target(
        params(), "fast", make_measured(18080), "# gate\n", "/usr/bin/python3", "run"
    )
    record_monitoring(folder, params(), made)
    alive = ["standin-alive.service", "standin-alive.timer"]
    names = ["prometheus-alerts.yaml", "prometheus-scrape.yaml", *alive]
    assert sorted(path.name for path in (tmp_path / "service").iterdir()) == names


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")
@pytest.mark.parametrize("engine", ["sglang", "llamacpp"])
def test_prometheus_takes_both(engine, tmp_path):
    (tmp_path / "alerts.yaml").write_text(render_alerts(params(engine), METERED, CELLS, "run"))
    (tmp_path / "scrape.yaml").write_text(render_scrape(params(engine), METERED))
    for words in (["rules", "alerts.yaml"], ["config", "scrape.yaml"]):
        done = subprocess.run(["promtool", "check", *words], cwd=tmp_path, capture_output=True)
        assert done.returncode == 0, done.stderr
