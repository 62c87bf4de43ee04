"""Exceptions as a log prints them: tracebacks of several ranks, chained, wrapped, or cut. Pure.

A log is what many processes wrote into one stream: each line has the prefixes of those who passed
it on (journal, container, rank), a record of several lines has SGLang's stamp on its first alone,
and ranks may take turns from line to line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

#: Lines of an exception's message that are kept beyond its first.
_MOST_BODY = 400
#: The stream of what no rank signed: the traceback of a process that had no time to log it.
UNSIGNED = "?"

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PASSED_ON = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\s+(?:(?:stdout|stderr) [FP] "
    r"|\S+\s+[^\s:\[]+(?:\[\d+\])?:(?: |$))?"  # journalctl, Kubernetes
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [^\s:\[]+(?:\[\d+\])?:(?: |$)"  # syslog
    r"|[A-Za-z][\w.-]*\s*\| "  # docker compose
)
_RANK = re.compile(
    r"\[(?:default)?[Rr]ank ?(?P<rank>\d+)\]:? ?|\[default(?P<local>\d+)\]: ?"
    r"|\((?P<actor>[^()]*\bpid=\d+[^()]*)\) ?"
)
_LEVEL = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)(?::\s{1,8}|\s+\d\d-\d\d \d\d:\d\d:\d\d \S+ ?)"
)
_STAMP = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?P<rank>(?:[ _][A-Z]{2,}\d+)*)\] ?"
)
#: The margin that the traceback of an exception group draws.
_MARGIN = re.compile(r"\s*(?:\|(?: |$)|\+ (?=Exception Group)|\+[-+][-+ \d.]*$)")
_HEADER = re.compile(r"Traceback \(most recent call last\):")
_LINK = re.compile(
    r"(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred)"
)
_FRAME = re.compile(r"\s*File \"[^\"]*\", line \d+")
#: What Python prints the other way round, of every thread: no exception ends it.
_DUMP = re.compile(r"(?:Current thread|Thread) 0x\w+.*most recent call first|Fatal Python error")
_PROCESS = re.compile(r"Process \S*Process\S*:$")
_EXCEPTION = re.compile(
    r"(?P<kind>(?:[A-Za-z_]\w*\.)*(?P<name>[A-Z_]\w*)(?:\([\w.]*\))?)(?::(?:\s|$)|$)"
)
_NAMES = re.compile(
    r"^(?:Exception|OutOfResources|\w+(?:Error|Exception|Traceback|Interrupt|Exit|Expired|Timeout"
    r"|Failed|Group|Failure|Died))$"
)


@dataclass(frozen=True)
class Line:
    """One line without its prefixes. ``rank``: who signed it, ``None`` where nobody did."""

    number: int
    text: str
    whole: str
    rank: str | None
    is_stamped: bool


@dataclass
class Raised:
    """One exception: ``text`` is its type and the first line of its message, ``body`` what follows
    of the message, ``source`` the last frame before it (place and line of code)."""

    number: int
    text: str
    source: str = ""
    body: list[str] = field(default_factory=list)


@dataclass
class Chain:
    """Exceptions that followed from one another, the innermost first.

    ``lead``: what stands before its first traceback. ``is_cut``: the log begins after the
    innermost. ``is_traced``: there were frames, or the head of a traceback.
    """

    rank: str
    number: int
    lead: str = ""
    is_cut: bool = False
    is_traced: bool = True
    raised: list[Raised] = field(default_factory=list)


def read_lines(log: str) -> list[Line]:
    """The lines of a log that hold something, without what others wrote before them."""
    lines = enumerate(_ANSI.sub("", log).splitlines())
    return [_read_line(number, line) for number, line in lines if line.strip()]


def _read_line(number: int, whole: str) -> Line:
    text, rank, is_stamped = whole, None, False
    while True:
        # A bar of progress has no end of its own: what is logged next stands behind it.
        if match := _STAMP.search(text):
            rank, is_stamped = match["rank"].replace("_", " ").strip(), True
            text = text[match.end() :]
        elif match := _RANK.match(text):
            rank = next(f"rank {one}" for one in match.groups() if one is not None)
            text = text[match.end() :]
        elif match := _PASSED_ON.match(text) or _LEVEL.match(text):
            text = text[match.end() :]
        else:
            break
    if match := _MARGIN.match(text):
        text = text[match.end() :]
    return Line(number, text.rstrip(), whole.strip(), rank, is_stamped)


def read_chains(lines: Iterable[Line], wraps: re.Pattern[str]) -> list[Chain]:
    """The exceptions of a log, in the order in which they began. ``wraps``: what wraps another
    exception, and may print it behind itself."""
    streams: dict[str, _Reader] = {}
    for stream, line in _by_rank(lines):
        if stream not in streams:
            streams[stream] = _Reader(stream, wraps)
        streams[stream].take(line)
    chains = [chain for reader in streams.values() for chain in reader.chains if chain.raised]
    return sorted(chains, key=lambda chain: chain.number)


def _by_rank(lines: Iterable[Line]) -> Iterator[tuple[str, Line]]:
    """Each line with the stream it belongs to: what is not signed goes on with what stands before
    it, unless it begins a traceback of its own."""
    stream, before = UNSIGNED, ""
    for line in lines:
        if line.rank is not None:
            stream = line.rank
        elif _PROCESS.match(line.text) or (_HEADER.match(line.text) and not _LINK.match(before)):
            stream = stream if before in ('"""', "'''") else UNSIGNED
        before = line.text.strip()
        yield stream, line


