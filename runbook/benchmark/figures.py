"""From the records of one cell to its figures. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from runbook.benchmark.sense import judge_answers
from runbook.benchmark.throughput import rise_within, spans_of, tokens_per_second
from runbook.cells import QUEUE_LIMITED, Cell
from runbook.checks import Check
from runbook.engines.base import Counters
from runbook.load.plan import LoadResult
from runbook.load.records import Record
from runbook.load.way import Way

#: A client busier than this share of one core measures itself, not the server.
MAX_CLIENT_SHARE = 0.5
#: One that is later, at the 99th percentile, than this share of the time between chunks and than
#: so many ms blurs latencies; the parameters say from how many ms on the cell is void for it.
LATE_SHARE, LATE_MS = 0.2, 5.0
#: A round trip longer than this share of a request, or of the time to its first token, is told;
#: beyond the second of each pair the way is measured, not the server.
REQUEST_SHARE, FIRST_TOKEN_SHARE = (0.004, 0.02), (0.1, 0.5)
#: How the kind of prompts begins that are no text: drafts of loops are accepted all the more.
_RANDOM = "random"
_NOTE_CHARACTERS = 1000
#: What follows the number of requests of a warm-up that failed, in the note of its cell.
WARM_UP_FAILED = " of the warm-up failed"
#: Of kinds of failures, so many are named in a note.
_KINDS = 6
#: Of a log, its end is kept in a note.
LOG_CHARACTERS = 600


@dataclass(frozen=True)
class Evidence:
    """What is known of a cell besides its records.

    ``max_concurrency``: requests the server runs at once; ``error_share``: the limit of the
    parameters; ``checks``: of the configuration and of the cell; ``log_tail``: of a dead server.
    ``client_lag_ms``: a client, or a way, as late as this is no longer let pass.
    ``steady``: throughput is of the time with all streams at work, latencies are without those that
    began together. ``remarks``: for the note. ``running``: as of a ``Cell``.
    """

    accept_length: float | None = None
    max_concurrency: int | None = None
    error_share: float = 0.0
    checks: tuple[Check, ...] = ()
    log_tail: str = ""
    steady: bool = False
    remarks: tuple[str, ...] = ()
    client_lag_ms: float = LATE_MS
    is_far: bool = False
    way: Way | None = None
    running: float | None = None


def judge_cell(cell: Cell, load: LoadResult, evidence: Evidence) -> Cell:
    """``cell`` with its figures, or void or ``server_died`` with the reason in ``note``."""
    good = [record for record in load.records if record.ok]
    timed = without_first(good, cell.concurrency) if evidence.steady else good
    measured = replace(
        cell,
        requests=len(load.records),
        errors=len(load.records) - len(good),
        tokens_in=mean_of(record.tokens_in for record in good),
        tokens_out=mean_of(record.tokens_out for record in good),
        output_tok_s=tokens_per_second(load.records, cell.concurrency if evidence.steady else None),
        accept_length=evidence.accept_length,
        ttft_p50_ms=quantile((record.ttft_ms for record in timed), 50),
        ttft_p99_ms=quantile((record.ttft_ms for record in timed), 99),
        ttfat_p50_ms=quantile((record.ttfat_ms for record in timed), 50),
        tpot_p50_ms=quantile((record.tpot_ms for record in timed), 50),
        tpot_p99_ms=quantile((record.tpot_ms for record in timed), 99),
        chunk_gap_p50_ms=quantile((record.chunk_gap_ms for record in timed), 50),
        chunk_gap_max_ms=max(filter(None, (one.longest_gap_ms for one in timed)), default=None),
        e2e_p50_ms=quantile((record.e2e_ms for record in timed), 50),
        e2e_p99_ms=quantile((record.e2e_ms for record in timed), 99),
        client_share=load.client_share,
        loop_lag_ms=load.loop_lag_ms,
        round_trip_ms=evidence.way.round_trip_ms if evidence.way else None,
        way_lag_ms=evidence.way.lag_ms if evidence.way else None,
        max_in_flight=load.max_in_flight,
        running=evidence.running,
    )
    if load.ended_early:
        note = say(
            [
                f"{load.ended_early}, {len(good)} requests answered",
                evidence.log_tail[-LOG_CHARACTERS:],
            ]
        )
        return replace(measured, status="server_died", output_tok_s=None, note=note)
    judged = judge_answers(load.records, evidence.error_share)
    reasons = [*judged.reasons, *_why_void(measured, load, evidence)]
    remarks = [
        *judged.remarks,
        *_remarks(measured, load.records, evidence),
        *evidence.remarks,
    ]
    return replace(measured, status="void" if reasons else "ok", note=say([*reasons, *remarks]))


def completed(counted: Counters | None, records: Sequence[Record], said: float | None) -> Counters:
    """The counters of a cell; what the server does not count is taken from each of its requests,
    or is as its log says (``said``)."""
    good = [record for record in records if record.ok]
    tokens = total_of(record.tokens_out for record in good)
    steps = total_of(record.verify_steps for record in good)
    if steps:
        return Counters(predicted=tokens, verify_steps=steps, requests=len(good))
    counted = counted or Counters(predicted=tokens, requests=len(good))
    return replace(counted, accept_length=said)


def mean_of(counts: Iterable[int | None]) -> float | None:
    """Their mean; ``None`` where one is unknown, or none is there."""
    listed = list(counts)
    total = total_of(listed)
    return None if total is None else total / len(listed)


def cached_of(records: Sequence[Record]) -> int | None:
    """Prompt tokens that answered requests took from the prefix cache; ``None`` where none tells.

    Servers leave the detail out where it is 0, so one that tells it of a request tells it of all.
    No request takes more than its prompt has.
    """
    told = [one for one in records if one.ok and one.tokens_cached is not None]
    if not told:
        return None
    return sum(min(one.tokens_cached or 0, one.tokens_in or 0) for one in told)


def total_of(counts: Iterable[int | None]) -> int | None:
    """Their sum; ``None`` where one is unknown, or none is there."""
    listed = list(counts)
    known = [count for count in listed if count is not None]
    return sum(known) if listed and len(known) == len(listed) else None


def without_first(records: Sequence[Record], streams: int) -> Sequence[Record]:
    """``records`` without the ``streams`` that were sent first: those began all together, as no
    traffic does. All of them where no others are."""
    sent = sorted(records, key=lambda one: one.sent_s or 0.0)
    return sent[streams:] or records


def quantile(values: Iterable[float | None], percent: int) -> float | None:
    """The percentile of the known values, between neighbours linearly; ``None`` without any."""
    known = sorted(value for value in values if value is not None)
    if len(known) < 2:
        return known[0] if known else None
    return statistics.quantiles(known, n=100, method="inclusive")[percent - 1]


def say(parts: Iterable[str]) -> str:
    """Several remarks as one line, for a field of a table; servers' words are in it, so what is
    not printable (a terminal would obey it) is a question mark."""
    lines = [
        " | ".join(part.replace("\r", "").split("\n")).strip() for part in parts if part.strip()
    ]
    note = "; ".join(lines)[:_NOTE_CHARACTERS]
    return "".join(one if one.isprintable() or one == "\t" else "?" for one in note)


def failed_checks(checks: Iterable[Check]) -> list[str]:
    """What the failed ones of ``checks`` say."""
    return [
        f"check {check.name} failed: found {check.found}, wanted {check.wanted}"
        for check in checks
        if check.status == "fail"
    ]


def _why_void(cell: Cell, load: LoadResult, evidence: Evidence) -> Iterable[str]:
    yield from failed_checks(evidence.checks)
    counted = [record.tokens_out for record in load.records if record.ok]
    if counted and None not in counted and cell.output_tok_s is None:
        yield "no time with all streams at work: throughput is unknown"
    if any(record.kind.startswith(_RANDOM) for record in load.records):
        yield "prompts of random tokens: they may be measured, but never chosen from"
    if cell.errors > evidence.error_share * cell.requests:
        yield f"{cell.errors} of {cell.requests} failed, at most {evidence.error_share:.1%} may"
    cap = evidence.max_concurrency
    if cap is not None and cap < cell.concurrency:
        yield (
            f"{QUEUE_LIMITED}: the server runs {cap} at once, the cell asks for {cell.concurrency} "
            "(set the same cap for all configurations)"
        )
    if load.client_share > MAX_CLIENT_SHARE:
        yield f"the client used {load.client_share:.0%} of a core: it may have been the limit"
    if _is_late(cell, evidence.client_lag_ms):
        yield f"the client was late: {_lag_said(cell)}"
    if evidence.is_far and evidence.way is None:
        yield "the way to the server's host is unknown: it did not answer before and after the load"
    if limit := _limited_by_way(cell, load.records, 1, evidence.client_lag_ms):
        yield f"the way to the server was the limit: {limit}"
    if cell.rate_s is None and load.max_in_flight < min(cell.concurrency, cell.requests):
        yield f"only {load.max_in_flight} of {cell.concurrency} requests were in flight at once"


def failures_said(records: Iterable[Record], failed_words: str = " failed") -> str:
    """``3 failed (HTTP 503 x 2, timeout x 1), first: ...``; empty where none did."""
    failed = [record for record in records if not record.ok]
    if not failed:
        return ""
    kinds = Counter(
        f"HTTP {one.status}" if one.error_kind == "status" else str(one.error_kind)
        for one in failed
    )
    counts = [f"{kind} x {count}" if len(kinds) > 1 else kind for kind, count in kinds.items()]
    kinds_said = ", ".join(counts[:_KINDS])
    return f"{len(failed)}{failed_words} ({kinds_said}), first: {failed[0].error}"


def _limited_by_way(
    cell: Cell, records: Iterable[Record], level: int, late_ms: float
) -> str | None:
    """What the way does to the figures beyond the limits of ``level``, if anything."""
    if cell.round_trip_ms is None or cell.way_lag_ms is None:
        return None
    known_ms = ((end - begin) * 1000 for begin, end in spans_of(one for one in records if one.ok))
    for what, share, of_ms in (
        ("a request", REQUEST_SHARE[level], quantile(known_ms, 50)),
        ("the time to a first token", FIRST_TOKEN_SHARE[level], cell.ttft_p50_ms),
    ):
        if of_ms is not None and cell.round_trip_ms > share * of_ms:
            return f"a round trip of {cell.round_trip_ms:.1f} ms, {what} takes {of_ms:.0f} ms"
    if not _is_beyond(cell.way_lag_ms, cell, late_ms):
        return None
    return f"late by {cell.way_lag_ms:.1f} ms, {cell.chunk_gap_p50_ms:.1f} ms from chunk to chunk"


def _is_late(cell: Cell, late_ms: float) -> bool:
    return _is_beyond(cell.loop_lag_ms, cell, late_ms)


def _is_beyond(lag_ms: float | None, cell: Cell, late_ms: float) -> bool:
    if lag_ms is None or cell.chunk_gap_p50_ms is None:
        return False
    return lag_ms > max(LATE_SHARE * cell.chunk_gap_p50_ms, late_ms)


def _lag_said(cell: Cell) -> str:
    return (
        f"its event loop by {cell.loop_lag_ms:.1f} ms at the 99th percentile, "
        f"{cell.chunk_gap_p50_ms:.1f} ms from chunk to chunk"
    )


def _remarks(cell: Cell, records: Sequence[Record], evidence: Evidence) -> Iterable[str]:
    if cell.ran_fewer:
        yield (
            f"({cell.running:.0f}/{cell.concurrency}): the server ran {cell.running:g} at once by "
            "its own log, the others waited"
        )
    if rise := rise_within(records, cell.concurrency):
        yield f"throughput rose by {rise:.0%} within the cell: warm up longer"
    most_ms = evidence.client_lag_ms
    blurred = _limited_by_way(cell, records, 0, LATE_MS)
    if blurred and not _limited_by_way(cell, records, 1, most_ms):
        yield f"the way to the server is in the figures: {blurred}"
    if _is_late(cell, LATE_MS) and not _is_late(cell, most_ms):
        yield f"latencies are blurred by the client: {_lag_said(cell)}"
    yield failures_said(records)
    for check in evidence.checks:
        if check.status in ("warn", "unknown"):
            yield f"{check.name}: {check.status}, found {check.found}"
