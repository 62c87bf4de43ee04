"""Alert rules for Prometheus, from the measured figures. Pure.

A rule stands on a figure of the run or on none: each says which. Names of metrics are those that
the servers print: SGLang 0.5.10 to 0.5.23 (``observability/metrics_collector.py`` of its wheels)
and llama.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runbook import strict_yaml
from runbook.cells import Cell
from runbook.launch.spec import LaunchSpec
from runbook.params import Params

#: Acceptance may fall to this share of the least one measured: production prompts scatter more.
ACCEPT_SHARE = 0.8
#: The time per token may grow to this many times the slowest one measured.
TPOT_FACTOR = 1.25
#: Prompts longer than this many times the measured mean are other traffic: limits on the times to
#: a token say nothing of it.
PROMPTS_FACTOR = 1.25


@dataclass(frozen=True)
class Metrics:
    """Names and expressions of an engine, ``{S}`` for the selector; empty where it has none.

    ``accept``: tokens per step. ``prompt_tokens``: mean length of prompts. ``tpot_s``: seconds per
    output token. ``progress``: counters that move with each step of the server's work, the first
    of them in any case; many others count a request when it has ended.
    """

    tokens: str
    running: str
    waiting: str
    accept: str
    ttft_bucket: str
    prompt_tokens: str
    tpot_s: str
    progress: tuple[str, ...]


def _ratio(over: str, under: str) -> str:
    over, under = (f"sum by (job) (rate({name}{{S}}[15m]))" for name in (over, under))
    return f"{over} / {under}"


METRICS = {
    "sglang": Metrics(
        tokens="sglang:generation_tokens_total",
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        # A gauge of the last decode steps; 0 before the first one.
        accept="avg_over_time((sglang:spec_accept_length{S} > 0)[30m:1m])",
        ttft_bucket="sglang:time_to_first_token_seconds_bucket",
        prompt_tokens=_ratio("sglang:prompt_tokens_total", "sglang:num_requests_total"),
        tpot_s=_ratio(
            "sglang:inter_token_latency_seconds_sum", "sglang:inter_token_latency_seconds_count"
        ),
        progress=(
            "sglang:realtime_tokens_total",
            "sglang:generation_tokens_total",
            "sglang:inter_token_latency_seconds_count",
        ),
    ),
    "llamacpp": Metrics(
        tokens="llamacpp:tokens_predicted_total",
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        accept="rate(llamacpp:tokens_predicted_total{S}[30m])"
        " / (rate(llamacpp:tokens_predicted_total{S}[30m])"
        " - rate(llamacpp:spec_decode_num_accepted_tokens_total{S}[30m]))",
        ttft_bucket="",
        prompt_tokens="",
        tpot_s=_ratio("llamacpp:tokens_predicted_seconds_total", "llamacpp:tokens_predicted_total"),
        progress=("llamacpp:n_decode_total", "llamacpp:tokens_predicted_total"),
    ),
}


def job_of(params: Params) -> str:
    """The name of the scrape job: the unit without its suffix."""
    return params.service.unit.removesuffix(".service")


def exposes_nothing(params: Params, spec: LaunchSpec) -> bool:
    """Whether the launch leaves the server's metrics off."""
    return params.server.engine == "sglang" and "--enable-metrics" not in spec.argv


