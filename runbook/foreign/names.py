"""What a configuration is called, and which life was measured, by the words of a path. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runbook.errors import BadInput

#: Names that tools and their folders give of themselves: they say nothing of a configuration.
_OF_A_TOOL = re.compile(
    r"(profile_export(_aiperf|_genai_perf)?|profile_runs|aggregate|artifacts?|results?|outputs?|benchmarks?"
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
    """``life``: the number of a server life where the name says one, else ``None``.

    ``run``: the mark of a repetition within a life (``run2``, ``trial-3``), empty without one.
    """

    config: str
    life: int | None
    run: str = ""


@dataclass(frozen=True)
class PathName:
    """What the words of a path say: ``words`` that may name a configuration, the nearest first."""

    words: tuple[str, ...]
    life: int | None
    run: str

    def named(self, at: int = 0) -> Named:
        """The name by the word ``at``; the last one where there are fewer."""
        return Named(self.words[min(at, len(self.words) - 1)], self.life, self.run)


def words_of_path(parts: Sequence[str], concurrency: int | None) -> PathName:
    """The names in a path: ``parts`` are its file name without ending, then the folders upwards.

    Parts that a person may have written count, without their marks: the concurrency measured
    (``-c8``), repetitions (``run2``), lives (``life2``, ``block2``).
    """
    life: int | None = None
    runs: list[str] = []
    words: list[str] = []
    for part in parts:
        rest, found, run = _without_marks(part, concurrency)
        life = found if life is None else life
        runs += [run] if run else []
        if rest and not _OF_A_TOOL.fullmatch(rest):
            words.append(rest)
    return PathName(tuple(words) or (parts[0],), life, " ".join(runs))


def name_by_path(parts: Sequence[str], concurrency: int | None) -> Named:
    """The name in a path by the first part that a person may have written."""
    return words_of_path(parts, concurrency).named()


def name_by_words(text: str, concurrency: int | None) -> Named:
    """The name in a label or tag, without its marks."""
    rest, life, run = _without_marks(text, concurrency)
    return Named(rest or text, life, run)


def _without_marks(text: str, concurrency: int | None) -> tuple[str, int | None, str]:
    sweep = _SWEEP.fullmatch(text)
    if sweep:
        return sweep["name"], None, ""
    life: int | None = None
    runs: list[str] = []

    def take(mark: re.Match[str]) -> str:
        nonlocal life
        what, number = mark["what"].lower(), int(mark["number"])
        if what in ("life", "block"):
            life = number
        elif what in ("run", "trial", "rep"):
            runs.append(f"{what}{number}")
        elif number != concurrency:
            return mark[0]
        return ""

    return _MARK.sub(take, text).strip("-_. "), life, " ".join(runs)


def tell_apart(names: Sequence[PathName]) -> list[Named]:
    """The name of each path; files of one name in several folders are called as the folders.

    Raises ``BadInput`` where the folders do not tell them apart either.
    """
    alike: dict[str, set[tuple[str, ...]]] = {}
    for name in names:
        alike.setdefault(name.words[0], set()).add(name.words)
    level = {word: _first_difference(list(paths)) for word, paths in alike.items()}
    found = [name.named(level[name.words[0]]) for name in names]
    owners: dict[str, set[tuple[str, ...]]] = {}
    for name, named in zip(names, found, strict=True):
        owners.setdefault(named.config, set()).add(name.words)
    for config, paths in owners.items():
        if len(paths) > 1:
            listed = " and ".join(sorted("/".join(reversed(words[:3])) for words in paths))
            raise BadInput(
                f"{listed} would all be called {config}",
                "a name of its own for each configuration",
                "name each file or folder as its configuration, or give labels (--tag, --label)",
            )
    return found


def _first_difference(paths: Sequence[tuple[str, ...]]) -> int:
    """The first place at which paths differ, 0 where there is but one."""
    if len(paths) == 1:
        return 0
    longest = max(map(len, paths))
    return next(at for at in range(longest) if len({words[at : at + 1] for words in paths}) > 1)
