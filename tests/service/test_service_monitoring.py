"""The hand-over to Prometheus is parsed, by its own tool where there is one."""

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from boxes import leave_out, program
from standin_service import UNIT, Folder, make_measured, make_params

from runbook.cells import Cell, to_csv
from runbook.errors import Blocked, NotHere
from runbook.install_service import (
    install,
    monitor,
    plan_uninstall,
    record_monitoring,
    status,
    uninstall,
)
from runbook.install_service.alerts import METRICS, render_alerts
from runbook.install_service.monitoring import render_scrape
from runbook.install_service.plan import make_target
from runbook.launch.unit_file import parse_unit
from runbook.params import ApiKey

CELLS = [
    Cell(
        "fast", 1, 1, 1, output_tok_s=90.0, ttft_p99_ms=120.0, tpot_p50_ms=10.0, accept_length=2.5
    ),
    Cell(
        "fast", 1, 1, 30, output_tok_s=700.0, ttft_p99_ms=900.0, tpot_p50_ms=40.0, accept_length=2.0
    ),
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
    assert found["LlmServerTokenTime"]["expr"].endswith("> 0.05")
    assert found["LlmServerAcceptance"]["expr"].endswith("< 1.6")
    assert "2.00 to 2.50" in found["LlmServerAcceptance"]["annotations"]["summary"]
    assert found["LlmServerBeyondMeasured"]["expr"].endswith("> 30")
    assert set(found) >= {"LlmServerDown", "LlmServerRestarts", "LlmServerQueue", "LlmServerDrift"}
    for rule in found.values():
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert "{S}" not in rule["expr"]


@pytest.mark.parametrize(
    ("lengths", "limit", "told"),
    [([40, 60], "62.5", "prompts of 50 tokens (up to 60)"), ([8000], "10000", "of 8000 tokens")],
)
def test_limits_on_times_hold_for_prompts_as_long_as_the_measured_ones(lengths, limit, told):
    found = rules(render_alerts(params(), METERED, CELLS, "a-run", lengths))
    for name in ("LlmServerFirstToken", "LlmServerTokenTime"):
        assert found[name]["expr"].endswith(f"<= {limit}")
        assert told in found[name]["annotations"]["summary"]
    assert found["LlmServerLongerPrompts"]["expr"].endswith(f"> {limit}")
    plain = rules(render_alerts(params("llamacpp"), METERED, CELLS, "a-run", lengths))
    assert "LlmServerLongerPrompts" not in plain, "it does not tell how long its prompts are"
    assert told in plain["LlmServerTokenTime"]["annotations"]["summary"]


#: What SGLang registers, as read in its wheels of 0.5.10.post1, 0.5.12.post1 and 0.5.23.
EXPOSED = {
    "generation_tokens_total",
    "inter_token_latency_seconds",
    "num_queue_reqs",
    "num_requests_total",
    "num_running_reqs",
    "prompt_tokens_total",
    "realtime_tokens_total",
    "spec_accept_length",
    "time_to_first_token_seconds",
}


def test_each_rule_asks_for_what_every_pinned_release_exposes():
    text = render_alerts(params(), METERED, CELLS, "run", [50])
    asked = set(re.findall(r"sglang:(\w+)", text))
    assert {re.sub("_(sum|count|bucket)$", "", name) for name in asked} <= EXPOSED
    assert "spec_accept_length" in asked


def test_what_was_not_measured_has_no_rule():
    bare = [
        dataclasses.replace(cell, ttft_p99_ms=None, tpot_p50_ms=None, accept_length=1.0)
        for cell in CELLS
    ]
    found = rules(render_alerts(params(), METERED, bare, ""))
    absent = {"LlmServerFirstToken", "LlmServerTokenTime", "LlmServerAcceptance"}
    assert not absent & set(found)
    assert "LlmServerBeyondMeasured" not in rules(render_alerts(params(), METERED, [], ""))
    assert "LlmServerFirstToken" not in rules(render_alerts(params("llamacpp"), METERED, CELLS, ""))


def test_a_launch_without_metrics_is_said_and_gets_no_rules_on_them():
    assert "--enable-metrics" in render_scrape(params(), spec())
    assert set(rules(render_alerts(params(), spec(), CELLS, ""))) == {
        "LlmServerDown",
        "LlmServerDrift",
        "LlmServerFailed",
        "LlmServerRestarts",
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
        params(), "fast", make_measured(18080), "# guard\n", "/usr/bin/python3", "run"
    )
    record_monitoring(folder, params(), made)
    timed = [
        f"standin-{what}.{kind}" for what in ("alive", "drift") for kind in ("service", "timer")
    ]
    names = ["prometheus-alerts.yaml", "prometheus-scrape.yaml", *timed]
    assert sorted(path.name for path in (tmp_path / "service").iterdir()) == names
    text = (tmp_path / "service/standin-drift.service").read_text()
    program, *words = parse_unit(text).command()
    assert Path(program).exists()
    assert words == ["drift", str(tmp_path)]


def promtool(folder, *words):
    """Prometheus' own tool, of Debian's package ``prometheus``."""
    tool = program("promtool")
    if tool is None:
        leave_out("no promtool on this machine: make needs-test")
    done = subprocess.run([tool, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("engine", ["sglang", "llamacpp"])
def test_prometheus_takes_both(engine, tmp_path):
    (tmp_path / "alerts.yaml").write_text(render_alerts(params(engine), METERED, CELLS, "run"))
    (tmp_path / "scrape.yaml").write_text(render_scrape(params(engine), METERED))
    promtool(tmp_path, "check", "rules", "alerts.yaml")
    promtool(tmp_path, "check", "config", "scrape.yaml")


#: What a server shows each minute that is worse in everything than what was measured, by its own
#: names: 1.5 tokens a step, first tokens in 1 to 2 s and others in 60 ms, 40 at once; the prompts
#: have 50 tokens, as the measured ones.
WORSE = {
    "sglang": {
        "sglang:generation_tokens_total": "0+960x60",
        "sglang:num_requests_total": "0+60x60",
        "sglang:prompt_tokens_total": "0+3000x60",
        "sglang:spec_accept_length": "0x9 1.5x50",
        "sglang:inter_token_latency_seconds_sum": "0+54x60",
        "sglang:inter_token_latency_seconds_count": "0+900x60",
        "sglang:num_running_reqs": "30x60",
        "sglang:num_queue_reqs": "10x60",
        'sglang:time_to_first_token_seconds_bucket;le="1"': "0x60",
        'sglang:time_to_first_token_seconds_bucket;le="2"': "0+60x60",
        'sglang:time_to_first_token_seconds_bucket;le="+Inf"': "0+60x60",
    },
    "llamacpp": {
        "llamacpp:tokens_predicted_total": "0+900x60",
        "llamacpp:tokens_predicted_seconds_total": "0+54x60",
        "llamacpp:spec_decode_num_accepted_tokens_total": "0+300x60",
        "llamacpp:requests_processing": "30x60",
        "llamacpp:requests_deferred": "10x60",
    },
}
#: And one that is as measured: 2.25 tokens a step, nothing waits.
AS_MEASURED = {
    "sglang": {
        **WORSE["sglang"],
        "sglang:spec_accept_length": "0x9 2.25x50",
        "sglang:inter_token_latency_seconds_sum": "0+36x60",
        "sglang:num_queue_reqs": "0x60",
        'sglang:time_to_first_token_seconds_bucket;le="0.5"': "0+60x60",
        'sglang:time_to_first_token_seconds_bucket;le="1"': "0+60x60",
    },
    "llamacpp": {
        **WORSE["llamacpp"],
        "llamacpp:spec_decode_num_accepted_tokens_total": "0+500x60",
        "llamacpp:tokens_predicted_seconds_total": "0+36x60",
        "llamacpp:requests_deferred": "0x60",
    },
}
#: The same with prompts of 80 tokens: its times are those of other traffic.
LONGER = {**WORSE["sglang"], "sglang:prompt_tokens_total": "0+4800x60"}
DOWN = {
    'node_systemd_unit_state;name="standin-drift.service",state="failed"': "1x60",
    'node_systemd_unit_state;name="standin.service",state="failed"': "1x60",
}
STARTED = {'node_systemd_unit_start_time_seconds;name="standin.service"': "1x20 2x20 3x20"}


@pytest.mark.parametrize("engine", ["sglang", "llamacpp"])
def test_prometheus_raises_each_alert_for_what_is_worse_than_measured(engine, tmp_path):
    alerts = render_alerts(params(engine), METERED, CELLS, "run", [40, 60])
    (tmp_path / "alerts.yaml").write_text(alerts)
    restarts = {METRICS[engine].tokens: "0+9x38 0+9x9 0+9x12"}
    load = {"LlmServerQueue", "LlmServerBeyondMeasured", "LlmServerAcceptance"}
    first = {"LlmServerFirstToken"} if engine == "sglang" else set()
    worse = {*load, "LlmServerTokenTime", *first}
    longer = [(LONGER | {"up": "1x60"}, load | {"LlmServerLongerPrompts"})]
    cases = [
        (WORSE[engine] | {"up": "1x60"}, worse),
        (AS_MEASURED[engine] | {"up": "1x60"}, set()),
        ({"up": "0x60"} | DOWN, {"LlmServerDown", "LlmServerDrift", "LlmServerFailed"}),
        (restarts, {"LlmServerRestarts"}),
        (STARTED, {"LlmServerRestarts"}),
        *(longer if engine == "sglang" else []),
    ]
    names = set(rules(alerts))
    assert set.union(*(fires for _, fires in cases)) == names
    tests = [
        {
            "interval": "1m",
            "input_series": [
                {"series": series(name), "values": values} for name, values in shown.items()
            ],
            "alert_rule_test": [
                {
                    "eval_time": "50m",
                    "alertname": name,
                    "exp_alerts": [expected(alerts, name, shown)] if name in fires else [],
                }
                for name in sorted(names)
            ],
        }
        for shown, fires in cases
    ]
    text = yaml.safe_dump({"rule_files": ["alerts.yaml"], "tests": tests})
    (tmp_path / "test.yaml").write_text(text)
    promtool(tmp_path, "test", "rules", "test.yaml")


def series(name):
    """A series of the job, with the labels that stand behind a semicolon."""
    name, _, labels = name.partition(";")
    job = "" if name.startswith("node_") else ",".join(['job="standin"', *filter(None, [labels])])
    return f"{name}{{{job or labels}}}"


def expected(alerts, name, shown):
    rule = rules(alerts)[name]
    labels = {"job": "standin"}
    if name == "LlmServerDrift":
        labels = {"name": "standin-drift.service", "state": "failed"}
    if name == "LlmServerFailed":
        labels = {"name": "standin.service", "state": "failed"}
    if shown == STARTED:
        labels = {"name": "standin.service"}
    return {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": rule["annotations"]}


def test_one_command_installs_what_watches_and_an_uninstall_removes_it(deployment, tmp_path):
    box, run = deployment.box, Folder(tmp_path)
    install(box, deployment.plan())
    done = monitor(box, deployment.params, run, "/etc/prometheus")
    units = "/etc/systemd/system"
    root = f"/var/lib/golive-runbook/{UNIT}"
    written = [f"{root}/monitor.py", *(f"{units}/standin-alive.{k}" for k in ("service", "timer"))]
    rules = [f"/etc/prometheus/standin-prometheus-{name}.yaml" for name in ("alerts", "scrape")]
    drift = [f"{units}/standin-drift.{k}" for k in ("service", "timer")]
    assert {line for line in done if "drift" not in line} == {
        *(f"written: {path}" for path in [*written, *rules]),
        "enabled: standin-alive.timer",
    }
    assert box.exists(drift[0]) == (deployment.params.host.kind == "local")
    assert monitor(box, deployment.params, run, "/etc/prometheus") == []
    assert status(box, UNIT).ok, "it is no drift"
    assert monitor(box, deployment.params, run) == [f"removed: {path}" for path in rules]
    box.write(rules[0], "groups: []\n")
    with pytest.raises(Blocked, match="not the runbook's"):
        monitor(box, deployment.params, run, "/etc/prometheus")
    assert box.read(rules[0]) == b"groups: []\n"
    box.remove("/etc/prometheus")
    assert set(written[1:]) <= {line.rpartition(" ")[2] for line in plan_uninstall(box, UNIT)}
    uninstall(box, UNIT)
    assert deployment.left() == []
    assert not box.run("systemctl", "list-timers", "--no-legend", "standin-*").out


def test_a_service_that_is_not_installed_gets_no_monitoring(deployment, tmp_path):
    with pytest.raises(NotHere, match="not installed"):
        monitor(deployment.box, deployment.params, Folder(tmp_path))
