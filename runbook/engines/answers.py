"""Values out of a server's JSON, where releases disagree on the type."""

from __future__ import annotations

from typing import Any


def whole(value: Any) -> int | None:
    """A whole number, also where it comes as text or as 8.0; ``None`` for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == value // 1 else None


def text(value: Any) -> str | None:
    """Text that is not empty, ``None`` for anything else."""
    return value if isinstance(value, str) and value else None


def truth(value: Any) -> bool | None:
    """A boolean, also where it comes as text; ``None`` for anything else."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return value if isinstance(value, bool) else None
