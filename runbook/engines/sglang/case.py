"""One configuration of SGLang as the checks before the start see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runbook.checks import Check, Status
from runbook.engines.sglang.models import ModelFacts
from runbook.engines.sglang.options import Options
from runbook.engines.sglang.releases import Release
from runbook.params import Configuration


@dataclass(frozen=True)
class Finding:
    """What is wrong with one configuration."""

    status: Status
    found: str
    wanted: str
    fix: str


@dataclass(frozen=True)
class Case:
    """One configuration, and what is known of release, target and draft.

    ``env``: what SGLang acts on; ``written``: the variables under the names that were written;
    ``set_later``: those of them that the start of Python sets or changes.
    """

    configuration: Configuration
    options: Options
    env: Mapping[str, str]
    written: Mapping[str, str]
    set_later: Mapping[str, str]
    release: Release | None
    version: str | None
    target: ModelFacts
    draft: ModelFacts

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.configuration.name


def grouped(
    name: str, cases: Sequence[Case], judge: Callable[[Case], Iterator[Finding]]
) -> list[Check]:
    """One check a fault; configurations with the same fault share it."""
    having: dict[Finding, list[str]] = {}
    for case in cases:
        for fault in judge(case):
            having.setdefault(fault, []).append(case.name)
    return [
        Check(name, fault.status, f"{', '.join(names)}: {fault.found}", fault.wanted, fault.fix)
        for fault, names in having.items()
    ]
