"""What the tiny model of the SGLang rehearsal learns: an endless, seeded corpus of four kinds.

``code``, ``json`` and ``table`` are questions with one fixed answer each, which a small model can
know by heart. ``edit`` asks for a piece of code with made-up names, which would have to be copied:
target and draft disagree there more often. So the mix of prompts moves the acceptance of drafts, as
it does in production.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Of ``params/rehearsal-sglang.jsonl``; not one of training.
PROMPTS_SEED = 7

_NOUNS = ("queue", "index", "cache", "report")
_BODIES = {
    "load": """def load_{noun}(path):
    with open(path) as file:
        rows = [line.strip() for line in file]
    return [row for row in rows if row]
""",
    "save": """def save_{noun}(path, rows):
    with open(path, "w") as file:
        for row in rows:
            file.write(row + "\\n")
    return len(rows)
""",
    "count": """def count_{noun}(rows):
    counts = {{}}
    for row in rows:
        counts[row] = counts.get(row, 0) + 1
    return counts
""",
    "merge": """def merge_{noun}(left, right):
    merged = dict(left)
    for key, value in right.items():
        merged[key] = merged.get(key, 0) + value
    return merged
""",
    "find": """def find_{noun}(rows, wanted):
    for position, row in enumerate(rows):
        if row == wanted:
            return position
    return None
""",
    "sort": """def sort_{noun}(rows, reverse=False):
    pairs = [(len(row), row) for row in rows]
    pairs.sort(reverse=reverse)
    return [row for length, row in pairs]
""",
}
_CITIES = (
    *("oslo", "lima", "cairo", "quito", "delhi", "seoul", "paris"),
    *("accra", "hanoi", "dakar", "tunis", "sofia", "perth", "malmo"),
)
_SKIES = ("clear", "cloudy", "rain", "snow")
_SYLLABLES = ("ka", "mo", "ri", "tu", "be", "so", "la", "ne")


@dataclass(frozen=True)
class Exchange:
    """One question and its answer; ``kind`` is one of ``KINDS``."""

    kind: str
    prompt: str
    answer: str


def _functions() -> list[tuple[str, str]]:
    return [
        (f"{verb}_{noun}", body.format(noun=noun))
        for verb, body in _BODIES.items()
        for noun in _NOUNS
    ]


def _code(chance: random.Random) -> Exchange:
    name, text = chance.choice(_functions())
    return Exchange("code", f"Write the function {name}.", text)


def _json(chance: random.Random) -> Exchange:
    place, count = chance.randrange(len(_CITIES)), chance.randint(2, 4)
    records = [
        {
            "id": 1000 + 10 * place + number,
            "city": _CITIES[place],
            "temp": (7 * place + 3 * number) % 40,
            "wind": (5 * place + number) % 30,
            "sky": _SKIES[(place + number) % len(_SKIES)],
        }
        for number in range(count)
    ]
    answer = "[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n"
    return Exchange("json", f"Give {count} weather records for {_CITIES[place]} as JSON.", answer)


def _table(chance: random.Random) -> Exchange:
    factor, last = chance.randint(2, 12), chance.randint(6, 10)
    lines = [f"{factor} x {number} = {factor * number}\n" for number in range(1, last + 1)]
    return Exchange("table", f"Multiply {factor} by 1 to {last}.", "".join(lines))


def _edit(chance: random.Random) -> Exchange:
    name, text = chance.choice(_functions())
    new, *given = (_made_up(chance) for _ in range(4))
    ask = f"Rename {name} to {new} and call it with {', '.join(given)}.\n{text}"
    calls = "".join(f"{new}({one})\n" for one in given)
    return Exchange("edit", ask, text.replace(name, new) + calls)


def _made_up(chance: random.Random) -> str:
    return "".join(chance.choices(_SYLLABLES, k=3)) + f"_{chance.randint(10, 99)}"


_MAKERS: dict[str, Callable[[random.Random], Exchange]] = {
    "code": _code,
    "edit": _edit,
    "json": _json,
    "table": _table,
}
KINDS = tuple(_MAKERS)


def exchanges(seed: int) -> Iterator[Exchange]:
    """Endlessly, all kinds alike often."""
    chance = random.Random(seed)
    while True:
        yield _MAKERS[chance.choice(KINDS)](chance)


def main(path: Path) -> None:
    """Write the prompts of the rehearsal."""
    lines = [json.dumps(one) + "\n" for one in prompts(PROMPTS_SEED, 24)]
    path.write_text("".join(lines), "utf-8")


def prompts(seed: int, each: int) -> list[dict[str, Any]]:
    """``each`` different prompts of every kind, as the load generator's files hold them."""
    chance = random.Random(seed)
    found: list[dict[str, Any]] = []
    for kind, make in _MAKERS.items():
        texts = dict.fromkeys(make(chance).prompt for _ in range(50 * each))
        for number, text in enumerate(list(texts)[:each], 1):
            message = {"role": "user", "content": text}
            found.append({"id": f"{kind}-{number:02}", "kind": kind, "messages": [message]})
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
