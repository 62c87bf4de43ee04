"""One configuration of SGLang as the checks before the start see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runbook.checks import Status
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

    ``env``: what SGLang acts on; ``written``: the variables under the names that were written.
    """

    configuration: Configuration
    options: Options
    env: Mapping[str, str]
    written: Mapping[str, str]
    release: Release | None
    version: str | None
    target: ModelFacts
    draft: ModelFacts

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.configuration.name
