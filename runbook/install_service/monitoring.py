"""What hands a service over to monitoring: a scrape and alert rules for Prometheus, and a check
that it lives, from the measured figures.

Rendering is pure; ``record_monitoring`` writes it all into a run folder. A rule stands on a figure
of the run or on none: each says which.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook import strict_yaml
from runbook.cells import Cell
from runbook.install_service.measured import measured_cells, spec_from
from runbook.install_service.places import Target
from runbook.launch.quoting import exec_line
from runbook.launch.server import local_url
from runbook.launch.spec import LaunchSpec
from runbook.launch.unit_file import parse_unit
from runbook.params import Params
from runbook.probe.gate import LATE
from runbook.run import Run

SCRAPE, ALERTS = "prometheus-scrape.yaml", "prometheus-alerts.yaml"

#: Acceptance may fall to this share of the least one measured: production prompts scatter more.
ACCEPT_SHARE = 0.8


@dataclass(frozen=True)
class Metrics:
    """Names of an engine; empty where it has none. ``accept``: expression of tokens per step."""

    tokens: str
    running: str
    waiting: str
    accept: str
    ttft_bucket: str


METRICS = {
    "sglang": Metrics(
        tokens="sglang:generation_tokens_total",
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        accept="(rate(sglang:generation_tokens_total{S}[30m])"
        " - rate(sglang:num_requests_total{S}[30m]))"
        " / rate(sglang:spec_verify_calls_total{S}[30m])",
        ttft_bucket="sglang:time_to_first_token_seconds_bucket",
    ),
    "llamacpp": Metrics(
        tokens="llamacpp:tokens_predicted_total",
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        accept="rate(llamacpp:tokens_predicted_total{S}[30m])"
        " / (rate(llamacpp:tokens_predicted_total{S}[30m])"
        " - rate(llamacpp:spec_decode_num_accepted_tokens_total{S}[30m]))",
        ttft_bucket="",
    ),
}


#: A service that does not answer a short request in so many times its slowest first token (p99),
#: and never less than the floor, is taken for dead: a long prefill must not end it.
ALIVE_FACTOR, ALIVE_FLOOR_S = 20, 60.0
ALIVE_EVERY_S = 60.0


def render_liveness(params: Params, target: Target, cells: Sequence[Cell]) -> dict[str, str]:
    """Name -> text of a unit and a timer that restart the service when it gives no completion.

    A process that lives and a health page that says 200 are no sign of life. What keeps the check
    itself from asking, another key or a guard that is gone, makes it fail and restarts nobody.
    Handed over, not installed: put both into ``/etc/systemd/system`` and enable the timer.
    """
    unit, name = params.service.unit, f"{job_of(params)}-alive"
    slowest_ms = max((c.ttft_p99_ms for c in cells if c.ttft_p99_ms is not None), default=0.0)
    limit_s = round(max(ALIVE_FLOOR_S, ALIVE_FACTOR * slowest_ms / 1000))
    gate = parse_unit(target.unit_text).command("ExecStartPost", 0)
    gate = gate[: gate.index("--deadline")]
    ask = shlex.join([*gate, "--deadline", str(limit_s)])
    restart = f"exec systemctl restart --no-block {shlex.quote(unit)}"
    script = f"{ask}; code=$?; test $code -ne {LATE} || {restart}; exit $code"
    key = params.server.api_key
    service = [
        f"# {unit} is restarted when it has not given a completion within {limit_s} s.",
        "[Unit]",
        f"Description=Whether {unit} answers",
        "[Service]",
        "Type=oneshot",
        f"ExecCondition=/usr/bin/systemctl is-active --quiet {unit}",
        *([f"LoadCredential=api-key:{key.file}"] if key else []),
        f"ExecStart={exec_line(('/bin/sh', '-c', script))}",
    ]
    when = (f"OnActiveSec={ALIVE_EVERY_S:g}s", f"OnUnitInactiveSec={ALIVE_EVERY_S:g}s")
    said = f"Every {ALIVE_EVERY_S:g} s: whether {unit} answers"
    return _with_timer(name, service, said, when)


def render_drift(params: Params, runbook: str, run: str) -> dict[str, str]:
    """Name -> text of a unit and a timer that fail with the list when there is drift.

    ``runbook``: the program, ``run``: the run folder, both paths of the machine they are put on.
    """
    unit = params.service.unit
    service = [
        f"# It fails when {unit} is not what was installed and measured; its journal has the list.",
        "[Unit]",
        f"Description=Whether {unit} is what was measured",
        "[Service]",
        "Type=oneshot",
        f"ExecStart={exec_line((runbook, 'drift', run))}",
    ]
    when = ("OnCalendar=hourly", "RandomizedDelaySec=5min", "Persistent=yes")
    said = f"Every hour: whether {unit} is what was measured"
    return _with_timer(f"{job_of(params)}-drift", service, said, when)


def _with_timer(name: str, service: list[str], said: str, when: Sequence[str]) -> dict[str, str]:
    install = ["[Install]", "WantedBy=timers.target"]
    timer = ["[Unit]", f"Description={said}", "[Timer]", *when, *install]
    texts = {f"{name}.service": service, f"{name}.timer": timer}
    return {file: "\n".join(lines) + "\n" for file, lines in texts.items()}


def job_of(params: Params) -> str:
    """The name of the scrape job: the unit without its suffix."""
    return params.service.unit.removesuffix(".service")


def render_scrape(params: Params, spec: LaunchSpec) -> str:
    """A piece of ``prometheus.yml`` that reads the server's metrics."""
    job: dict[str, Any] = {
        "job_name": job_of(params),
        "metrics_path": "/metrics",
        "static_configs": [{"targets": [local_url(params.server).removeprefix("http://")]}],
    }
    if params.server.api_key is not None:
        job["authorization"] = {"credentials_file": params.server.api_key.file}
    head = "# For a Prometheus on the host itself; from elsewhere, set the target's address.\n"
    if _exposes_nothing(params, spec):
        head += "# This launch exposes no metrics: --enable-metrics is not among its arguments.\n"
    return head + strict_yaml.dump({"scrape_configs": [job]})


