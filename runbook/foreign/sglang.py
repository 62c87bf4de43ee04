"""SGLang's ``bench_serving``: JSONL, one line a run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runbook.cells import QUEUE_LIMITED
from runbook.engines.sglang.info import read_info
from runbook.foreign.document import Fields, mean
from runbook.foreign.result import Result

TOOL = "SGLang bench_serving"

DEFINITIONS = (
    "tokens out are the requested length where the server sent no usage in the stream",
    "TPOT is (end-to-end - TTFT) / (tokens - 1), and end-to-end ends with the last chunk, that of "
    "usage included",
    "acceptance length is the server's average since its start or last flush, not of this run",
    "throughput counts ramp-up and ramp-down, after one warm-up request unless told otherwise",
)

#: Above this, its two counts of the same tokens disagree; above the second they cannot be used.
_COUNT_ALARM, _COUNT_LIMIT = 0.02, 0.10
_BUSY = 0.9
_SETTINGS = (
    "version",
    "model_path",
    "attention_backend",
    "mem_fraction_static",
    "tp_size",
    "dp_size",
    "page_size",
    "kv_cache_dtype",
    "quantization",
    "context_length",
    "disable_cuda_graph",
)


def fits(value: Mapping[str, Any]) -> bool:
    """Whether an object is a line of ``bench_serving``."""
    return {"output_throughput", "median_ttft_ms", "total_output_tokens"} <= set(value) and (
        "total_output_tokens_retokenized" in value or "server_info" in value
    )


def read(fields: Fields) -> Iterator[Result]:
    """The one result of a line."""
    completed = fields.count("completed")
    failed = _failed(fields)
    concurrency = fields.count("max_concurrency")
    cap, settings = _server(fields.value.get("server_info"))
    yield Result(
        tool=TOOL,
        place=fields.place,
        name=fields.text("tag"),
        concurrency=concurrency,
        context_tokens=fields.count("random_input_len") if _is_random(fields) else None,
        requests=None if completed is None else completed + (failed or 0),
        errors=failed,
        output_tok_s=fields.measured("output_throughput"),
        ttft_p50_ms=fields.measured("median_ttft_ms"),
        ttft_p99_ms=fields.measured("p99_ttft_ms"),
        tpot_p50_ms=fields.measured("median_tpot_ms"),
        tpot_p99_ms=fields.measured("p99_tpot_ms"),
        accept_length=fields.measured("accept_length"),
        input_tokens=mean(fields.number("total_input_tokens"), completed),
        output_tokens=mean(fields.number("total_output_tokens"), completed),
        server=settings,
        void=tuple(_void(fields, concurrency, cap)),
        remarks=tuple(_remarks(fields, concurrency, failed)),
    )


def _is_random(fields: Fields) -> bool:
    return (fields.text("dataset_name") or "").startswith("random")


def _failed(fields: Fields) -> int | None:
    """Failed requests; the file tells only with ``--output-details``."""
    errors = fields.value.get("errors")
    return sum(bool(one) for one in errors) if isinstance(errors, list) else None


def _server(said: Any) -> tuple[int | None, Mapping[str, Any]]:
    """Requests the server runs at once, and the settings that decide speed."""
    info = read_info(said)
    if info is None:
        return None, {}
    known = {name: info.settings.get(name) for name in _SETTINGS}
    return info.max_concurrency, {name: value for name, value in known.items() if value is not None}


def open_loop(fields: Fields) -> str | None:
    """Why the load was no closed loop, ``None`` when it was one."""
    rate = fields.value.get("request_rate")
    if rate is None or rate == "inf" or rate == float("inf"):
        return None
    return f"an open loop at {rate} requests/s: its throughput is what was asked, not what can be"


def _void(fields: Fields, concurrency: int | None, cap: int | None) -> Iterator[str]:
    if why := open_loop(fields):
        yield why
    if fields.text("dataset_name") == "random-ids":
        yield "prompts of random tokens: they may be measured, but never chosen from"
    if cap is not None and concurrency is not None and cap < concurrency:
        yield f"{QUEUE_LIMITED}: the server runs {cap} at once, the load is {concurrency}"
    apart = _counts_apart(fields)
    if apart is not None and apart > _COUNT_LIMIT:
        yield f"its two counts of output tokens differ by {apart:.0%}: the figure is not to be used"


def _remarks(fields: Fields, concurrency: int | None, failed: int | None) -> Iterator[str]:
    apart = _counts_apart(fields)
    if apart is not None and _COUNT_ALARM < apart <= _COUNT_LIMIT:
        yield f"its two counts of output tokens differ by {apart:.0%}"
    in_flight = fields.measured("concurrency")
    if in_flight is not None and concurrency and in_flight < _BUSY * concurrency:
        yield f"({in_flight:.0f}/{concurrency}): {in_flight:.1f} in flight on average"
    if fields.text("dataset_name") == "random":
        yield "prompts cut or repeated to a length, without a chat template"
    if failed is None:
        yield "failed requests are not in the file (--output-details tells)"


def _counts_apart(fields: Fields) -> float | None:
    """How far the counted and the re-tokenised output tokens lie apart, as a share."""
    counted = fields.measured("total_output_tokens")
    again = fields.measured("total_output_tokens_retokenized")
    return None if counted is None or again is None else abs(counted - again) / counted
