"""What a benchmark will cost in time, and what it can say, before it starts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runbook.intervals import MIN_BLOCKS, cannot_exclude
from runbook.load import Prompt
from runbook.load.context import CHARACTERS_PER_TOKEN, texts_of
from runbook.params import Params
from runbook.progress import clock

#: Warm-ups of a cell at the most where two in turn must agree; as a rule the second one does.
MOST_WARMUPS = 10
_USUAL_WARMUPS = 2


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
#: Until nothing runs any more of what a client gave up: after a warm-up, and after its cell.
_GIVEN_UP_S = 2 * 60.0


@dataclass(frozen=True)
class Cost:
    """Seconds of the whole benchmark and of its loads alone; ``assumes`` says on what grounds.

    ``least_s``: where the first of the declared looks decides. ``most_s``: where no two warm-ups
    agree.
    """

    seconds: float
    lives: int
    loading_s: float
    assumes: str
    least_s: float
    most_s: float

    @property
    def sentence(self) -> str:
        """In words, without a subject."""
        said = (
            f"starts {self.lives} server {'life' if self.lives == 1 else 'lives'} and takes "
            f"about {clock(self.seconds)}, of which {clock(self.loading_s)} go to loading the "
            f"model ({self.assumes})"
        )
        if self.least_s < self.seconds:
            said += f"; {clock(self.least_s)} where the first look decides"
        if self.most_s > self.seconds:
            said += f"; up to {clock(self.most_s)} where warm-ups do not agree"
        return said


def longest_s(params: Params) -> float:
    """Seconds that the time-outs allow this benchmark at most; no run comes near."""
    benchmark, waits = params.benchmark, params.server.timeouts
    warmups = _warmups(params, MOST_WARMUPS)
    rounds = 0
    for concurrency, _ in params.points():
        # Turns of a conversation are sent one after the other, whatever the concurrency.
        streams = 1 if params.workload.turns == "every" else concurrency
        own = benchmark.requests_at(concurrency) + warmups * concurrency
        rounds += math.ceil(own / streams) + 1  # and one to learn what a text is in tokens
    rounds += 2 if params.stack.context_tokens else 0
    life_s = waits.gpu_free_s + waits.start_s + waits.stop_s + rounds * waits.request_s
    life_s += len(params.points()) * _GIVEN_UP_S
    return benchmark.blocks * len(params.configurations) * life_s


def estimate(params: Params) -> Cost:
    """What the benchmark of these parameters will take, before anything is known of the server."""
    server, configs = params.server, len(params.configurations)
    pace = PACES.get(server.interpreter) or PACES[server.engine]
    load_s = min(pace.load_s, server.timeouts.start_s / 2)
    lives = params.benchmark.blocks * configs
    usual_s, most_s = (load_s + _cells_s(params, pace, n) for n in (_USUAL_WARMUPS, MOST_WARMUPS))
    first = min([*params.choose.looks, params.benchmark.blocks])
    assumes = (
        f"{load_s:g} s to load, {pace.stream_tok_s:g} tok/s a stream, at most "
        f"{pace.total_tok_s:g} tok/s in all, answers of full length"
    )
    return Cost(
        lives * usual_s,
        lives,
        lives * load_s,
        assumes,
        first * configs * usual_s,
        lives * most_s,
    )


def _cells_s(params: Params, pace: Pace, most_warmups: int) -> float:
    """Seconds of a life after its load."""
    benchmark, tokens = params.benchmark, params.workload.output_tokens
    length = min(benchmark.warmup_tokens or tokens, tokens)
    reads = _PREFILL * pace.total_tok_s
    found_s = params.stack.context_tokens / reads
    for concurrency, context in params.points():
        warmups = _warmups(params, most_warmups) * concurrency
        measured = benchmark.requests_at(concurrency)
        written = measured * tokens + warmups * length
        read = (measured + warmups) * (context or 0)
        rate = min(concurrency * pace.stream_tok_s, pace.total_tok_s)
        found_s += _CELL_S + written / rate + read / reads
    return found_s


def _warmups(params: Params, most: int) -> int:
    """Warm-up requests of one stream before a cell, ``most`` times over where two must agree."""
    return params.benchmark.warmup * (1 if params.benchmark.warmup_agree is None else most)


def foresee(params: Params, prompts: Sequence[Prompt]) -> list[str]:
    """What these parameters cannot say, and why, known before the start; for a reader."""
    return [*_too_few(params), *repetitions(params, prompts)]


def repetitions(params: Params, prompts: Sequence[Prompt]) -> list[str]:
    """What a server is asked more than once, in sentences."""
    return [*_repeated(params, prompts), *_repeated_texts(params, prompts)]


def _too_few(params: Params) -> Iterator[str]:
    blocks = params.benchmark.blocks
    if blocks < MIN_BLOCKS:
        yield (
            f"the cheap mode, {'one life' if blocks == 1 else 'two lives'} of each configuration: "
            f"{cannot_exclude(blocks)}; the choice can only be provisional"
        )


def _repeated(params: Params, prompts: Sequence[Prompt]) -> Iterator[str]:
    kinds = [kind for kind, weight in params.workload.mix.items() if weight]
    there = sum(prompt.kind in kinds for prompt in prompts)
    benchmark = params.benchmark
    asked = sum(
        benchmark.requests_at(concurrency) + benchmark.warmup * concurrency
        for concurrency, _ in params.points()
    )
    if there and asked > there:
        yield (
            f"a life asks {asked} prompts and there are {there}: they come again, with a number "
            "before them, so that no prefix cache answers; their answers are not new ones"
        )


def _repeated_texts(params: Params, prompts: Sequence[Prompt]) -> Iterator[str]:
    there = sum(map(len, texts_of(prompts))) / CHARACTERS_PER_TOKEN
    longest = max((context or 0 for _, context in params.points()), default=0)
    if there and longest > there:
        yield (
            f"contexts of {longest} tokens repeat the texts of the workload, about {there:.0f} "
            f"tokens, {longest / there:.0f} times over: drafts find in them what production would "
            "not repeat; give prompts of that length (workload.prompts)"
        )
