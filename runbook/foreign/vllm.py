"""vLLM's ``bench serve`` and ``bench sweep serve``: JSON, an object a run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runbook.foreign.document import Fields, mean
from runbook.foreign.result import Result
from runbook.foreign.sglang import open_loop

TOOL = "vLLM bench serve"

DEFINITIONS = (
    "tokens out are those of usage, else counted again with a tokenizer of the client",
    "TPOT is (end-to-end - TTFT) / (tokens - 1), and end-to-end ends with the last chunk of text",
    "acceptance length is 1 + accepted / drafts over this run",
    "throughput counts ramp-up and ramp-down, without warm-up unless --num-warmups",
    "the file does not say what the prompts were, unless --metadata does",
)

_LENGTHS = ("random_input_len", "input_len")


def fits(value: Mapping[str, Any]) -> bool:
    """Whether an object is a result of ``vllm bench serve``."""
    return {"output_throughput", "total_output_tokens", "completed"} <= set(value) and (
        "endpoint_type" in value or "total_token_throughput" in value or "model_id" in value
    )


def read(fields: Fields) -> Iterator[Result]:
    """The one result of an object."""
    completed, failed = fields.count("completed"), _failed(fields)
    lengths = [fields.count(name) for name in _LENGTHS if name in fields]
    yield Result(
        tool=TOOL,
        place=fields.place,
        name=fields.text("label"),
        concurrency=fields.count("max_concurrency"),
        context_tokens=lengths[0] if lengths else None,
        requests=None if completed is None else completed + (failed or 0),
        errors=failed,
        output_tok_s=fields.measured("output_throughput"),
        ttft_p50_ms=fields.measured("median_ttft_ms"),
        ttft_p99_ms=fields.measured("p99_ttft_ms"),
        tpot_p50_ms=fields.measured("median_tpot_ms"),
        tpot_p99_ms=fields.measured("p99_tpot_ms"),
        accept_length=fields.measured("spec_decode_acceptance_length"),
        input_tokens=mean(fields.number("total_input_tokens"), completed),
        output_tokens=mean(fields.number("total_output_tokens"), completed),
        run="" if (run := fields.count("run_number")) is None else f"run{run}",
        void=tuple(_void(fields)),
        remarks=("failed requests are not in the file",) if failed is None else (),
    )


def _void(fields: Fields) -> Iterator[str]:
    if why := open_loop(fields):
        yield why
    said = [str(fields.value.get(name)) for name in ("dataset", "dataset_name")]
    if any(name.startswith("random") for name in said):
        yield "prompts of random tokens: they may be measured, but never chosen from"


def _failed(fields: Fields) -> int | None:
    failed, asked = fields.count("failed"), fields.count("num_prompts")
    if failed is not None or asked is None:
        return failed
    return max(asked - (fields.count("completed") or 0), 0)
