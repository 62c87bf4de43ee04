"""What a started server looks like to those who measure it, however it was started."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from runbook.hosts.base import COMMAND_ENV, Done
from runbook.hosts.local import execute_here
from runbook.launch import cards
from runbook.launch.page_cache import Dropped, drop_page_cache
from runbook.launch.ports import port_holder
from runbook.launch.spec import LaunchSpec
from runbook.params import Server, is_everywhere


class RunningServer(ABC):
    """One server life. A context manager: leaving it stops the server and all its children."""

    spec: LaunchSpec

    @property
    @abstractmethod
    def pid(self) -> int:
        """The main process, as seen in the runner's PID namespace where that is possible."""

    @abstractmethod
    def alive(self) -> bool:
        """Whether the main process still runs."""

    def lost_workers(self) -> str:
        """Worker processes that have ended while the main process waits for them, in words.

        Asked again and again until it is ready; empty where nothing is lost, or nobody can tell.
        """
        return ""

    @abstractmethod
    def log_tail(self, lines: int = 20) -> str:
        """The end of what the server printed."""

    @abstractmethod
    def stop(self) -> None:
        """SIGTERM, wait, then end whatever is left of it. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Launcher(ABC):
    """A way to start servers: as a child process, or as a runtime unit of a host's systemd."""

    kind: str

    @abstractmethod
    def start(
        self, spec: LaunchSpec, name: str, start_timeout_s: float, stop_timeout_s: float
    ) -> RunningServer:
        """Start ``spec`` and return at once when its process runs (readiness is the engine's).

        ``name`` labels log and unit (like ``baseline-life3``). Raises ``ServerFailed``.
        """

    def port_holder(self, port: int) -> str | None:
        """Who holds a port where servers are started, ``None`` when it is free."""
        return port_holder(port)

    def drop_page_cache(self, paths: Sequence[str]) -> Dropped:
        """Drop the page cache of a model's files where servers are started."""
        return drop_page_cache(_run_here, paths)

    def ask_driver(self, query: str) -> str:
        """What ``nvidia-smi`` says to a query where servers are started, empty for no answer."""
        return cards.ask_here(query)


def _run_here(program: str, words: Sequence[str], timeout_s: float) -> Done:
    argv = [sys.executable, "-I", "-S", "-", *words]
    return execute_here(argv, program.encode(), timeout_s, COMMAND_ENV)


def local_url(server: Server) -> str:
    """Where a server is reached from its own host: the base URL, without ``/v1``."""
    address = server.address
    if is_everywhere(address):
        address = "::1" if ":" in address else "127.0.0.1"
    return (
        f"http://[{address}]:{server.port}" if ":" in address else f"http://{address}:{server.port}"
    )
