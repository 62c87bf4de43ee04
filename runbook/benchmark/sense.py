"""Whether answers make sense by themselves, and whether their tokens can be counted. Pure.

A broken server answers nothing, or one token again and again, and is fast: in the baseline as in
the others. So each answer is judged by itself, by a rule so strict that tables, JSON, code and what
counts up are let pass; ``texts`` compares configurations by a rule that sees more. The probe of a
server (``probe.completion``) has a rule of its own: it judges one text of 16 tokens to one prompt,
too short for half of it to prove a loop, and it is shipped alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runbook.load.records import Record

#: How the reason begins where answers without sense void a cell, and the remark below the limit.
VOID_WITHOUT_SENSE, SOME_WITHOUT_SENSE = (
    "answers without sense: ",
    "below the limit, without sense: ",
)
#: Share of a cell's answers that may be loops; of those without text it is the share of errors.
MAX_LOOPS = 0.02
#: A loop is a unit that comes so often, letter for letter, up to the end of a text; a unit of
#: ``_PHRASE_WORDS`` words needs fewer. Shorter loops, and those that are less than this share of
#: the text, are let pass.
_LOOP_REPEATS, _PHRASE_REPEATS, _PHRASE_WORDS = 8, 4, 6
_LOOP_CHARACTERS, _LOOP_SHARE = 8, 0.5
#: What draws lines and leaves room (rules of tables, dots of a list) may be more of a text; of that
#: and of digits alone, shorter loops are let pass.
_RULES, _RULE_SHARE = frozenset("-=_*~#+|:. \t\r\n"), 0.9
_FILLING, _FILLING_CHARACTERS = _RULES | frozenset("0123456789,"), 16
#: The end of a text that is looked at.
_LOOKED_CHARACTERS = 8000
_LETTERS = re.compile(r"[^\W\d_]{2,}")
#: The fault of a text that holds nothing but blanks.
NO_TEXT = "no text"
#: Of faults, and of prompts with one, so many are named.
_SHOWN = 3


@dataclass(frozen=True)
class Judged:
    """What the answers of a cell say against it; ``reasons`` void it, ``remarks`` are told."""

    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def judge_answers(records: Sequence[Record], error_share: float) -> Judged:
    """Whether the answers that came whole make sense and tell their tokens.

    ``error_share``: of all requests, how many may have no text, as may fail.
    """
    good = [record for record in records if record.ok]
    if not good:
        return Judged(("no request was answered",))
    reasons, remarks = [], []
    faults = _faults(good)
    if faults:
        empty = len(faults.get(NO_TEXT, ()))
        loops = sum(map(len, faults.values())) - empty
        if empty > error_share * len(records) or loops > MAX_LOOPS * len(good):
            reasons.append(VOID_WITHOUT_SENSE + _faults_said(faults, len(good)))
        else:
            remarks.append(SOME_WITHOUT_SENSE + _faults_said(faults, len(good)))
    if doubts := [record.doubt for record in good if record.doubt]:
        reasons.append(f"usage that cannot be, {len(doubts)} of {len(good)} answers: {doubts[0]}")
    if without := sum(record.tokens_out is None and not record.doubt for record in good):
        said = f"{without} of {len(records)} answers came without usage: tokens are unknown"
        reasons.append(said)
    return Judged(tuple(reasons), tuple(remarks))


def fault_of(text: str) -> str:
    """Why a text makes no sense by itself, in a few words; empty where it may.

    ``no text``: nothing but blanks. ``a loop``: the text ends in one unit, repeated letter for
    letter eight times or more (a unit of six words four times), which makes half of the text or
    more. So one token again and again, two in turn, and a phrase to the end are loops; what counts
    up, rows that differ, and a run that something follows are none. Runs of dashes and dots must be
    nearly all of the text. Of a long text, the end is judged.
    """
    shown = text.strip()
    if not shown:
        return NO_TEXT
    shown = shown[-_LOOKED_CHARACTERS:]
    least = _LOOP_SHARE
    found = _longest_loop(shown)
    if found is None:
        return ""
    unit, length = found
    if _FILLING.issuperset(unit) and length < _FILLING_CHARACTERS:
        return ""
    if _RULES.issuperset(unit):
        least = _RULE_SHARE
    return f"a loop of {unit[:20]!a}" if length >= least * len(shown) else ""


def _longest_loop(text: str) -> tuple[str, int] | None:
    """The unit that a text ends in again and again, and how many characters its loop takes."""
    best: tuple[str, int] | None = None
    for period, more in enumerate(_repeats_of_end(text), 1):
        length = period + more
        if length < max(_LOOP_CHARACTERS, _PHRASE_REPEATS * period):
            continue
        if best is not None and length <= best[1] + period:
            continue
        unit = text[-period:]
        is_phrase = len(_LETTERS.findall(unit)) >= _PHRASE_WORDS
        if length >= (_PHRASE_REPEATS if is_phrase else _LOOP_REPEATS) * period:
            best = unit, length
    return best


def _repeats_of_end(text: str) -> Iterator[int]:
    """For each period from 1 on: how many characters before the last ones repeat the end."""
    end = text[::-1]
    size = len(end)
    # The Z function of the reversed text, up to the longest unit that may come four times.
    known = [0] * (size // _PHRASE_REPEATS + 1)
    left = right = 0
    for at in range(1, len(known)):
        same = min(right - at, known[at - left]) if at < right else 0
        while at + same < size and end[same] == end[at + same]:
            same += 1
        known[at] = same
        if at + same > right:
            left, right = at, at + same
        yield same


def _faults(answers: Iterable[Record]) -> dict[str, list[str]]:
    """What is wrong with answers -> the prompts of those."""
    found: dict[str, list[str]] = {}
    for record in answers:
        parts = [part for part in (record.text, record.reasoning, record.calls) if part.strip()]
        if fault := next(filter(None, map(fault_of, parts or [""])), ""):
            found.setdefault(fault, []).append(record.prompt_id)
    return found


def _faults_said(faults: Mapping[str, Sequence[str]], answers: int) -> str:
    """``5 of 16 (a loop of '!': edit-01, edit-02; no text: edit-07)``."""
    by_count = sorted(faults.items(), key=lambda one: -len(one[1]))
    said = [
        f"{fault}: " + ", ".join(dict.fromkeys(ids[:_SHOWN])) + " ..." * (len(ids) > _SHOWN)
        for fault, ids in by_count[:_SHOWN]
    ]
    said += ["and others"] * (len(by_count) > _SHOWN)
    return f"{sum(map(len, faults.values()))} of {answers} ({'; '.join(said)})"
