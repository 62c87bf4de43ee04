"""Markdown of cells as the document takes it: no HTML outside code, no stretches of blank lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_TAG = re.compile(r"\\[\s\S]|<(?=[A-Za-z/!?])(?!https?://[^\s<>]*>)")
_TICKS = re.compile(r"\\?(`+)")


def drop_html(text: str) -> str:
    """``text`` with every ``<`` that could open a tag or comment written ``&lt;``, except in code.

    Code is what is a fence, and what is a code span both in its line and in its paragraph.
    """
    out = []
    for is_code, lines in _parts(text):
        out.append(lines if is_code else "".join(map(_drop_in_paragraph, _paragraphs(lines))))
    return "".join(out)


def squeeze(text: str) -> str:
    """``text`` with one blank line at most between two others, none at the ends, fences as is."""
    out = ""
    for is_code, lines in _parts(text):
        if is_code:
            out += lines
            continue
        blank_before = not out or out.endswith("\n\n")
        lines = re.sub(r"\A(?:[ \t]*\n)+", "" if blank_before else "\n", lines)
        out += re.sub(r"\n(?:[ \t]*\n)+", "\n\n", lines)
    return out.rstrip() + "\n"


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Fenced blocks (true) and what lies between them (false), whole lines."""
    held: list[str] = []
    ticks = ""
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line)
        if ticks:
            held.append(line)
            closes = match and match[1].startswith(ticks) and not line[match.end() :].strip()
            if closes:
                yield True, "".join(held)
                held, ticks = [], ""
        elif match and not (match[1][0] == "`" and "`" in line[match.end() :]):
            yield False, "".join(held)
            held, ticks = [line], match[1]
        else:
            held.append(line)
    if held:
        yield bool(ticks), "".join(held)


def _paragraphs(text: str) -> list[str]:
    return re.split(r"(?<=\n)(?=[ \t]*\n)", text)


def _drop_in_paragraph(text: str) -> str:
    code = _spans(text)
    start, safe = 0, set[int]()
    for line in text.splitlines(keepends=True):
        safe |= {start + at for at in _spans(line)}
        start += len(line)
    code &= safe
    return _TAG.sub(
        lambda match: "&lt;" if match[0] == "<" and match.start() not in code else match[0], text
    )


def _spans(text: str) -> set[int]:
    """Positions inside the code spans of ``text``."""
    inside: set[int] = set()
    at = 0
    while opening := _TICKS.search(text, at):
        ticks = opening[1]
        if opening.group().startswith("\\"):
            ticks = ticks[1:]
            at = opening.start(1) + 1
            if not ticks:
                continue
        begin = opening.end()
        closing = re.compile(rf"(?<!`){ticks}(?!`)").search(text, begin)
        if closing is None:
            at = begin
            continue
        inside.update(range(begin, closing.start()))
        at = closing.end()
    return inside
