"""The operator's plan document: one marked block is ours, every other byte is theirs.

The block stands between two lines; the first carries a digest of what is between them, so that
an edit by hand is seen. A file without a block gets it at its end.
"""

from __future__ import annotations

import datetime
import hashlib
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from runbook.errors import BadInput, Blocked
from runbook.hosts.base import Host
from runbook.publish import host_files
from runbook.publish.artefacts import Artefacts
from runbook.publish.state import headline, verdict_lines
from runbook.publish.tables import escape

_BEGIN = re.compile(
    rb"^<!-- golive-runbook:begin(?: sha256=([0-9a-f]{64}))?[^\r\n]*-->[ \t]*(?=\r?$)", re.MULTILINE
)
_END = re.compile(rb"^<!-- golive-runbook:end -->", re.MULTILINE)
_MARK = b"golive-runbook:"


def update(text: bytes | None, block: str) -> bytes:
    """``text`` with ``block`` in place of the marked one, or at the end; ``None`` is no file.

    The block takes the line ends of the file; outside it no byte changes. Updating twice with the
    same block is updating once. Raises ``BadInput`` for a file with two blocks, half a block, or
    in an encoding whose lines cannot be told.
    """
    before = text or b""
    place = _find(before)
    newline = b"\r\n" if _has_dos_lines(before) else b"\n"
    rendered = _render(block, newline)
    if place is not None:
        return before[: place.start] + rendered + before[place.end :]
    if not before:
        return rendered + newline
    if before.endswith(b"\n"):
        return before + newline + rendered + newline
    return before + newline + newline + rendered


def is_edited(text: bytes) -> bool:
    """Whether the block in ``text`` is not, to the letter, as it was written."""
    place = _find(text)
    return place is not None and place.digest != _digest(place.body)


def block(run_path: Path, date: datetime.date) -> str:
    """The block for a run: result, date and link to the document."""
    found = Artefacts.of(run_path)
    params = found.run.params
    lines = [
        f"### Go-live of {escape(params.name)}, {date.isoformat()}",
        "",
        f"Status: {escape(headline(found))}",
        "",
        *(f"- {line}" for line in verdict_lines(found)[:2]),
    ]
    document, plan = (
        posixpath.normpath(posixpath.join(params.server.cwd, path)) if path else None
        for path in (params.record.document, params.record.plan)
    )
    if document and plan:
        link = quote(posixpath.relpath(document, posixpath.dirname(plan)))
        lines.append(f"- **Record.** [{escape(posixpath.basename(document))}]({link})")
    return "\n".join(lines)


def update_on(host: Host, path: str, block: str) -> str:
    """Put ``block`` into the plan document at the absolute ``path``; says what was done.

    A link is followed and stays, mode and owner stay; a block that was edited by hand is kept
    with its whole file as ``<name>.orig-N``. Raises ``Blocked`` where ``update`` refuses the file
    (by now the service is up), ``HostFailed``.
    """
    target = host_files.resolve(host, path)
    before = host.read(target)
    try:
        after = update(before, block)
        edited = before is not None and is_edited(before)
    except BadInput as error:
        raise Blocked(f"{path}: {error.found}", error.wanted, error.do) from None
    if after == before:
        return f"{path}: the block was up to date"
    said = f"{path}: the block was {'replaced' if before and _find(before) else 'inserted'}"
    if before is not None and edited:
        kept = host_files.keep_copy(host, target, before)
        said += f"; it was edited by hand, the old text is kept as {kept}"
    host_files.replace(host, target, after)
    return said


@dataclass(frozen=True)
class _Place:
    """Where the block lies, marks included; ``body`` is what is between its marks."""

    start: int
    end: int
    body: bytes
    digest: str


def _find(text: bytes) -> _Place | None:
    """The one block of ``text``, ``None`` without one."""
    if text.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in text:
        raise BadInput(
            "the plan document is no text in UTF-8 (it holds NUL bytes or a UTF-16 mark)",
            "a file whose lines end with a newline byte",
            "convert it: iconv -t UTF-8",
        )
    begins, ends = list(_BEGIN.finditer(text)), list(_END.finditer(text))
    if not begins and not ends:
        return None
    if len(begins) > 1 or len(ends) > 1:
        raise BadInput(
            f"the plan document holds {max(len(begins), len(ends))} blocks of the runbook",
            "one block between golive-runbook:begin and golive-runbook:end",
            "keep one and remove the others by hand",
        )
    if not (begins and ends) or ends[0].start() < begins[0].end():
        raise BadInput(
            "the plan document holds half a block of the runbook",
            "a line golive-runbook:begin, and after it a line golive-runbook:end",
            "remove the single line by hand; the block will be written anew",
        )
    begin, end = begins[0], ends[0]
    digest = (begin[1] or b"").decode()
    return _Place(begin.start(), end.end(), text[begin.end() : end.start()], digest)


def _render(block: str, newline: bytes) -> bytes:
    lines = block.strip("\n").split("\n")
    body = b"\n" + "".join(f"{line}\n" for line in lines).encode()
    if _MARK in body:
        raise BadInput(
            "the block for the plan document holds a mark of its own",
            "plain Markdown",
            "take the mark golive-runbook out of the names in the parameters",
        )
    begin = (
        f"<!-- golive-runbook:begin sha256={_digest(body)} "
        "The runbook replaces this block; write outside it. -->"
    ).encode()
    return (begin + body + b"<!-- golive-runbook:end -->").replace(b"\n", newline)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body.replace(b"\r\n", b"\n")).hexdigest()


def _has_dos_lines(text: bytes) -> bool:
    """Whether most lines of ``text`` end with carriage return and newline."""
    return 2 * text.count(b"\r\n") > text.count(b"\n")
