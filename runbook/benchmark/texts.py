"""What answers say beside the baseline's: repetition, and equality between configurations. Pure.

A server that falls into repeating itself is fast: drafts of a loop are all accepted. And
speculation must not change what is answered. Both are seen here against the baseline's answers to
the same prompts: tables, JSON and copies repeat by nature, and a server's answers to one prompt
need not be equal from life to life even without speculation. What makes no sense by itself is
``sense``'s.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runbook.benchmark.measurements import by_place, key_of, place_of
from runbook.cells import Cell
from runbook.load.records import Record

#: A text repeats itself when fewer than this share of its n-grams, or of those of its end, differ.
DISTINCT_SHARE = 0.25
#: Or when it can be packed to less than this share of its bytes, whatever its words are.
PACKED_SHARE = 0.12
_GRAM, _LEAST_WORDS, _LEAST_BYTES = 4, 32, 200
#: Loops begin somewhere: ends of these many words are looked at by themselves.
_ENDS = (64, 224)
#: Share of a cell's answers that may repeat where the baseline's do not.
MAX_REPEATING = 0.02
#: Equal answers may be this share rarer than those of the baseline with itself.
EQUAL_SLACK = 0.05

#: How the note of a cell begins that repetition voids.
VOID_BY_REPETITION = "repetition: "
_WORD = re.compile(r"\w+|[^\w\s]")

#: Prompt and its turn in the cell ("edit-07/0") -> hash of the answer, and whether it repeats.
Answers = Mapping[str, tuple[str, bool]]


def distinct_share(text: str) -> float | None:
    """Share of a text's 4-grams of words that differ, of the whole or of an end, the least.

    ``None`` for a text too short to tell.
    """
    words = _WORD.findall(text)
    if len(words) < _LEAST_WORDS:
        return None
    return min(_distinct(part) for part in (words, *(words[-end:] for end in _ENDS)))


def _distinct(words: Sequence[str]) -> float:
    grams = [tuple(words[at : at + _GRAM]) for at in range(len(words) - _GRAM + 1)]
    return len(set(grams)) / len(grams)


def packed_share(text: str) -> float | None:
    """Compressed size of a text over its size in bytes; ``None`` for one too short to tell."""
    data = text.encode("utf-8", "surrogatepass")
    return len(zlib.compress(data, 9)) / len(data) if len(data) >= _LEAST_BYTES else None


def repeats(text: str) -> bool:
    """Whether a text does little but repeat itself, as a whole or at its end."""
    distinct, packed = distinct_share(text), packed_share(text)
    return (distinct is not None and distinct < DISTINCT_SHARE) or (
        packed is not None and packed < PACKED_SHARE
    )


def answers_of(records: Iterable[Record]) -> dict[str, tuple[str, bool]]:
    """The answered requests of a cell in a form small enough to keep with it."""
    found: dict[str, tuple[str, bool]] = {}
    turns: Counter[str] = Counter()
    for record in records:
        if record.ok:
            said = f"{record.reasoning}\0{record.text}".encode("utf-8", "surrogatepass")
            key = f"{record.prompt_id}/{turns[record.prompt_id]}"
            turns[record.prompt_id] += 1
            mark = hashlib.sha256(said).hexdigest()[:16]
            found[key] = (mark, repeats(record.reasoning + record.text))
    return found


def answers_from_json(stored: Any) -> dict[str, dict[str, tuple[str, bool]]]:
    """The answers by cell as ``measured.json`` holds them."""
    return {
        cell: {key: (str(mark), bool(repeating)) for key, (mark, repeating) in own.items()}
        for cell, own in (stored or {}).items()
    }


def judge_texts(
    cells: Sequence[Cell], answers: Mapping[str, Answers], baseline: str
) -> tuple[Cell, ...]:
    """``cells`` with those void whose answers repeat where the baseline's to the prompt do not.

    ``answers``: by the key of the cell. What an earlier call found is judged afresh. A prompt
    that the baseline did not answer says nothing.
    """
    calm = _calm_prompts(cells, answers, baseline)
    return tuple(_judge(_restored(cell), answers.get(key_of(cell), {}), calm) for cell in cells)


def _calm_prompts(
    cells: Sequence[Cell], answers: Mapping[str, Answers], baseline: str
) -> frozenset[str]:
    """Prompts that the baseline answered, and never with a repetition."""
    said: dict[str, bool] = {}
    for cell in cells:
        if cell.config == baseline:
            for key, (_, repeating) in answers.get(key_of(cell), {}).items():
                prompt = key.rpartition("/")[0]
                said[prompt] = said.get(prompt, False) or repeating
    return frozenset(prompt for prompt, repeating in said.items() if not repeating)


def _judge(cell: Cell, own: Answers, calm: frozenset[str]) -> Cell:
    shared = [key for key in own if key.rpartition("/")[0] in calm]
    looping = [key.rpartition("/")[0] for key in shared if own[key][1]]
    if cell.status != "ok" or len(looping) <= MAX_REPEATING * len(shared):
        return cell
    shown = ", ".join(dict.fromkeys(looping[:3])) + (" ..." if len(looping) > 3 else "")
    why = (
        f"{VOID_BY_REPETITION}{len(looping)} of {len(shared)} answers repeat themselves where the "
        f"baseline's do not ({shown})"
    )
    return replace(cell, status="void", note="; ".join(filter(None, [why, cell.note])))


def _restored(cell: Cell) -> Cell:
    if cell.status != "void" or not cell.note.startswith(VOID_BY_REPETITION):
        return cell
    return replace(cell, status="ok", note=cell.note.partition("; ")[2])


def compare_answers(
    cells: Sequence[Cell], answers: Mapping[str, Answers], baseline: str
) -> Iterator[str]:
    """Sentences on equality at temperature 0, one a configuration and concurrency.

    Answers to the same prompt are compared between blocks, those of the baseline with its own
    of other blocks for control.
    """
    groups: dict[str, dict[str, dict[int, Answers]]] = {}
    for cell in sorted(cells, key=by_place):
        if own := answers.get(key_of(cell)):
            groups.setdefault(place_of(cell), {}).setdefault(cell.config, {})[cell.block] = own
    for place, configs in groups.items():
        base = configs.get(baseline, {})
        control = _count(base, base, other_blocks=True)
        for config, blocks in configs.items():
            counted = _count(blocks, base)
            if config != baseline and counted.pairs:
                yield f"{place}: {_sentence(config, baseline, counted, control)}"


@dataclass(frozen=True)
class _Count:
    """How many pairs of answers to the same prompt there are, and how many are equal."""

    equal: int
    pairs: int

    @property
    def share(self) -> float:
        return self.equal / self.pairs if self.pairs else 1.0

    def __str__(self) -> str:
        return f"{self.equal} of {self.pairs} ({self.share:.0%})"


def _count(
    first: Mapping[int, Answers], second: Mapping[int, Answers], other_blocks: bool = False
) -> _Count:
    pairs = [
        mine[key][0] == theirs[key][0]
        for block, mine in first.items()
        for other, theirs in second.items()
        if not other_blocks or block < other
        for key in mine
        if key in theirs
    ]
    return _Count(sum(pairs), len(pairs))


def _sentence(config: str, baseline: str, counted: _Count, control: _Count) -> str:
    said = f"answers of {config} equal to those of {baseline}: {counted}"
    if not control.pairs:
        return f"{said}; one block, so nothing to control it by"
    said += f"; {baseline} with itself: {control}"
    if counted.share < control.share - EQUAL_SLACK:
        said += ": speculation, or what else differs, changes what is answered"
    return said
