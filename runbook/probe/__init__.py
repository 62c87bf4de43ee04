"""Files that run on the target under the serving interpreter: standard library only, one file
each, shipped by their text and never imported there as ``runbook.probe``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_GUARD_HAS = (
    *("redaction", "serving", "attributes", "look", "topology", "completion", "gate", "boot"),
    *("tries", "alive"),
)
_OWN_IMPORT = re.compile(
    r"^from runbook\.(?:probe\.)?(\w+) import (?:\([^)]*\)|.*)\n", re.MULTILINE
)
_FUTURE = "from __future__ import annotations\n"


def source(name: str) -> str:
    """The text of one probe, like ``look``, to be written to or run on a target as one file."""
    text = _text(name)
    return _with(text, dict.fromkeys(_OWN_IMPORT.findall(text)))


def guard_program() -> str:
    """The guard as one file: ``guard`` with what it needs of the other probes in it."""
    return _with(_text("guard"), _GUARD_HAS)


def _text(name: str) -> str:
    folder = Path(__file__).parent
    return (folder.parent if name == "redaction" else folder).joinpath(f"{name}.py").read_text()


def _with(text: str, names: Iterable[str]) -> str:
    """A probe with the bodies of others before its own."""
    head, future, rest = text.partition(_FUTURE)
    return head + future + "".join(map(_body, names)) + _OWN_IMPORT.sub("", rest)


def _body(name: str) -> str:
    """A probe without what runs it."""
    body, _, _ = _text(name).partition('\nif __name__ == "__main__":')
    return _OWN_IMPORT.sub("", body.replace(_FUTURE, "")) + "\n"
