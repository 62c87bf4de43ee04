"""From the records of one cell to its figures. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from runbook.cells import Cell
from runbook.checks import Check
from runbook.load.plan import LoadResult
from runbook.load.records import Record

#: A client busier than this share of one core measures itself, not the server.
MAX_CLIENT_SHARE = 0.5
_NOTE_CHARACTERS = 1000
#: Of a log, its end is kept in a note.
LOG_CHARACTERS = 600


@dataclass(frozen=True)
class Evidence:
    """What is known of a cell besides its records.

    ``max_concurrency``: requests the server runs at once; ``error_share``: the limit of the
    parameters; ``checks``: of the configuration and of the cell; ``log_tail``: of a dead server.
    """

    accept_length: float | None = None
    max_concurrency: int | None = None
    error_share: float = 0.0
    checks: tuple[Check, ...] = ()
    log_tail: str = ""


def judge_cell(cell: Cell, load: LoadResult, evidence: Evidence) -> Cell:
    """``cell`` with its figures, or void or ``server_died`` with the reason in ``note``."""
    good = [record for record in load.records if record.ok]
    measured = replace(
        cell,
        requests=len(load.records),
        errors=len(load.records) - len(good),
        output_tok_s=tokens_per_second(load.records),
        accept_length=evidence.accept_length,
        ttft_p50_ms=quantile((record.ttft_ms for record in good), 50),
        ttft_p99_ms=quantile((record.ttft_ms for record in good), 99),
        tpot_p50_ms=quantile((record.tpot_ms for record in good), 50),
        tpot_p99_ms=quantile((record.tpot_ms for record in good), 99),
        chunk_gap_p50_ms=quantile((record.chunk_gap_ms for record in good), 50),
    )
    if load.ended_early:
        note = say(
            [
                f"{load.ended_early}, {len(good)} requests answered",
                evidence.log_tail[-LOG_CHARACTERS:],
            ]
        )
        return replace(measured, status="server_died", output_tok_s=None, note=note)
    reasons = list(_why_void(measured, load, evidence))
    remarks = list(_remarks(load.records, evidence.checks))
    return replace(measured, status="void" if reasons else "ok", note=say([*reasons, *remarks]))


def tokens_per_second(records: Sequence[Record]) -> float | None:
    """Output tokens of usage per second from the first send to the last end.

    Unknown when an answer came without usage, and when none came. Failed requests add no tokens;
    the time they took counts.
    """
    tokens = [record.tokens_out for record in records if record.ok]
    sent_s = [record.sent_s for record in records if record.sent_s is not None]
    ended_s = [record.end_s for record in records if record.end_s is not None]
    known = [count for count in tokens if count is not None]
    if not tokens or len(known) < len(tokens) or max(ended_s) <= min(sent_s):
        return None
    return sum(known) / (max(ended_s) - min(sent_s))


def quantile(values: Iterable[float | None], percent: int) -> float | None:
    """The percentile of the known values, between neighbours linearly; ``None`` without any."""
    known = sorted(value for value in values if value is not None)
    if len(known) < 2:
        return known[0] if known else None
    return statistics.quantiles(known, n=100, method="inclusive")[percent - 1]


def say(parts: Iterable[str]) -> str:
    """Several remarks as one line, for a field of a table."""
    lines = [" | ".join(part.split("\n")).strip() for part in parts if part.strip()]
    return "; ".join(lines)[:_NOTE_CHARACTERS]


def failed_checks(checks: Iterable[Check]) -> list[str]:
    """What the failed ones of ``checks`` say."""
    return [
        f"check {check.name} failed: found {check.found}, wanted {check.wanted}"
        for check in checks
        if check.status == "fail"
    ]


def _why_void(cell: Cell, load: LoadResult, evidence: Evidence) -> Iterable[str]:
    yield from failed_checks(evidence.checks)
    without = sum(record.ok and record.tokens_out is None for record in load.records)
    if without:
        yield f"{without} of {cell.requests} answers came without usage: tokens are unknown"
    elif cell.output_tok_s is None:
        yield "no request was answered"
    if cell.errors > evidence.error_share * cell.requests:
        yield f"{cell.errors} of {cell.requests} failed, at most {evidence.error_share:.1%} may"
    cap = evidence.max_concurrency
    if cap is not None and cap < cell.concurrency:
        yield (
            f"queue-limited: the server runs {cap} at once, the cell asks for {cell.concurrency} "
            "(set the same cap for all configurations)"
        )
    share = load.client_cpu_s / max(load.ended_s - load.started_s, 1e-9)
    if share > MAX_CLIENT_SHARE:
        yield f"the client used {share:.0%} of a core: it may have been the limit"


def _remarks(records: Sequence[Record], checks: Iterable[Check]) -> Iterable[str]:
    failed = [record for record in records if not record.ok]
    if failed:
        kinds = ", ".join(sorted({str(record.error_kind) for record in failed}))
        yield f"{len(failed)} failed ({kinds}), first: {failed[0].error}"
    for check in checks:
        if check.status in ("warn", "unknown"):
            yield f"{check.name}: {check.status}, found {check.found}"
