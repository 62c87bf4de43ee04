"""The protocol of an engine: how it is launched, when it is ready, what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from runbook.checks import Check
from runbook.launch.spec import LaunchSpec
from runbook.params import Configuration, Params

#: From this share of the greatest possible acceptance on, output may be repetition.
SUSPICIOUS_ACCEPTANCE = 0.95


@dataclass(frozen=True)
class ServerInfo:
    """What a running server says of itself, in one form for all engines and releases.

    ``speculation``: algorithm in the engine's own word, ``none`` without one. ``settings``: what
    else was resolved and matters for equality (draft sizes, topk, steps, slots, model path).
    ``max_concurrency``: requests it runs at once, ``None`` where it does not say.
    """

    model_id: str
    speculation: str
    max_concurrency: int | None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Counters:
    """Lifetime counters of a server; a cell is the difference of two readings (``-``).

    ``None`` is "the server does not tell", never 0.
    """

    predicted: int | None = None  # output tokens
    drafted: int | None = None  # tokens proposed by the draft
    accepted: int | None = None  # of these, accepted
    drafts: int | None = None  # times something was proposed
    verify_steps: int | None = None  # passes of the target that verified a draft
    requests: int | None = None  # requests that have ended
    accept_length: float | None = None  # as the log of a cell says it, where steps are not counted

    def __sub__(self, before: Counters) -> Counters:
        def less(after: int | None, first: int | None) -> int | None:
            return None if after is None or first is None else after - first

        return Counters(
            less(self.predicted, before.predicted),
            less(self.drafted, before.drafted),
            less(self.accepted, before.accepted),
            less(self.drafts, before.drafts),
            less(self.verify_steps, before.verify_steps),
            less(self.requests, before.requests),
        )


@dataclass(frozen=True)
class Seen:
    """What was seen of a host before a start; what nobody asked is not there.

    ``versions``: distribution -> version that the serving interpreter finds, ``None`` where it has
    none. ``told``: configuration -> the facts of the probes (``runbook.probe``), by name.
    ``links``: the class of the cards' topology.
    """

    versions: Mapping[str, str | None] = field(default_factory=dict)
    told: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    links: str | None = None

    def fact(self, configuration: str, name: str) -> Any:
        """What the probes told of one configuration's launch, ``None`` where they did not."""
        return self.told.get(configuration, {}).get(name)

    def variables(self, configuration: str) -> dict[str, str]:
        """What the start of Python (``sitecustomize``) sets or changes in its environment."""
        changed = self.fact(configuration, "environment") or {}
        return {**changed.get("set", {}), **changed.get("changed", {})}


class Engine(Protocol):
    """What the stages ask of an engine. All waits are bounded; HTTP is to ``url`` alone."""

    name: str
    distribution: str
    """The package that holds the server, as its interpreter's package list names it."""
    overwrites: frozenset[str]
    """Variables that the server itself sets for its workers, whatever it was given."""
    stack_checks: tuple[str, ...]
    """Names of the checks that ``check_stack`` makes, for ``stack.checks``."""
    request_fields: Mapping[str, Any]
    """Fields of a request by which the server tells more in its answer."""
    alike: tuple[str, ...]
    """Names of ``ServerInfo.settings`` that are equal where speculation alone is compared."""
    argument_probe: str
    """The probe that lets the server's own parser read its arguments, and the check on its answer;
    empty where there is none."""

    def prepare(self, params: Params, progress: Callable[[str], None]) -> None:
        """One-off local work before a first launch (the rehearsal's model). Idempotent."""

    def launch_spec(self, params: Params, configuration: Configuration) -> LaunchSpec:
        """The whole launch of one configuration. Pure apart from resolving ``embedded:`` paths."""

    def wait_ready(self, url: str, alive: Callable[[], bool], timeout_s: float) -> float:
        """Wait for a streamed completion of two tokens or more; return the seconds it took.

        Ends at once when ``alive()`` turns false. Raises ``ServerFailed``.
        """

    def info(self, url: str) -> ServerInfo:
        """What the server says of itself now. Raises ``ServerFailed`` when it does not answer."""

    def counters(self, url: str) -> Counters | None:
        """Its counters now, ``None`` where it exposes none."""

    def end_requests(self, url: str, timeout_s: float) -> str:
        """End what still runs of requests that their client gave up, and wait until nothing runs.

        What runs after ``timeout_s`` in words; empty where nothing does, or nobody tells.
        """

    def acceptance_length(self, cell: Counters) -> float | None:
        """Output tokens per verify step of the target over a cell, ``None`` when not known."""

    def acceptance_in_log(self, log: str) -> float | None:
        """The mean acceptance length that lines of a log tell, ``None`` where they do not."""

    def running_at_once(self, log: str) -> float | None:
        """Requests that ran at once while these lines were written, ``None`` where none tells."""

    def check_configuration(
        self,
        info: ServerInfo,
        configuration: Configuration,
        resolved: Mapping[str, Any] | None = None,
    ) -> list[Check]:
        """Whether the server took what was asked (speculation asked, none got: fail).

        ``resolved``: what its own parser made of the arguments before the start.
        """

    def check_cell(
        self, cell: Counters, configuration: Configuration, told: Mapping[str, Any] | None = None
    ) -> list[Check]:
        """Whether the draft was really used over a cell. ``told``: what the probes told of its
        launch, where the host was asked."""

    def check_stack(self, params: Params, seen: Seen) -> list[Check]:
        """Whether these configurations can exist on what was seen, before any start."""

    def ports(self, params: Params) -> Mapping[int, str]:
        """What the servers listen on besides ``server.port``: port -> what for."""

    def check_log(self, log: str, configuration: Configuration) -> list[Check]:
        """What the log of a server that came up proves of the configuration; its start matters."""

    def explain_log(self, log: str, launch: LaunchSpec | None = None) -> str:
        """Why a server did not come up and what to do, by its log; empty where it is unclear.

        ``launch``: how it was started; advice that it follows already is not given.
        """
