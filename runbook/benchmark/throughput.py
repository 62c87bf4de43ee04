"""Output tokens a second of a load, of all its time or of that with all streams at work. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runbook.load.records import Record

#: A second half that is faster than the first by more is told, of loads of so many rounds or more.
RISE_SHARE, MIN_RISE_ROUNDS = 0.25, 3


def tokens_per_second(records: Sequence[Record], streams: int | None = None) -> float | None:
    """Output tokens of usage per second from the first send to the last end.

    With ``streams``, of the time alone in which so many requests were in flight: what runs down at
    the end is cut off. Unknown when an answer came without usage, when none came, and when so many
    were never in flight. Failed requests add no tokens; the time they took counts.
    """
    answered = [record for record in records if record.ok]
    known = spans_of(records)
    if not answered or any(record.tokens_out is None for record in answered) or not known:
        return None
    window = min(begin for begin, _ in known), max(end for _, end in known)
    if streams is not None:
        window = _busy_window(known, streams)
    if window[1] <= window[0]:
        return None
    return sum(_tokens_within(record, window) for record in answered) / (window[1] - window[0])


def _busy_window(spans: Sequence[tuple[float, float]], streams: int) -> tuple[float, float]:
    """From the first to the last moment with ``streams`` requests in flight; empty without one."""
    steps = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    now, first_s, last_s = 0, None, 0.0
    for at_s, step in steps:
        if now >= streams:
            last_s = at_s
        now += step
        if now >= streams and first_s is None:
            first_s = at_s
    return (0.0, 0.0) if first_s is None else (first_s, last_s)


def _tokens_within(record: Record, window: tuple[float, float]) -> float:
    """Tokens of an answer that came within ``window``; after the first chunk at an even pace."""
    tokens, begin_s, end_s = record.tokens_out or 0, record.first_token_s, record.last_token_s
    if begin_s is None or end_s is None:
        begin_s = end_s = record.end_s or 0.0
    first = min(record.tokens_first or 1, tokens) if end_s > begin_s else tokens
    found = float(first) if window[0] <= begin_s <= window[1] else 0.0
    if end_s > begin_s:
        overlap_s = min(end_s, window[1]) - max(begin_s, window[0])
        found += (tokens - first) * max(0.0, overlap_s) / (end_s - begin_s)
    return found


def rise_within(records: Sequence[Record], streams: int) -> float | None:
    """By how much the second half of a load was faster than the first, where that is more than a
    warm load does; of the time with all streams at work."""
    window = _busy_window(spans_of(records), streams)
    middle = (window[0] + window[1]) / 2
    answered = [record for record in records if record.ok]
    early, late = (
        sum(_tokens_within(record, half) for record in answered)
        for half in ((window[0], middle), (middle, window[1]))
    )
    if len(answered) < MIN_RISE_ROUNDS * streams or not early or late / early - 1 <= RISE_SHARE:
        return None
    return late / early - 1


def spans_of(records: Iterable[Record]) -> list[tuple[float, float]]:
    """From send to end, of those that have both."""
    spans = [(one.sent_s, one.end_s) for one in records]
    return [(begin, end) for begin, end in spans if begin is not None and end is not None]
