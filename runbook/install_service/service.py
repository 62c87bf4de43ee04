"""A service as those see it who ask it: where it runs, what it shall be, what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from runbook.engines import Engine
from runbook.engines.endpoint import Endpoint
from runbook.hosts.base import Host
from runbook.install_service.measured import UNMEASURED, spec_from
from runbook.install_service.places import Target
from runbook.install_service.plan import GATE_HEAD_START_S, start_timeout
from runbook.install_service.proofs import Origin
from runbook.launch.server import local_url
from runbook.launch.spec import LaunchSpec
from runbook.params import Params


@dataclass(frozen=True)
class Service:
    """A service to prove: where it is, what it shall be, and how its server is asked.

    ``speeds``: concurrency -> output tokens a second of each measured life; ``speed`` measures a
    cell at a concurrency now, ``None`` where the run is not here.
    """

    host: Host
    params: Params
    target: Target
    engine: Engine
    speeds: Mapping[int, Sequence[float]] = field(default_factory=dict)
    speed: Callable[[int], float | None] | None = None

    @property
    def url(self) -> str:
        """Where it serves."""
        return local_url(self.params.server)

    @property
    def endpoint(self) -> Endpoint:
        """Its server, with the file of the key where it wants one."""
        key = self.params.server.api_key
        return Endpoint(self.url, key.file if key else None)

    @property
    def unit(self) -> str:
        """Its unit."""
        return self.target.unit

    @property
    def spec(self) -> LaunchSpec:
        """The launch it was installed with."""
        return spec_from(self.target.manifest["spec"])

    @property
    def origin(self) -> Origin:
        """Whether that launch was benchmarked, was started once and recorded, or is declared by
        the parameters alone."""
        if self.target.manifest.get("launch") == UNMEASURED:
            return "declared"
        return "recorded" if self.figures_of else "measured"

    @property
    def figures_of(self) -> str | None:
        """The files of figures that were measured elsewhere, ``None`` where the run measured."""
        return self.target.manifest.get("figures_of")

    @property
    def stop_s(self) -> float:
        """How long a stop may take."""
        return self.params.server.timeouts.stop_s

    @property
    def start_s(self) -> float:
        """How long a start may take."""
        manifest = self.target.manifest
        loads = manifest.get("load_s") or ()
        ready_s, _ = start_timeout(self.params, loads, manifest.get("cold_s"))
        return ready_s + GATE_HEAD_START_S + self.params.service.restart_s
