"""From the text of a file to its JSON values, each with its place. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runbook.bounded import parse_json
from runbook.errors import BadInput

_WANTED = "a result file as the tool wrote it"
_DO = "give the whole file; a copy that was cut off cannot be used"
_SHOWN_CHARACTERS = 60


def values_in(text: str, source: str) -> list[tuple[str, Any]]:
    """The values of a JSON or JSONL file with their places; a list's items are values of their own.

    Raises ``BadInput`` with file, line and column.
    """
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise BadInput(f"{source}: nothing in it", _WANTED, _DO)
    try:
        whole = parse_json(text)
    except ValueError as error:
        fault = error
    else:
        if not isinstance(whole, list):
            return [(source, whole)]
        return [(f"{source}: item {number}", one) for number, one in enumerate(whole, 1)]
    lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
    found = []
    for number, line in lines:
        try:
            found.append((f"{source}: line {number}", parse_json(line)))
        except ValueError as error:
            if not found:
                raise BadInput(f"{source}: no JSON ({fault})", _WANTED, _DO) from None
            raise BadInput(f"{source}: line {number}: no JSON ({error})", _WANTED, _DO) from None
    return found


@dataclass(frozen=True)
class Fields:
    """An object of a result file: typed looks at its fields, each refusal with its place."""

    value: Mapping[str, Any]
    place: str
    path: str = ""

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def below(self, key: str) -> Fields:
        """The object under ``key``; an empty one where there is none."""
        found = self.value.get(key)
        if found is not None and not isinstance(found, Mapping):
            raise self._fault(key, found, "an object")
        return Fields(found or {}, self.place, f"{self.path}{key}.")

    def each(self, key: str) -> Iterator[Fields]:
        """The objects in the list under ``key``."""
        found = self.value.get(key)
        if not isinstance(found, list):
            raise self._fault(key, found, "a list")
        for number, one in enumerate(found):
            if not isinstance(one, Mapping):
                raise self._fault(f"{key}[{number}]", one, "an object")
            yield Fields(one, self.place, f"{self.path}{key}[{number}].")

    def number(self, key: str) -> float | None:
        """A number, 0 or more; ``None`` where it is absent, null, NaN or infinite."""
        found = self.value.get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self._fault(key, found, "a number")
        try:
            number = float(found)
        except OverflowError:
            raise self._fault(key, found, "a number of this world") from None
        if not math.isfinite(number):
            return None
        if number < 0:
            raise self._fault(key, found, "a number, 0 or more")
        return number

    def measured(self, key: str) -> float | None:
        """A speed or a time. Tools write 0 where they measured none: that is unknown."""
        return self.number(key) or None

    def count(self, key: str) -> int | None:
        """A whole number, 0 or more."""
        number = self.number(key)
        if number is not None and not number.is_integer():
            raise self._fault(key, self.value[key], "a whole number")
        return None if number is None else int(number)

    def text(self, key: str) -> str | None:
        """A text; ``None`` where it is absent, null or blank."""
        found = self.value.get(key)
        if found is not None and not isinstance(found, str):
            raise self._fault(key, found, "a text")
        return (found or "").strip() or None

    def _fault(self, key: str, found: Any, wanted: str) -> BadInput:
        shown = ascii(found)
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[: _SHOWN_CHARACTERS - 3] + "..."
        return BadInput(f"{self.place}: {self.path}{key} is {shown}", wanted, _DO)


def mean(total: float | None, count: int | None) -> float | None:
    """``total / count`` where both are known."""
    return total / count if total is not None and count else None
