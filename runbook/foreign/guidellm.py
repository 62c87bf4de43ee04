"""GuideLLM's report: JSON with a list of benchmarks, one a load. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runbook.foreign.document import Fields
from runbook.foreign.result import Result

TOOL = "GuideLLM"

DEFINITIONS = (
    "per-token time is its inter_token_latency (from the first token on), weighted by tokens; its "
    "time_per_output_token has TTFT in it and is not used",
    "TTFT is up to the first piece of the stream that carried tokens",
    "throughput is the mean rate of answered requests in its window, warm-up and cool-down left "
    "out where they were set",
    "the acceptance length is not in the file",
)

_BUSY = 0.9


def fits(value: Mapping[str, Any]) -> bool:
    """Whether an object is a report of GuideLLM."""
    benchmarks = value.get("benchmarks")
    if not isinstance(benchmarks, list):
        return False
    return "metadata" in value or any(
        isinstance(one, Mapping) and "metrics" in one for one in benchmarks
    )


def read(fields: Fields) -> Iterator[Result]:
    """A result for each benchmark of a report."""
    name = _name(fields)
    for number, one in enumerate(fields.each("benchmarks"), 1):
        yield _result(Fields(one.value, f"{fields.place}: benchmark {number}"), name)


def _name(fields: Fields) -> str | None:
    """The label ``name`` that was given with the scenario; older reports carry none."""
    return fields.below("config").below("metadata").below("labels").text("name")


def _result(fields: Fields, name: str | None) -> Result:
    metrics = fields.below("metrics")
    totals = metrics.below("request_totals")
    good, bad = totals.count("successful"), totals.count("errored")
    ttft, tpot = _of(metrics, "time_to_first_token_ms"), _of(metrics, "inter_token_latency_ms")
    concurrency, void = _load(fields)
    return Result(
        tool=TOOL,
        place=fields.place,
        name=name,
        concurrency=concurrency,
        requests=None if good is None else good + (bad or 0),
        errors=bad,
        output_tok_s=_of(metrics, "output_tokens_per_second").measured("mean"),
        ttft_p50_ms=ttft.below("percentiles").measured("p50"),
        ttft_p99_ms=ttft.below("percentiles").measured("p99"),
        tpot_p50_ms=tpot.below("percentiles").measured("p50"),
        tpot_p99_ms=tpot.below("percentiles").measured("p99"),
        input_tokens=_of(metrics, "prompt_token_count").measured("mean"),
        output_tokens=_of(metrics, "output_token_count").measured("mean"),
        timed=_is_timed(fields),
        void=(void,) if void else (),
        remarks=tuple(_remarks(metrics, totals, concurrency)),
    )


def _of(metrics: Fields, name: str) -> Fields:
    """The distribution of a metric over the answered requests."""
    return metrics.below(name).below("successful")


def _load(fields: Fields) -> tuple[int | None, str]:
    """Requests kept in flight, and why the load is no closed loop."""
    strategy = fields.below("config").below("strategy")
    if not strategy.value:
        strategy = fields.below("args").below("strategy")
    kind = strategy.text("type_")
    if kind == "synchronous":
        return 1, ""
    if kind in ("concurrent", None):
        return strategy.count("streams"), ""
    return (
        strategy.count("max_concurrency"),
        f"a load of the kind {kind}: no closed loop at a concurrency",
    )


def _is_timed(fields: Fields) -> bool:
    """Whether a length in seconds ended the run; older reports keep it among the arguments."""
    config = fields.below("config")
    limits = (config.below("constraints"), config, fields.below("args"))
    return any(limit.value.get("max_seconds") for limit in limits)


def _remarks(metrics: Fields, totals: Fields, concurrency: int | None) -> Iterator[str]:
    cut = totals.count("incomplete")
    if cut:
        yield f"{cut} requests were cut off by the end of the run and are in no figure"
    in_flight = _of(metrics, "request_concurrency").measured("mean")
    if in_flight is not None and concurrency and in_flight < _BUSY * concurrency:
        yield f"({in_flight:.0f}/{concurrency}): {in_flight:.1f} in flight on average"
