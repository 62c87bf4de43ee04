"""GenAI-Perf's ``profile_export_genai_perf.json``: AIPerf's forerunner, and its metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runbook.foreign import aiperf
from runbook.foreign.document import Fields
from runbook.foreign.result import Result

TOOL = "GenAI-Perf"

DEFINITIONS = (
    "per-token time is its inter_token_latency, (end-to-end - TTFT) / (tokens - 1) of a request",
    "tokens are counted again with a tokenizer of the client",
    "throughput is that of its last measurement window, or of all requests where their number was "
    "set",
    "the acceptance length is not in the file",
)

#: What only the configuration of GenAI-Perf holds, in its newer and its older form.
_OWN = ("perf_analyzer", "service_kind", "subcommand", "profile_export_file", "concurrency")


def fits(value: Mapping[str, Any]) -> bool:
    """Whether an object is a summary of GenAI-Perf: AIPerf's metrics, another configuration."""
    config = value.get("input_config")
    if not aiperf.fits(value) or not isinstance(config, Mapping):
        return False
    endpoint = config.get("endpoint")
    kind = isinstance(endpoint, Mapping) and "service_kind" in endpoint
    return kind or any(name in config for name in _OWN)


def read(fields: Fields) -> Iterator[Result]:
    """The one result of a summary."""
    config = fields.below("input_config")
    analyzer = config.below("perf_analyzer")
    stimulus = analyzer.below("stimulus")
    asked = analyzer.below("measurement").count("request_count") or config.count("request_count")
    yield Result(
        tool=TOOL,
        place=fields.place,
        name=None,
        concurrency=config.count("concurrency") or stimulus.count("concurrency"),
        context_tokens=_context(config),
        requests=fields.below("request_count").count("avg"),
        output_tok_s=aiperf.throughput(fields),
        ttft_p50_ms=aiperf.milliseconds(fields, "time_to_first_token", "p50"),
        ttft_p99_ms=aiperf.milliseconds(fields, "time_to_first_token", "p99"),
        tpot_p50_ms=aiperf.milliseconds(fields, "inter_token_latency", "p50"),
        tpot_p99_ms=aiperf.milliseconds(fields, "inter_token_latency", "p99"),
        input_tokens=fields.below("input_sequence_length").measured("avg"),
        output_tokens=fields.below("output_sequence_length").measured("avg"),
        timed=not asked,
        void=tuple(_void(config, stimulus)),
        remarks=("failed requests are not in the file",),
    )


def _context(config: Fields) -> int | None:
    """The input length that was asked for; a file of prompts has none."""
    asked = config.below("input")
    length = None if asked.value.get("file") else asked.below("synthetic_tokens").number("mean")
    return None if length is None else round(length)


def _void(config: Fields, stimulus: Fields) -> Iterator[str]:
    if stimulus.value.get("request_rate") or config.value.get("request_rate"):
        yield "an open loop: its throughput is what was asked, not what can be"
