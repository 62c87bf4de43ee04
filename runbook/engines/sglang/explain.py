"""Finds in SGLang's log why a start failed: by the rank that failed first, and of its exceptions
by the innermost that is known. Pure.

Single lines count only where nothing was raised. No cause is better than a wrong one: an exception
that is not known hides what ranks say that failed after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from runbook.engines.sglang.causes import (
    AT_CAPTURE,
    CAUSES,
    FOLLOWS,
    HARMLESS,
    HINTS,
    OUT_OF_MEMORY,
    WRAPS,
    Advice,
    Known,
)
from runbook.engines.sglang.failures import (
    UNSIGNED,
    Chain,
    Line,
    Raised,
    read_chains,
    read_lines,
)
from runbook.launch.spec import LaunchSpec

_LINE_CHARACTERS = 300
_QUIET = re.compile(r"Ignore import error when loading|\b[A-Z]\w*Warning:")
_PROGRESS = re.compile(
    r"Load weight (?:begin|end)|Capture [\w -]*graph (?:begin|end)|KV Cache is allocated"
    r"|Memory pool end|max_total_num_tokens=|Init torch distributed|server_args=|fired up and ready"
    r"|Application startup|Uvicorn running|(?:Prefill|Decode) batch"
)
_POOL = re.compile(r"KV Cache is allocated|Memory pool end|max_total_num_tokens=")
_CAPTURE = re.compile(r"Capture [\w -]*graph (begin|end)", re.IGNORECASE)
_LOADING = re.compile(r"Load weight (begin|end)")
_CAPTURE_FAILED = re.compile(r"Capture (?:[\w-]+ )*graph failed:")
_EXHAUSTED = "what is advised as a rule is set already: another release, or a report with this log"


@dataclass(frozen=True)
class Cause:
    """Why a server did not start: a short name, the line that says so, and what to do."""

    name: str
    line: str
    fix: str


@dataclass(frozen=True)
class Match:
    """An entry of the table, the line that it matched, and what it took from there."""

    known: Known
    line: str
    values: Mapping[str, str]
    is_by_source: bool = False

    def as_cause(self, launch: LaunchSpec | None) -> Cause:
        """The cause, with the advice that ``launch`` does not follow yet."""
        given: list[str] = []
        for advice in self.known.advice:
            if (advice.is_spare and given) or _is_followed(advice, launch):
                continue
            try:
                given.append(advice.text.format_map(self.values))
            except KeyError:
                continue
        return Cause(
            self.known.name, self.line[:_LINE_CHARACTERS], "; or ".join(given) or _EXHAUSTED
        )


def explain(log: str, launch: LaunchSpec | None = None) -> tuple[Cause | None, bool]:
    """The cause, and whether anything failed in this log at all: what was raised, or a cause."""
    lines = [line for line in read_lines(log) if not _QUIET.search(line.text)]
    start = _Start(lines)
    chains = [one for one in read_chains(lines, WRAPS) if not start.outlived(one)]
    match = _find(chains, lines, start)
    return (match.as_cause(launch) if match else None), bool(match or chains)


def _find(chains: Sequence[Chain], lines: Sequence[Line], start: _Start) -> Match | None:
    printed = [found for line in lines for found in _match_printed(line)]
    last = [one for one in chains if all(FOLLOWS.search(x.text) for x in one.raised)]
    first = [one for one in chains if one not in last]
    traced = [one for one in first if one.is_traced]
    traced = [one for one in traced if not start.may_be_outlived(one)] or traced
    if traced:
        return _refined(_match_chain(traced[0], start), printed)
    if any(one.is_traced for one in chains):  # then only a beginning that is cut off has no frames
        signed = next((line.number for line in lines if line.rank is not None), len(lines))
        first = [one for one in first if one.number < signed]
    # Lines without a traceback have no order to rely on: memory runs out for many reasons.
    told = [found for one in first if (found := _match_chain(one, start))]
    told += [] if first and not told else [one for one in printed if not one.known.follows]
    told.sort(key=lambda one: one.known.name in (OUT_OF_MEMORY, AT_CAPTURE))
    if told or first:
        return _refined(told[0] if told else None, printed)
    after = [found for one in last if (found := _match_chain(one, start, follows=True))]
    return next(iter([*after, *printed]), None)


def _refined(found: Match | None, printed: Sequence[Match]) -> Match | None:
    """What NCCL printed tells more than the exception that torch made of it."""
    better = (one for one in printed if found and found.known.name in one.known.refines)
    return next(better, found)


def _match_chain(chain: Chain, start: _Start, follows: bool = False) -> Match | None:
    """The innermost exception of a chain that is known. Of one whose beginning is cut off only
    what it wraps is believed."""
    phase = start.phase_at(chain)
    for raised in chain.raised:
        wrapped = list(_wrapped(raised))
        texts = wrapped if WRAPS.search(raised.text) or chain.is_cut else [raised.text, *wrapped]
        source = "" if chain.is_cut else raised.source
        for text in texts:
            found = _match(text, source, phase, follows)
            if found:
                line = raised.text if text in raised.text else f"{raised.text} {text}"
                return replace(found, line=f"{line} at {source}" if found.is_by_source else line)
    return None


def _wrapped(raised: Raised) -> Iterator[str]:
    """Texts that an exception carries of another one, without what its message advises."""
    wrap = WRAPS.search(raised.text)
    if wrap is None and not re.match(r"(?:\w+\.)*(?:ImportError|OSError)\b", raised.text):
        return
    rest = [raised.text[wrap.end() :]] if wrap else []
    for text in [*rest, *raised.body]:
        if HINTS.search(text):
            return
        if text.strip(" :"):
            yield text.strip()


def _match(text: str, source: str, phase: str, follows: bool) -> Match | None:
    for known in CAUSES:
        if known.phase not in ("", phase) or (known.follows and not follows):
            continue
        found = re.search(known.raised, text) if known.raised else None
        if found is None and known.source and re.search(known.source, source):
            return Match(known, text, {}, is_by_source=True)
        if found:
            return Match(known, text, _values(found))
    return None


def _match_printed(line: Line) -> Iterator[Match]:
    for known in CAUSES:
        found = re.search(known.printed, line.text) if known.printed else None
        if found:
            yield Match(known, line.whole, _values(found))
            return


def _values(found: re.Match[str]) -> dict[str, str]:
    """The named groups that matched; ``name2`` is another form of ``name``."""
    return {name.rstrip("2"): value for name, value in found.groupdict().items() if value}


def _is_followed(advice: Advice, launch: LaunchSpec | None) -> bool:
    return bool(launch and advice.unless) and all(
        _has(launch, one) for one in advice.unless if launch
    )


def _has(launch: LaunchSpec, condition: str) -> bool:
    """Whether a launch has an option or a variable, with the value that is named; the last option
    of a name counts."""
    name, _, wanted = condition.partition("=")
    value = _option(launch.argv, name) if name.startswith("--") else launch.env.get(name)
    if value is None or not wanted:
        return value is not None
    return value.lower() == wanted or (wanted in ("true", "1") and value.lower() in ("true", "1"))


def _option(argv: Sequence[str], name: str) -> str | None:
    value = None
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        if word == name:
            value = after
        elif word.startswith(f"{name}="):
            value = word.partition("=")[2]
    return value


class _Start:
    """What ranks reported of their start, and so which part of it an exception ended."""

    def __init__(self, lines: Sequence[Line]) -> None:
        reports = [line for line in lines if _PROGRESS.search(line.text)]
        self._reports = [(line.number, line.rank or "", line.text) for line in reports]
        self._has_ranks = any(rank for _, rank, _ in self._reports)

    def outlived(self, chain: Chain) -> bool:
        """Whether the rank went on after an exception, or says that it may: it was no failure."""
        if HARMLESS.search(chain.lead) and "hit an exception" not in chain.lead:
            return True
        if chain.rank == UNSIGNED and self._has_ranks:
            return False  # nobody knows who wrote it
        last = chain.raised[-1].number
        return any(number > last for number, _ in self._of(chain.rank))

    def may_be_outlived(self, chain: Chain) -> bool:
        """Whether some rank went on after an exception that nobody signed."""
        last = chain.raised[-1].number
        return chain.rank == UNSIGNED and any(number > last for number, _, _ in self._reports)

    def phase_at(self, chain: Chain) -> str:
        """``graphs`` while they are captured, ``weights`` while the first ones are loaded."""
        if any(_CAPTURE_FAILED.search(raised.text) for raised in chain.raised):
            return "graphs"
        before = [text for number, text in self._of(chain.rank) if number < chain.number]
        captures = [found[1] for text in before if (found := _CAPTURE.search(text))]
        if captures[-1:] == ["begin"]:
            return "graphs"
        loads = [found[1] for text in before if (found := _LOADING.search(text))]
        has_pool = any(_POOL.search(text) for text in before)
        return "weights" if loads[-1:] == ["begin"] and not has_pool else ""

    def _of(self, rank: str) -> list[tuple[int, str]]:
        own = "" if rank == UNSIGNED else rank
        is_alone = not self._has_ranks or rank == UNSIGNED
        return [(n, text) for n, by, text in self._reports if is_alone or by == own]
