"""One server life: started, made sure of, its cells measured, stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from runbook.benchmark.asking import plan_load, try_longest
from runbook.benchmark.bench import Bench, Unmeasured
from runbook.benchmark.book import Launch
from runbook.benchmark.cost import MOST_WARMUPS
from runbook.benchmark.figures import (
    LOG_CHARACTERS,
    WARM_UP_FAILED,
    Evidence,
    completed,
    failed_checks,
    failures_said,
    judge_cell,
    say,
)
from runbook.benchmark.gpu_samples import sampled
from runbook.benchmark.measurements import place_of
from runbook.benchmark.throughput import tokens_per_second
from runbook.cells import Cell
from runbook.checks import Check
from runbook.engines.base import Counters, ServerInfo
from runbook.errors import BadInput, Blocked, HostFailed, NotHere, ServerFailed
from runbook.launch import cards
from runbook.launch.server import RunningServer, local_url
from runbook.launch.spec import LaunchSpec
from runbook.load import LoadResult, Prompt, Record, run_load
from runbook.load.context import again, remark_on_length
from runbook.load.way import Way, look_at_way, worse
from runbook.params import Configuration
from runbook.rehearsal.model import resolve_model
from runbook.verified import links_of, told_of

_TELL_S = 30.0
#: A client that gave a request up has closed its connection; the server may go on with it.
_GIVEN_UP = ("timeout", "cut", "too_large", "malformed")
#: Some servers tell of the requests that run every 30 s alone.
_END_S = 60.0
_NO_LOAD = LoadResult((), 0.0, 0.0, 0.0, None, 0)


@dataclass(frozen=True)
class Life:
    """One life of one configuration in one block; ``cells`` are empty ones, in their order.
    ``is_last``: of its block."""

    configuration: Configuration
    spec: LaunchSpec
    cells: tuple[Cell, ...]
    block: int = 1
    is_last: bool = False


#: Lines of a log that hold a server's start.
_START_LINES = 4000
#: Those that hold a cell: a line every forty steps, and one for each request.
_CELL_LINES = 4000


def measure_life(bench: Bench, life: Life) -> Unmeasured | None:
    """Measure a life; every cell of it gets an entry.

    Returns what the later cells of a configuration are that cannot be measured at all: its server
    does not come up, or not as asked. ``None`` for all others, a server that died among them.
    Raises ``NotHere`` when another process holds the port, ``BadInput`` for a launch that cannot
    be; once a server was started ``Blocked`` for both.
    """
    try:
        return _measure_life(bench, life)
    except BadInput as error:
        if not bench.started:
            raise
        go_on = f"{error.do}; what was measured is kept, then: runbook run PARAMS --resume"
        raise Blocked(error.found, error.wanted, go_on.removeprefix("; ")) from error


def _measure_life(bench: Bench, life: Life) -> Unmeasured | None:
    _refuse_busy_port(bench)
    if bench.params.stack.gpus:
        cards.wait_until_free(
            bench.params.stack.gpu_used_mib,
            bench.params.server.timeouts.gpu_free_s,
            bench.launcher.ask_driver,
            bench.params.host.kind == "ssh",
        )
    number = bench.book.open_life()
    cells = [replace(cell, life=number) for cell in life.cells]
    name = f"{life.configuration.name}-life{number}"
    timeouts = bench.params.server.timeouts
    cold = _is_made_cold(bench, life.configuration.name)
    try:
        with bench.launcher.start(life.spec, name, timeouts.start_s, timeouts.stop_s) as server:
            bench.started.append(name)
            launch = _bring_up(bench, life, server, cold)
            wrong = failed_checks(launch.checks)
            if not wrong:
                _measure_cells(bench, life, server, launch, cells)
                return None
            why = Unmeasured("void", say(wrong))
    except ServerFailed as failure:
        bench.started.append(name)
        said = [f"the server did not come up: {failure.found}", failure.do[-LOG_CHARACTERS:]]
        why = Unmeasured("not_run", say(said))
    bench.leave_out(life.spec, cells, why)
    return why


def _refuse_busy_port(bench: Bench) -> None:
    """A server that answers there already would be measured in place of the one to be started."""
    port = bench.params.server.port
    holder = bench.launcher.port_holder(port)
    if holder is not None:
        raise NotHere(
            f"port {port} is in use: {holder}",
            "a free port for the servers that are measured",
            "stop that process yourself, or set server.port",
        )


def _is_made_cold(bench: Bench, name: str) -> bool:
    """Whether the model of the life to come is not in the page cache: its first one where
    ``benchmark.cold_start`` asks for it. What could not be dropped is noted."""
    if not bench.params.benchmark.cold_start or bench.book.has_cold_start(name):
        return False
    server = bench.params.server
    paths = [resolve_model(path) for path in (server.model, server.draft) if path]
    try:
        why = bench.launcher.drop_page_cache([p for p in paths if p.startswith("/")]).why_not_cold
    except HostFailed as error:
        why = error.found
    if why is not None:
        bench.book.note(f"no cold start of {name}: {why}")
    return why is None


def _bring_up(bench: Bench, life: Life, server: RunningServer, cold: bool = False) -> Launch:
    """Wait for the server and look at what came up; a ``cold`` load is kept apart. Raises
    ``ServerFailed`` with its log."""
    url, name = local_url(bench.params.server), life.configuration.name
    launch = Launch(life.spec, bench.launcher.kind)
    try:
        alive = _watched(bench, life, server)
        load_s = bench.engine.wait_ready(url, alive, bench.params.server.timeouts.start_s)
        launch = replace(launch, ready_s=time.monotonic())
        info = bench.engine.info(url)
    except ServerFailed as failure:
        bench.book.note_launch(name, launch)
        explained = bench.engine.explain_log(server.log_tail(_START_LINES), life.spec)
        said = say(part for part in (failure.found, explained) if part)
        raise ServerFailed(said, failure.wanted, server.log_tail()) from None
    checks = (
        *bench.engine.check_configuration(info, life.configuration, bench.resolved.get(name)),
        *bench.engine.check_log(server.log_tail(_START_LINES), life.configuration),
        *_try_longest(bench, server, info),
    )
    loads, cold_s = ((), load_s) if cold else ((load_s,), None)
    launch = replace(launch, load_s=loads, cold_s=cold_s, info=info, checks=checks)
    bench.book.note_launch(name, launch)
    return launch


def _try_longest(bench: Bench, server: RunningServer, info: ServerInfo) -> list[Check]:
    """Whether it answers the longest prompt of production, where the parameters tell its length;
    a server that does not has the end of its log with it."""
    if not bench.params.stack.context_tokens:
        return []
    prompts = [one for cell in bench.workload.values() for one in cell.measured]
    check = try_longest(bench.params, info.model_id, prompts, server.alive)
    if check.status != "fail":
        return [check]
    log = server.log_tail(_START_LINES)
    said = say((check.found, bench.engine.explain_log(log, server.spec), log[-LOG_CHARACTERS:]))
    return [replace(check, found=said)]


def _watched(bench: Bench, life: Life, server: RunningServer) -> Callable[[], bool]:
    """Whether the server lives. A long start is told of by the last line of its log; one whose
    workers are dead, and on GPUs one that hangs, raises ``ServerFailed``."""
    stack, began = bench.params.stack, time.monotonic()
    told = began
    nccl = [f"{k}={v}" for k, v in sorted(life.spec.env.items()) if k.startswith("NCCL_")]
    links = links_of(bench.stack) or stack.topology or "unknown"
    settings = f"with {' '.join(nccl) or 'no NCCL settings'}, topology {links}"
    silent_s = bench.params.server.timeouts.silent_s
    watch = cards.HangWatch(server.log_tail, silent_s, settings, stack, bench.launcher.ask_driver)

    def alive() -> bool:
        nonlocal told
        if (now := time.monotonic()) - told >= _TELL_S:
            told = now
            line = (server.log_tail(1).splitlines() or ["nothing in its log yet"])[-1]
            bench.say(f"{life.configuration.name}: starting for {now - began:.0f} s: {line[:160]}")
        if stack.gpus:
            watch.look()
        if not server.alive():
            return False
        if lost := server.lost_workers():
            after = f"{time.monotonic() - began:.1f} s after its start"
            raise ServerFailed(f"{lost} {after}", "workers that stay", "read the end of its log")
        return True

    return alive


def _measure_cells(
    bench: Bench, life: Life, server: RunningServer, launch: Launch, cells: list[Cell]
) -> None:
    for number, cell in enumerate(cells, 1):
        lost = _measure_cell(bench, life, server, launch, cell)
        if lost:
            why = Unmeasured("not_run", f"{lost} before, at {place_of(cell)}")
            bench.leave_out(life.spec, cells[number:], why)
            return


def _measure_cell(
    bench: Bench, life: Life, server: RunningServer, launch: Launch, cell: Cell
) -> str:
    """Warm-up at the cell's own concurrency and shape, then the cell between two readings.

    Why none can be measured after it; empty where they can.
    """
    assert launch.info is not None
    cell = replace(cell, age_s=round(time.monotonic() - launch.ready_s, 1))
    if cell.context_tokens:
        _learn_lengths(bench, server, launch.info, cell.context_tokens)
    is_far = bench.params.host.kind == "ssh"
    way = _look_at_way(bench) if is_far else None
    with sampled(not is_far) as gpus:
        load, remarks = _warm_up(bench, server, launch.info, cell)
        lost = _end_given_up(bench, load)
        if lost:
            bench.leave_out(life.spec, [cell], Unmeasured("not_run", f"after its warm-up: {lost}"))
            return lost
        if load.ended_early:
            load, counted, log = replace(load, records=()), None, ""
        else:
            load, counted, log = _send_counted(bench, server, launch.info, cell)
    if cell.context_tokens:
        remarks = (*remarks, remark_on_length(load.records, cell.context_tokens))
    told = told_of(bench.stack, life.configuration.name)
    checks = bench.engine.check_cell(counted, life.configuration, told) if counted else []
    evidence = Evidence(
        accept_length=bench.engine.acceptance_length(counted) if counted else None,
        max_concurrency=launch.info.max_concurrency,
        error_share=bench.params.choose.limits.error_share,
        checks=(*launch.checks, *checks),
        log_tail=server.log_tail() if load.ended_early else "",
        steady=bench.params.benchmark.window == "steady",
        remarks=remarks,
        client_lag_ms=bench.params.benchmark.client_lag_ms,
        is_far=is_far,
        way=worse(way, _look_at_way(bench)) if is_far else None,
        running=bench.engine.running_at_once(log),
    )
    bench.enter(life.spec, judge_cell(cell, load, evidence), load.records, gpus)
    return load.ended_early or _end_given_up(bench, load)


def _look_at_way(bench: Bench) -> Way | None:
    return look_at_way(local_url(bench.params.server))


def _send_counted(
    bench: Bench, server: RunningServer, info: ServerInfo, cell: Cell
) -> tuple[LoadResult, Counters | None, str]:
    """The load of a cell, what was counted over it, and what its server wrote meanwhile."""
    asked = bench.asked(cell)
    before = _read_counters(bench, server)
    untold = before is None or (before.verify_steps, before.drafted) == (None, None)
    last_line = server.log_tail(1)
    load = _send(
        bench,
        server,
        info,
        cell.concurrency,
        bench.lengths.of(cell.context_tokens, asked.measured, asked.first),
        lambda record: bench.book.append_request(cell, record),
    )
    after = _read_counters(bench, server)
    counted = after - before if before is not None and after is not None else None
    log = server.log_tail(_CELL_LINES)
    log = log.rpartition(last_line)[2] if last_line else log
    if untold and not load.ended_early:
        counted = completed(counted, load.records, bench.engine.acceptance_in_log(log))
    return load, counted, log


def _end_given_up(bench: Bench, load: LoadResult) -> str:
    """What still runs of requests that the client gave up, after the server was told to end them:
    the next figures would be measured beside it. Empty where nothing does."""
    if load.ended_early or all(record.error_kind not in _GIVEN_UP for record in load.records):
        return ""
    try:
        return bench.engine.end_requests(local_url(bench.params.server), _END_S)
    except ServerFailed as failure:
        return failure.found


def _learn_lengths(bench: Bench, server: RunningServer, info: ServerInfo, tokens: int) -> None:
    """Ask the server once what a text is in tokens; the answer holds for all lives of a run."""
    if bench.lengths.characters_per_token is None:
        sample = bench.lengths.sample(tokens)
        for record in _send(bench, server, info, 1, (sample,), None, 2).records:
            bench.lengths.learn(sample, record)
        bench.book.note_length(bench.lengths.characters_per_token)


def _warm_up(
    bench: Bench, server: RunningServer, info: ServerInfo, cell: Cell
) -> tuple[LoadResult, tuple[str, ...]]:
    """Once, or until two in turn agree as the parameters want; remarks where none did, and on
    requests that failed."""
    settings, asked = bench.params.benchmark, bench.asked(cell)
    first = asked.first + len(asked.measured)
    prompts = bench.lengths.of(cell.context_tokens, asked.warmup, first)
    before: float | None = None
    remarks: tuple[str, ...] = ()
    for number in range(1, 1 + (1 if settings.warmup_agree is None else MOST_WARMUPS)):
        sent = tuple(again(prompt, number, "warm-up") for prompt in prompts)
        load = _send(bench, server, info, cell.concurrency, sent, None, settings.warmup_tokens)
        found = tokens_per_second(load.records)
        remarks = (*remarks, failures_said(load.records, WARM_UP_FAILED))
        if load.ended_early or settings.warmup_agree is None:
            return load, remarks
        if before and found and abs(found / before - 1) <= settings.warmup_agree:
            return load, remarks
        before = found
    said = f"no two of {MOST_WARMUPS} warm-ups agreed within {settings.warmup_agree:.0%}"
    return load, (said, *remarks)


def _send(
    bench: Bench,
    server: RunningServer,
    info: ServerInfo,
    concurrency: int,
    prompts: tuple[Prompt, ...],
    on_record: Callable[[Record], None] | None,
    output_tokens: int | None = None,
) -> LoadResult:
    """Send each of ``prompts`` once; ``output_tokens`` other than the workload's for a warm-up."""
    if not prompts:
        return _NO_LOAD
    plan = plan_load(bench.params, info.model_id, concurrency, prompts, output_tokens)
    plan = replace(plan, extra={**bench.engine.request_fields, **plan.extra})
    load = run_load(plan, on_record, server.alive)
    if load.ended_early is None and not server.alive():
        return replace(load, ended_early="the server died")
    return load


def _read_counters(bench: Bench, server: RunningServer) -> Counters | None:
    """The server's counters; unknown when it does not answer."""
    try:
        return bench.engine.counters(local_url(bench.params.server))
    except ServerFailed:
        return None
