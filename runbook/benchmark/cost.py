"""What a benchmark will cost in time, said before it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from runbook.params import Params


@dataclass(frozen=True)
class Pace:
    """Rough speed of a server: load of the model, tokens per second of one stream and of all."""

    load_s: float
    stream_tok_s: float
    total_tok_s: float


#: A small model on one core; a 550 GB model on eight GPUs; a tiny one of SGLang's on two cores.
PACES = {
    "llamacpp": Pace(4.0, 17.0, 28.0),
    "sglang": Pace(400.0, 70.0, 700.0),
    "embedded:sglang": Pace(25.0, 140.0, 400.0),
}
#: A context is read this many times as fast as answers of all streams are written.
_PREFILL = 10.0
#: Starting the load worker, reading counters, writing files.
_CELL_S = 1.0


@dataclass(frozen=True)
class Cost:
    """Seconds of the whole benchmark and of its loads alone; ``assumes`` says on what grounds."""

    seconds: float
    lives: int
    loading_s: float
    assumes: str


def longest_s(params: Params) -> float:
    """Seconds that the time-outs allow this benchmark at most; no run comes near."""
    benchmark, waits = params.benchmark, params.server.timeouts
    warmups = _warmups(params)
    rounds = sum(
        math.ceil(benchmark.requests_at(concurrency) / concurrency) + warmups
        for concurrency, _ in params.points()
    )
    life_s = waits.gpu_free_s + waits.start_s + waits.stop_s + rounds * waits.request_s
    return benchmark.blocks * len(params.configurations) * life_s


def estimate(params: Params) -> Cost:
    """What the benchmark of these parameters will take, before anything is known of the server."""
    server, benchmark = params.server, params.benchmark
    pace = PACES.get(server.interpreter) or PACES[server.engine]
    load_s = min(pace.load_s, server.timeouts.start_s / 2)
    lives = benchmark.blocks * len(params.configurations)
    life_s = load_s
    tokens = params.workload.output_tokens
    length = min(benchmark.warmup_tokens or tokens, tokens)
    for concurrency, context in params.points():
        warmups, measured = _warmups(params) * concurrency, benchmark.requests_at(concurrency)
        written = measured * tokens + warmups * length
        read = (measured + warmups) * (context or 0)
        rate = min(concurrency * pace.stream_tok_s, pace.total_tok_s)
        life_s += _CELL_S + written / rate + read / (_PREFILL * pace.total_tok_s)
    assumes = (
        f"{load_s:g} s to load, {pace.stream_tok_s:g} tok/s a stream, at most "
        f"{pace.total_tok_s:g} tok/s in all, answers of full length"
    )
    return Cost(lives * life_s, lives, lives * load_s, assumes)


def _warmups(params: Params) -> int:
    """Warm-up requests of one stream before a cell: twice where two windows must agree."""
    return params.benchmark.warmup * (1 if params.benchmark.warmup_agree is None else 2)
