"""Files that run on the target under the serving interpreter: standard library only, one file
each, shipped by their text and never imported there as ``runbook.probe``."""

from __future__ import annotations

import re
from pathlib import Path

_GUARD_HAS = ("serving", "look", "topology", "gate", "boot")
_OWN_IMPORT = re.compile(r"^from runbook\.probe\..*\n", re.MULTILINE)


def source(name: str) -> str:
    """The text of one probe, like ``look``, to be written to or run on a target."""
    return (Path(__file__).parent / f"{name}.py").read_text()


def guard_program() -> str:
    """The guard as one file: ``guard`` with what it needs of the other probes in it."""
    head, future, rest = source("guard").partition("from __future__ import annotations\n")
    rest = _OWN_IMPORT.sub("", rest)
    return head + future + "".join(map(_body, _GUARD_HAS)) + rest


def _body(name: str) -> str:
    """A probe without what runs it."""
    body, _, _ = source(name).partition('\nif __name__ == "__main__":')
    return _OWN_IMPORT.sub("", body.replace("from __future__ import annotations\n", "")) + "\n"
