"""A server to benchmark that is fast and can be told to misbehave, and how to start it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import httpx

from runbook.checks import Check
from runbook.engines.base import Counters, ServerInfo
from runbook.errors import ServerFailed
from runbook.launch.process import ProcessLauncher, ProcessServer
from runbook.launch.spec import LaunchSpec
from runbook.params import Configuration, Params, from_values

SERVER = Path(__file__).parents[1] / "load" / "paced_server.py"


def params_of(port: int, *configurations: dict[str, Any], **changes: Any) -> Params:
    """Small parameters; ``changes`` are top-level values that are merged in."""
    values: dict[str, Any] = {
        "name": "stand-in",
        "server": {
            "engine": "llamacpp",
            "port": port,
            "model": "/no/model",
            "timeouts": {"start_s": 20, "stop_s": 5, "request_s": 20},
        },
        "configurations": list(configurations) or [{"name": "baseline"}],
        "stack": {},
        "workload": {"output_tokens": 8},
        "benchmark": {
            "concurrencies": [1, 2],
            "blocks": 1,
            "requests": 3,
            "launch": "process",
            "client_lag_ms": 1000.0,  # tests run beside others
        },
        "choose": {"mix": [{"concurrency": 1, "share": 1}]},
        "service": {"unit": "stand-in.service"},
    }
    for key, change in changes.items():
        values[key] = values.get(key, {}) | change
    return from_values(values, "test")


class Starter(ProcessLauncher):
    """Starts servers as processes and remembers their names."""

    def __init__(self, log_dir: Path) -> None:
        super().__init__(log_dir)
        self.started: list[str] = []

    def start(
        self, spec: LaunchSpec, name: str, start_timeout_s: float, stop_timeout_s: float
    ) -> ProcessServer:
        self.started.append(name)
        return super().start(spec, name, start_timeout_s, stop_timeout_s)


class StandIn:
    """The engine of the paced server; ``left``: what still runs after it was told to end."""

    name = "llamacpp"
    request_fields: ClassVar[dict[str, Any]] = {}
    alike: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        max_concurrency: int | None = None,
        taken: bool = True,
        left: str = "",
        running: float | None = None,
    ) -> None:
        self._max_concurrency = max_concurrency
        self._taken = taken
        self._left = left
        self._running = running
        self.told_to_end = self.most_running = 0
        self.logs: list[str] = []

    def prepare(self, params: Params, progress: Callable[[str], None]) -> None:
        progress("nothing to prepare")

    def launch_spec(self, params: Params, configuration: Configuration) -> LaunchSpec:
        arguments = ["--port", str(params.server.port), "--step-ms", "2", *configuration.args]
        return LaunchSpec((sys.executable, str(SERVER), *arguments), {}, "/")

    def wait_ready(self, url: str, alive: Callable[[], bool], timeout_s: float) -> float:
        start = time.monotonic()
        while time.monotonic() - start < timeout_s:
            if not alive():
                raise ServerFailed("the server ended while it was starting")
            try:
                httpx.get(url + "/health", trust_env=False)
                return time.monotonic() - start
            except httpx.TransportError:
                time.sleep(0.02)
        raise ServerFailed("the server did not become ready")

    def info(self, url: str) -> ServerInfo:
        return ServerInfo("m", "none", self._max_concurrency)

    def counters(self, url: str) -> Counters | None:
        try:
            stats = httpx.get(url + "/stats", trust_env=False).json()
        except httpx.TransportError as error:
            raise ServerFailed(str(error)) from None
        self.most_running = max(self.most_running, stats["max_running"])
        return Counters(predicted=stats["predicted"], accepted=stats["accepted"])

    def end_requests(self, url: str, timeout_s: float) -> str:
        self.told_to_end += 1
        return self._left

    def acceptance_length(self, cell: Counters) -> float | None:
        if cell.predicted is None or cell.accepted is None:
            return None
        return cell.predicted / (cell.predicted - cell.accepted) if cell.predicted else None

    def acceptance_in_log(self, log: str) -> float | None:
        return None

    def running_at_once(self, log: str) -> float | None:
        self.logs.append(log)
        return self._running

    def check_configuration(
        self, info: ServerInfo, configuration: Configuration, resolved: Any = None
    ) -> list[Check]:
        asked = "eagle" if not self._taken and configuration.name != "baseline" else "none"
        status = "pass" if asked == info.speculation else "fail"
        return [Check("speculation", status, info.speculation, asked)]

    def check_log(self, log: str, configuration: Configuration) -> list[Check]:
        return []

    def explain_log(self, log: str, launch: LaunchSpec | None = None) -> str:
        return ""

    def check_cell(
        self, cell: Counters, configuration: Configuration, told: object = None
    ) -> list[Check]:
        return []
