"""A service as those see it who ask it: where it runs, what it shall be, what it wrote."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from runbook.engines import Engine, ServerInfo
from runbook.hosts.base import Host
from runbook.install_service.places import Target
from runbook.install_service.plan import GATE_HEAD_START_S, start_timeout
from runbook.launch.server import local_url
from runbook.launch.spec import LaunchSpec
from runbook.params import Params


@dataclass(frozen=True)
class Service:
    """A service to prove: where it is, what it shall be, and how its server is asked."""

    host: Host
    params: Params
    target: Target
    engine: Engine

    @property
    def url(self) -> str:
        """Where it serves."""
        return local_url(self.params.server)

    @property
    def unit(self) -> str:
        """Its unit."""
        return self.target.unit

    @property
    def spec(self) -> LaunchSpec:
        """The launch it was measured with."""
        return spec_from(self.target.manifest["spec"])

    @property
    def start_s(self) -> float:
        """How long a start may take."""
        ready_s, _ = start_timeout(self.params, self.target.manifest.get("load_s") or ())
        return ready_s + GATE_HEAD_START_S + self.params.service.restart_s


def spec_from(stored: dict[str, Any]) -> LaunchSpec:
    """A ``LaunchSpec`` from its JSON."""
    return LaunchSpec(**{**stored, "argv": tuple(stored["argv"])})


def info_from(stored: dict[str, Any] | None) -> ServerInfo | None:
    """A ``ServerInfo`` from its JSON; fields that this release does not know are left out."""
    if stored is None:
        return None
    known = {field.name for field in fields(ServerInfo)}
    return ServerInfo(**{name: value for name, value in stored.items() if name in known})
