"""AIPerf's ``profile_export_aiperf.json``: one object a run, a unit with each metric. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runbook.errors import BadInput
from runbook.foreign.document import Fields
from runbook.foreign.result import Result

TOOL = "AIPerf"

DEFINITIONS = (
    "per-token time is its inter_token_latency, (end-to-end - TTFT) / (tokens - 1) of a request",
    "tokens are counted again with a tokenizer of the client, unless --use-server-token-count",
    "throughput counts ramp-up and ramp-down of the profiling phase",
    "the acceptance length is not read from the file",
)

_TO_MS = {"ns": 1e-6, "us": 1e-3, "\u00b5s": 1e-3, "ms": 1.0}
_TO_MS |= dict.fromkeys(("s", "sec", "seconds"), 1e3)
_A_SECOND = ("tokens/sec", "tokens/s", "tokens/second")


#: Names of a phase's length in seconds, where it was not bounded by a number of requests.
_DURATIONS = ("benchmark_duration", "duration")


def fits(value: Mapping[str, Any]) -> bool:
    """Whether an object is a summary of AIPerf: metrics are objects that bear a unit."""
    metric = value.get("output_token_throughput") or value.get("request_throughput")
    return isinstance(metric, Mapping) and ("avg" in metric or "unit" in metric)


def read(fields: Fields) -> Iterator[Result]:
    """The one result of a summary."""
    config = fields.below("input_config")
    phase = _profiling_phase(config)
    good = fields.below("request_count").count("avg")
    bad = fields.below("error_request_count").count("avg")
    if bad is None and good is not None:
        bad = 0  # the metric is written only where a request failed
    yield Result(
        tool=TOOL,
        place=fields.place,
        name=None,
        concurrency=_concurrency(fields, phase),
        context_tokens=_context(config),
        requests=None if good is None else good + (bad or 0),
        errors=bad,
        output_tok_s=throughput(fields),
        ttft_p50_ms=milliseconds(fields, "time_to_first_token", "p50"),
        ttft_p99_ms=milliseconds(fields, "time_to_first_token", "p99"),
        tpot_p50_ms=milliseconds(fields, "inter_token_latency", "p50"),
        tpot_p99_ms=milliseconds(fields, "inter_token_latency", "p99"),
        input_tokens=fields.below("input_sequence_length").measured("avg"),
        output_tokens=fields.below("output_sequence_length").measured("avg"),
        timed=any(phase.value.get(name) for name in _DURATIONS),
        void=tuple(_void(fields, phase)),
    )


def _profiling_phase(config: Fields) -> Fields:
    """The phase that was measured; older files describe their only one in ``loadgen``."""
    phases = config.value.get("phases")
    if isinstance(phases, Mapping):
        return config.below("phases").below("profiling")
    if not isinstance(phases, list):
        return config.below("loadgen")
    listed = list(config.each("phases"))
    measured = [one for one in listed if "profiling" in (one.text("kind"), one.text("name"))]
    return measured[-1] if measured else Fields({}, config.place)


def _concurrency(fields: Fields, phase: Fields) -> int | None:
    swept = fields.below("run_info").below("variation_values")
    paths = [path for path in swept.value if path.rpartition(".")[2] == "concurrency"]
    return swept.count(paths[0]) if paths else phase.count("concurrency")


def _context(config: Fields) -> int | None:
    """The input length that was asked for, in either form of the configuration."""
    prompt = config.value.get("input")
    if not isinstance(prompt, Mapping):
        return None
    length = config.below("input").below("prompt").below("input_tokens").number("mean")
    return None if length is None else round(length)


def throughput(fields: Fields) -> float | None:
    """Output tokens a second. Raises ``BadInput`` where the file counts them by another unit."""
    block = fields.below("output_token_throughput")
    unit = block.text("unit") or _A_SECOND[0]
    if unit not in _A_SECOND:
        raise _strange_unit(fields, "output_token_throughput", unit, _A_SECOND)
    return block.measured("avg")


def milliseconds(fields: Fields, metric: str, statistic: str) -> float | None:
    """A statistic of a time, by the unit that stands with it. Raises ``BadInput``."""
    block = fields.below(metric)
    value = block.measured(statistic)
    if value is None:
        return None
    unit = block.text("unit") or "ms"
    if unit not in _TO_MS:
        raise _strange_unit(fields, metric, unit, _TO_MS)
    return value * _TO_MS[unit]


def _strange_unit(fields: Fields, metric: str, unit: str, known: Iterable[str]) -> BadInput:
    return BadInput(
        f"{fields.place}: {metric}.unit is {unit!r}",
        "one of " + ", ".join(known),
        "give the file as the tool wrote it",
    )


def _void(fields: Fields, phase: Fields) -> Iterator[str]:
    if fields.value.get("was_cancelled") is True:
        yield "the run was cancelled before its end"
    kind = phase.text("type")
    rate = phase.value.get("request_rate") or phase.value.get("rate")
    if rate is not None or kind not in (None, "concurrency"):
        yield "an open loop: its throughput is what was asked, not what can be"
