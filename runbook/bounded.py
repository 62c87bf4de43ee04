"""What somebody else wrote: read within a bound, refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runbook.errors import BadInput


def read_text(
    path: Path, most_bytes: int, name_it: str, smaller: str, make_smaller: str, form: str
) -> str:
    """The text of a file. Raises ``BadInput`` where it is unreadable, no UTF-8 or too large.

    ``name_it``: what to do about one that cannot be read. ``smaller``: what is wanted in place of
    one beyond ``most_bytes``, and ``make_smaller`` how to get it. ``form``: what is wanted in place
    of bytes that are no text.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror or 'unreadable'}", "a readable file", name_it
        ) from None
    if len(data) > most_bytes:
        raise BadInput(f"{path}: more than {most_bytes >> 20} MiB", smaller, make_smaller)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"{path}: line {line}: bytes that are no UTF-8", form, "convert it: iconv"
        ) from None


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ``ValueError`` for one that is none, or nested so deeply
    that reading it would not end well."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
