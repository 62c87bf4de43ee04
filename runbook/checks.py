"""The two small answers every stage gives: a ``Check`` on one thing, a ``Verdict`` on the whole;
and how many there are of a thing, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["pass", "warn", "fail", "unknown", "skipped"]


@dataclass(frozen=True)
class Check:
    """One thing looked at: what was found, what was wanted, and what to do about it."""

    name: str
    status: Status
    found: str
    wanted: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Verdict:
    """The one line a stage ends with; ``ok`` decides the exit code (0 or 1)."""

    ok: bool
    text: str

    def __str__(self) -> str:
        return f"VERDICT {'ok' if self.ok else 'NO'}: {self.text}"


def counted(count: int, what: str) -> str:
    """``1 block``, ``3 blocks``."""
    return f"{count} {what}{'s' * (count != 1)}"


def verdict_of(checks: Iterable[Check], what: str) -> Verdict:
    """The verdict on ``checks``: negative when one failed, and says which and why."""
    checks = tuple(checks)
    counts = {s: sum(c.status == s for c in checks) for s in ("warn", "unknown", "skipped")}
    failed = [
        f"{c.name} failed ({c.found}; wanted: {c.wanted})" for c in checks if c.status == "fail"
    ]
    said = [*failed, *(f"{n} {status}" for status, n in counts.items() if n)]
    return Verdict(
        not failed,
        f"{what}: {counted(len(checks), 'check')}" + (", " + ", ".join(said) if said else ""),
    )
