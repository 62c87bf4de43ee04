"""``/server_info`` of SGLang in one form for all releases. Pure; secrets are gone before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runbook.engines.answers import text, truth, whole
from runbook.engines.base import ServerInfo
from runbook.engines.sglang.options import NO_SPECULATION
from runbook.engines.sglang.releases import NO_OVERLAP, find_release

UNKNOWN = "unknown"
CAP_PER_RANK = "effective_max_running_requests_per_dp"

_NUMBERS = (
    "speculative_eagle_topk",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "max_running_requests",
    "page_size",
    "tp_size",
    "dp_size",
    "context_length",
    "cuda_graph_max_bs",
)
_TEXTS = (
    "version",
    "model_path",
    "speculative_draft_model_path",
    "speculative_draft_model_quantization",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "speculative_draft_attention_backend",
    "kv_cache_dtype",
    "dtype",
    "quantization",
    "launch_command",
)
_SWITCHES = ("disable_overlap_schedule", "disable_custom_all_reduce", "disable_cuda_graph")

#: What configurations must have alike, or more than speculation is compared.
ALIKE: tuple[str, ...] = (
    "version",
    "model_path",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "kv_cache_dtype",
    "dtype",
    "quantization",
    "mem_fraction_static",
    "cuda_graph_max_bs",
    "page_size",
    "tp_size",
    "dp_size",
    "context_length",
    "disable_cuda_graph",
    "disable_custom_all_reduce",
)
#: What every rank must say alike.
_OF_RANKS = (
    CAP_PER_RANK,
    "speculative_algorithm",
    "speculative_eagle_topk",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "disable_overlap_schedule",
)


@dataclass(frozen=True)
class Answer:
    """``/server_info`` taken apart: resolved arguments, ranks, and servers behind a router."""

    resolved: Mapping[str, Any]
    ranks: tuple[Mapping[str, Any], ...]
    servers: int


def take_apart(answer: Any) -> Answer | None:
    """The parts of an answer to ``/server_info``, ``None`` when it is none.

    A router of separated prefill and decode wraps the servers in ``decode``, an array; arguments
    lie flat or in ``server_args``; ``internal_states`` is an object or a list of one per rank.
    """
    if not isinstance(answer, Mapping):
        return None
    wrapped = answer.get("decode")
    inside = (
        [one for one in wrapped if isinstance(one, Mapping)] if isinstance(wrapped, list) else []
    )
    servers = [_flat(one) for one in inside or [answer]]
    resolved = servers[0]
    if not any(name in resolved for name in ("model_path", "speculative_algorithm")):
        return None
    ranks = [rank for server in servers for rank in _ranks_of(server)]
    return Answer(resolved, tuple(ranks), len(servers))


def read_info(answer: Any) -> ServerInfo | None:
    """``ServerInfo`` of an answer to ``/server_info``, ``None`` when it is none.

    ``settings``: what was resolved and decides speed, ``None`` where a release does not tell;
    ``worker`` as far as it can be told; ``ranks_differ``: what ranks do not say alike.
    """
    parts = take_apart(answer)
    if parts is None:
        return None
    resolved = parts.resolved
    algorithm = _algorithm(resolved)
    settings: dict[str, Any] = {name: text(resolved.get(name)) for name in _TEXTS}
    settings |= {name: whole(resolved.get(name)) for name in _NUMBERS}
    settings |= {name: truth(resolved.get(name)) for name in _SWITCHES}
    settings["mem_fraction_static"] = _decimal(resolved.get("mem_fraction_static"))
    settings["worker"] = running_worker(
        settings["version"], algorithm, settings["disable_overlap_schedule"]
    )
    settings["ranks_differ"] = list(_differences(parts.ranks))
    environment = parts.ranks[0].get("env_vars") if parts.ranks else None
    settings["env_vars"] = dict(environment) if isinstance(environment, Mapping) else None
    model = text(resolved.get("served_model_name")) or settings["model_path"] or UNKNOWN
    return ServerInfo(model, algorithm, _max_concurrency(parts), settings)


def running_worker(version: str | None, algorithm: str, no_overlap: bool | None) -> str:
    """The worker by what the server says of itself: v1 never overlaps.

    ``no overlap`` where the release is not known: v1, or v2 without overlap.
    """
    if algorithm == NO_SPECULATION:
        return NO_SPECULATION
    if algorithm == UNKNOWN or no_overlap is None:
        return UNKNOWN
    if not no_overlap:
        return "v2 overlap"
    release = find_release(version) if version else None
    if release is None:
        return NO_OVERLAP
    return "v1" if release.v1_worker else "v2"


def _algorithm(resolved: Mapping[str, Any]) -> str:
    if "speculative_algorithm" not in resolved:
        return UNKNOWN
    asked = resolved["speculative_algorithm"]
    if asked is None or (isinstance(asked, str) and asked.lower() in ("", "none", "null")):
        return NO_SPECULATION
    return {"NEXTN": "EAGLE"}.get(str(asked).upper(), str(asked).upper())


def _max_concurrency(parts: Answer) -> int | None:
    """Requests at once over all ranks, by the rank that takes the fewest."""
    per_rank = [whole(rank.get(CAP_PER_RANK)) for rank in parts.ranks]
    known = [cap for cap in per_rank if cap is not None]
    if not known:
        return whole(parts.resolved.get("max_running_requests"))
    return min(known) * max(whole(parts.resolved.get("dp_size")) or 1, 1) * parts.servers


def _differences(ranks: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for name in _OF_RANKS:
        said = {str(rank[name]) for rank in ranks if name in rank}
        if len(said) > 1:
            yield f"{name}: {', '.join(sorted(said))}"


def _flat(server: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = server.get("server_args")
    return {**nested, **server} if isinstance(nested, Mapping) else server


def _ranks_of(server: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    states = server.get("internal_states")
    listed = states if isinstance(states, list) else [states]
    return [state for state in listed if isinstance(state, Mapping)]


def _decimal(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