class _Reader:
    """Reads the exceptions of one stream."""

    def __init__(self, rank: str, wraps: re.Pattern[str]) -> None:
        self.chains: list[Chain] = []
        self._rank, self._wraps = rank, wraps
        self._before, self._source = "", ""
        self._is_linked = self._is_cut = self._in_dump = False
        self._in_frames = self._in_message = False
        self._signed = False

    def take(self, line: Line) -> None:
        """Take the next line of the stream."""
        text = line.text
        header = _HEADER.search(text)
        if _LINK.match(text.strip()):
            self._is_linked, self._in_message, self._in_frames = True, False, False
            self._is_cut = not (self.chains and self.chains[-1].raised)
        elif header:
            if not self._is_linked or self._is_cut:
                self._open(line, text[: header.start()].strip())
            self._in_frames, self._in_message, self._in_dump = True, False, False
            self._is_linked, self._source = False, ""
        elif _DUMP.search(text):
            self._in_dump, self._in_frames, self._in_message = True, False, False
        elif not (self._in_dump and text.startswith(" ")):
            self._in_dump = False
            self._take_text(line)
        self._before = text.strip() or self._before

    def _take_text(self, line: Line) -> None:
        text = line.text
        found = _EXCEPTION.match(text)
        is_named = found is not None and _NAMES.search(found["name"]) is not None
        if _FRAME.match(text):
            self._take_frame(line)
        elif self._in_frames:
            if text.startswith((" ", "\t")):
                self._source = f"{self._source} {text.strip()}"[-400:]
            elif found and (is_named or "." in found["kind"]):
                self._raise(line)
        elif is_named:
            if not self._in_message or not self._wrapped():
                goes_on = self._in_message and self.chains[-1].is_traced
                self._open(line, is_traced=goes_on)
            self._raise(line)
        elif self._in_message:
            self._take_message(line)

    def _take_frame(self, line: Line) -> None:
        if not self._in_frames and not self._wrapped() and not self._is_linked:
            self._open(line)
        self._in_frames, self._in_message, self._source = True, False, line.text.strip()

    def _take_message(self, line: Line) -> None:
        """A stamp begins another record, unless whoever wrote this stamps every line of it."""
        raised = self.chains[-1].raised[-1]
        is_next = line.is_stamped and not (self._signed and raised.text.endswith(":"))
        if is_next or len(raised.body) >= _MOST_BODY:
            self._in_message = False
        else:
            raised.body.append(line.text.strip())

    def _wrapped(self) -> bool:
        """Whether the last exception is one behind which another is printed."""
        raised = self.chains[-1].raised if self.chains else []
        return bool(raised) and self._wraps.search(raised[-1].text) is not None

    def _open(self, line: Line, lead: str = "", is_traced: bool = True) -> None:
        if not lead and (self._before.endswith(":") or "Exception ignored" in self._before):
            lead = self._before
        self.chains.append(Chain(self._rank, line.number, lead, self._is_cut, is_traced))
        self._is_linked = self._is_cut = False

    def _raise(self, line: Line) -> None:
        if not self.chains:
            self._open(line)
        chain = self.chains[-1]
        chain.raised.append(Raised(line.number, line.text.strip(), self._source))
        self._in_frames, self._in_message, self._source = False, True, ""
        self._signed = line.is_stamped