def render_alerts(
    params: Params,
    spec: LaunchSpec,
    cells: Sequence[Cell],
    run: str,
    prompts: Sequence[int] = (),
) -> str:
    """The rules, a file for ``rule_files`` of Prometheus. ``prompts``: tokens of each prompt that
    was measured with."""
    job, unit = job_of(params), params.service.unit
    names = METRICS[params.server.engine]
    metered = not exposes_nothing(params, spec)
    rules = [_down(job), _failed(unit), _drift(job), _restarts(names if metered else None, unit)]
    if metered:
        rules += _of_load(names, job, cells)
        rules += _of_tokens(names, job, cells, prompts)
    head = (
        f"# Rules for {unit}, from the figures of run {run or 'none'}.\n"
        "# Failed, drift and restarts need node_exporter with --collector.systemd and\n"
        "# --collector.systemd.enable-start-time-metrics; drift needs "
        f"{job}-drift.timer.\n"
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


def _failed(unit: str) -> Any:
    """It has used up its tries: nobody starts it but a person."""
    expr = f'node_systemd_unit_state{{name="{unit}",state="failed"}} == 1'
    said = f"{unit} has failed and is started no more: journalctl -u {unit}, correct it, then "
    said += f"systemctl reset-failed {unit} && systemctl start {unit}"
    return _rule("LlmServerFailed", expr, "0m", said, "critical")


def _drift(job: str) -> Any:
    unit = f'node_systemd_unit_state{{name="{job}-drift.service",state="failed"}} == 1'
    return _rule("LlmServerDrift", unit, "0m", f"{job} is not what was measured: runbook drift")


def _restarts(names: Metrics | None, unit: str) -> Any:
    """A server that serves and then crashes is restarted without end: this tells of it."""
    job = unit.removesuffix(".service")
    expr = f'changes(node_systemd_unit_start_time_seconds{{name="{unit}"}}[1h]) >= 2'
    if names is not None:
        expr = f'resets({names.tokens}{{job="{job}"}}[1h]) >= 2 or {expr}'
    return _rule("LlmServerRestarts", expr, "0m", f"{job} restarted twice within an hour")


def _of_load(names: Metrics, job: str, cells: Sequence[Cell]) -> Iterator[Any]:
    select = f'{{job="{job}"}}'
    queue = f"{names.waiting}{select} > 0"
    yield _rule("LlmServerQueue", queue, "10m", f"{job}: requests wait in its queue")
    most = max((cell.concurrency for cell in cells), default=None)
    if most is not None:
        load = f"{names.running}{select} + {names.waiting}{select} > {most}"
        said = f"{job} has more requests at once than were ever measured ({most})"
        yield _rule("LlmServerBeyondMeasured", load, "10m", said)
    lengths = [cell.accept_length for cell in cells if cell.accept_length is not None]
    if lengths and max(lengths) > 1:
        said = (
            f"{job}: drafts are accepted less than measured "
            f"({min(lengths):.2f} to {max(lengths):.2f} tokens a step)"
        )
        least = ACCEPT_SHARE * min(lengths)
        expr = f"{names.accept.replace('{S}', select)} < {least:.4g}"
        yield _rule("LlmServerAcceptance", expr, "30m", said)


def _of_tokens(
    names: Metrics, job: str, cells: Sequence[Cell], prompts: Sequence[int]
) -> Iterator[Any]:
    """Limits on the times to a token. They hold for prompts as long as the measured ones: where
    the engine tells the mean length of prompts, longer ones have an alert of their own instead."""
    select = f'{{job="{job}"}}'
    while_as_long, with_prompts = "", ""
    if prompts:
        mean = sum(prompts) / len(prompts)
        with_prompts = f", measured with prompts of {mean:.0f} tokens (up to {max(prompts)})"
        if names.prompt_tokens:
            length, limit = names.prompt_tokens.replace("{S}", select), PROMPTS_FACTOR * mean
            while_as_long = f" and on (job) {length} <= {limit:.6g}"
            said = f"{job}: prompts are longer than those it was measured with (mean {mean:.0f} "
            said += "tokens); its limits on times do not hold: measure with prompts like these"
            yield _rule("LlmServerLongerPrompts", f"{length} > {limit:.6g}", "30m", said)
    ttft = [cell.ttft_p99_ms for cell in cells if cell.ttft_p99_ms is not None]
    if names.ttft_bucket and ttft:
        limit_s = max(ttft) / 1000
        rate = f"sum by (job, le) (rate({names.ttft_bucket}{select}[15m]))"
        expr = f"histogram_quantile(0.99, {rate}) > {limit_s:.6g}{while_as_long}"
        said = f"{job}: p99 of the time to the first token is beyond {limit_s:.3g} s{with_prompts}"
        yield _rule("LlmServerFirstToken", expr, "15m", said)
    tpot = [cell.tpot_p50_ms for cell in cells if cell.tpot_p50_ms is not None]
    if tpot:
        limit_s = TPOT_FACTOR * max(tpot) / 1000
        expr = f"{names.tpot_s.replace('{S}', select)} > {limit_s:.6g}{while_as_long}"
        said = f"{job}: the mean time per output token is beyond {1000 * limit_s:.3g} ms, "
        said += f"{TPOT_FACTOR:g} times the slowest median{with_prompts or ' measured'}"
        yield _rule("LlmServerTokenTime", expr, "15m", said)