def _exposes_nothing(params: Params, spec: LaunchSpec) -> bool:
    return params.server.engine == "sglang" and "--enable-metrics" not in spec.argv


def render_alerts(params: Params, spec: LaunchSpec, cells: Sequence[Cell], run: str) -> str:
    """The rules, a file for ``rule_files`` of Prometheus."""
    job = job_of(params)
    rules = [_down(job), _drift(job)]
    if not _exposes_nothing(params, spec):
        rules = [*rules, *_of_figures(METRICS[params.server.engine], job, cells)]
    head = (
        f"# Rules for {params.service.unit}, from the figures of run {run or 'none'}.\n"
        f"# That on drift needs node_exporter with --collector.systemd, and {job}-drift.timer.\n"
    )
    return head + strict_yaml.dump({"groups": [{"name": job, "rules": rules}]})


def _rule(name: str, expr: str, lasts: str, summary: str, severity: str = "warning") -> Any:
    return {
        "alert": name,
        "expr": expr,
        "for": lasts,
        "labels": {"severity": severity},
        "annotations": {"summary": summary},
    }


def _down(job: str) -> Any:
    summary = f"{job} does not answer; runbook service status and logs say why"
    return _rule("LlmServerDown", f'up{{job="{job}"}} == 0', "2m", summary, "critical")


def _drift(job: str) -> Any:
    unit = f'node_systemd_unit_state{{name="{job}-drift.service",state="failed"}} == 1'
    return _rule("LlmServerDrift", unit, "0m", f"{job} is not what was measured: runbook drift")


def _of_figures(names: Metrics, job: str, cells: Sequence[Cell]) -> Iterator[Any]:
    select = f'{{job="{job}"}}'
    restarts = f"resets({names.tokens}{select}[1h]) >= 2"
    yield _rule("LlmServerRestarts", restarts, "0m", f"{job} restarted twice within an hour")
    most = max((cell.concurrency for cell in cells), default=None)
    queue = f"{names.waiting}{select} > 0"
    yield _rule("LlmServerQueue", queue, "10m", f"{job}: requests wait in its queue")
    if most is not None:
        load = f"{names.running}{select} + {names.waiting}{select} > {most}"
        said = f"{job} has more requests at once than were ever measured ({most})"
        yield _rule("LlmServerBeyondMeasured", load, "10m", said)
    yield from _acceptance(names, select, job, cells)
    ttft = [cell.ttft_p99_ms for cell in cells if cell.ttft_p99_ms is not None]
    if names.ttft_bucket and ttft:
        limit_s = max(ttft) / 1000
        rate = f"sum by (le) (rate({names.ttft_bucket}{select}[15m]))"
        said = f"{job}: p99 of the time to the first token is beyond the measured {limit_s:.3g} s"
        expr = f"histogram_quantile(0.99, {rate}) > {limit_s:.6g}"
        yield _rule("LlmServerFirstToken", expr, "15m", said)


def _acceptance(
    names: Metrics, select: str, job: str, cells: Sequence[Cell]
) -> Iterator[Mapping[str, Any]]:
    lengths = [cell.accept_length for cell in cells if cell.accept_length is not None]
    if not lengths or max(lengths) <= 1:
        return
    least = ACCEPT_SHARE * min(lengths)
    said = (
        f"{job}: drafts are accepted less than measured "
        f"({min(lengths):.2f} to {max(lengths):.2f} tokens a step)"
    )
    expr = f"{names.accept.replace('{S}', select)} < {least:.4g}"
    yield _rule("LlmServerAcceptance", expr, "30m", said)


def record_monitoring(run: Run, params: Params, target: Target) -> None:
    """Write what hands a service over to monitoring into the run folder."""
    spec = spec_from(target.manifest["spec"])
    cells = measured_cells(run, target.manifest["configuration"])
    scrape = render_scrape(params, spec)
    alerts = render_alerts(params, spec, cells, run.path.name)
    run.write(f"service/{SCRAPE}", scrape)
    run.write(f"service/{ALERTS}", alerts)
    program = str(Path(sys.executable).with_name("runbook"))
    units = render_liveness(params, target, cells)
    units |= render_drift(params, program, str(run.path))
    for name, text in units.items():
        run.write(f"service/{name}", text)
