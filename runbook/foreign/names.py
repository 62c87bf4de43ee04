"""What a configuration is called, and which life was measured, by the words of a path. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: Names that tools and their folders give of themselves: they say nothing of a configuration.
_OF_A_TOOL = re.compile(
    r"(profile_export(_aiperf)?|profile_runs|aggregate|artifacts?|results?|outputs?|benchmarks?"
    r"|summary|cells|BENCH(-.*)?|search_iter_\d+"
    r"|.*-(inf|[\d.]+)qps(-concurrency\d+)?-.*-\d{8}-\d{6}"
    r"|[a-z]+(-[a-z]+)*_\d{4}_\d+_[\w.]+)",
    re.IGNORECASE,
)
_SWEEP = re.compile(r"SERVE--(?P<name>.+?)(-BENCH-.*)?")
_MARK = re.compile(
    r"(?:^|[-_. ]+)(?P<what>max[-_]?concurrency|concurrency|conc|c|life|block|run|trial|rep)"
    r"[-_= ]?(?P<number>\d+)(?=$|[-_. ])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Named:
    """``life``: the number of a server life where the path says one, else ``None``."""

    config: str
    life: int | None


def name_by_path(parts: Sequence[str], concurrency: int | None) -> Named:
    """The name in a path: ``parts`` are its file name without ending, then the folders upwards.

    The first part that a person may have written counts, without its marks: the concurrency
    measured (``-c8``), repetitions (``run2``), lives (``life2``, ``block2``).
    """
    life: int | None = None
    named = ""
    for part in parts:
        rest, found = _without_marks(part, concurrency)
        life = found if life is None else life
        if not named and rest and not _OF_A_TOOL.fullmatch(rest):
            named = rest
    return Named(named or parts[0], life)


def name_by_words(text: str, concurrency: int | None) -> Named:
    """The name in a label or tag, without its marks."""
    rest, life = _without_marks(text, concurrency)
    return Named(rest or text, life)


def _without_marks(text: str, concurrency: int | None) -> tuple[str, int | None]:
    sweep = _SWEEP.fullmatch(text)
    if sweep:
        return sweep["name"], None
    life: int | None = None

    def take(mark: re.Match[str]) -> str:
        nonlocal life
        what, number = mark["what"].lower(), int(mark["number"])
        if what in ("life", "block"):
            life = number
        elif what.startswith(("c", "max")) and number != concurrency:
            return mark[0]
        return ""

    return _MARK.sub(take, text).strip("-_. "), life
