"""Files that run on the target under the serving interpreter: standard library only, one file
each, shipped by their text and never imported there as ``runbook.probe``."""

from __future__ import annotations

import re
from pathlib import Path


def source(name: str) -> str:
    """The text of one probe, like ``gate``, to be written to or run on a target."""
    return (Path(__file__).parent / f"{name}.py").read_text()


def guard_program() -> str:
    """The guard as one file: ``guard`` with the readers of the other probes in it."""
    head, future, rest = source("guard").partition("from __future__ import annotations\n")
    rest = re.sub(r"^from runbook\.probe\..*\n", "", rest, flags=re.MULTILINE)
    return head + future + "".join(map(_readers, ("serving", "look", "topology"))) + rest


def _readers(name: str) -> str:
    """A probe without what runs it."""
    body, _, _ = source(name).partition('\nif __name__ == "__main__":')
    return body.replace("from __future__ import annotations\n", "") + "\n"
