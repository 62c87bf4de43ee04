"""The cards between two server lives and during a start: memory that is not free yet, and a start
that hangs. Told by ``nvidia-smi`` where the server runs; where it is missing, nothing is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from runbook.errors import Blocked, HostFailed, ServerFailed
from runbook.hosts.base import COMMAND_ENV, Done
from runbook.hosts.local import execute_here
from runbook.launch.ports import unit_of
from runbook.params import Stack

_QUERY = "index,memory.used,utilization.gpu,power.draw,power.limit"
_HOLDERS = "pid,process_name,used_memory"
_POLL_S = 2.0
_LOOK_S = 10.0
NVIDIA_SMI_S = 30.0

#: A query to ``nvidia-smi`` -> what it printed, empty where it does not answer.
Ask = Callable[[str], str]


@dataclass(frozen=True)
class Card:
    """One card now; memory in MiB, power in watts, ``None`` where it does not tell."""

    index: str
    used_mib: float | None
    busy_percent: float | None
    power_w: float | None
    power_limit_w: float | None

    def spins(self, busy_percent: float, little_power: float) -> bool:
        """Whether it waits for another one: busy, at a share of its power that is too little."""
        if self.busy_percent is None or self.power_w is None or not self.power_limit_w:
            return False
        idle_power = self.power_w < little_power * self.power_limit_w
        return self.busy_percent >= busy_percent and idle_power


def parse_cards(text: str) -> list[Card]:
    """The cards in what ``nvidia-smi --query-gpu`` printed; lines of another form are left out."""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
    return [Card(row[0], *map(_number, row[1:])) for row in rows if len(row) == 5]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def ask_here(query: str) -> str:
    """The answer of this machine."""
    return ask_by(lambda argv: execute_here(argv, b"", NVIDIA_SMI_S, COMMAND_ENV), query)


def ask_by(run: Callable[[list[str]], Done], query: str) -> str:
    """The answer to a query by what runs commands, or raises ``HostFailed``."""
    try:
        done = run(["nvidia-smi", query, "--format=csv,noheader,nounits"])
    except HostFailed:
        return ""
    return done.out if done.code == 0 else ""


def read_cards(ask: Ask = ask_here) -> list[Card]:
    """The cards; none where they cannot be read."""
    return parse_cards(ask(f"--query-gpu={_QUERY}"))


def _with_unit(holder: str) -> str:
    """A line on a process that holds memory, with the unit it belongs to."""
    pid = holder.partition(",")[0].strip()
    unit = unit_of(int(pid)) if pid.isdecimal() else None
    return f"{holder}, unit {unit}" if unit else holder


def wait_until_free(
    most_mib: float, timeout_s: float, ask: Ask = ask_here, is_far: bool = False
) -> None:
    """Wait until no card holds more than ``most_mib``: a server before gives its memory back after
    its process has ended. Raises ``Blocked`` with the holders when it does not in time, those of
    this machine with their units."""
    deadline = time.monotonic() + timeout_s
    while full := [card for card in read_cards(ask) if (card.used_mib or 0) > most_mib]:
        if time.monotonic() > deadline:
            lines = ask(f"--query-compute-apps={_HOLDERS}").splitlines()
            holders = "; ".join(lines if is_far else map(_with_unit, lines))
            held = ", ".join(f"GPU {card.index} {card.used_mib:.0f} MiB" for card in full)
            raise Blocked(
                f"memory of the cards is not free {timeout_s:g} s after the server before: {held}"
                f" (held by: {holders or 'no process that nvidia-smi names'})",
                f"at most {most_mib:g} MiB a card before a start (stack.gpu_used_mib)",
                "end what holds them yourself, then: runbook run PARAMS --resume",
            )
        time.sleep(min(_POLL_S, timeout_s))


class HangWatch:
    """Looks, not too often, whether a start hangs in its first collective: all cards busy at
    little power (``stack``), and a log that has been silent for ``silent_s``."""

    def __init__(
        self,
        read_log: Callable[[], str],
        silent_s: float,
        settings: str,
        stack: Stack,
        ask: Ask = ask_here,
    ) -> None:
        self._read_log, self._ask = read_log, ask
        self._silent_s, self._settings, self._stack = silent_s, settings, stack
        self._log, self._changed_at = "", time.monotonic()
        self._looked_at = 0.0

    def look(self) -> None:
        """Raise ``ServerFailed`` where it hangs."""
        now = time.monotonic()
        if now - self._looked_at < min(_LOOK_S, self._silent_s):
            return
        self._looked_at = now
        if (log := self._read_log()) != self._log:
            self._log, self._changed_at = log, now
        if now - self._changed_at < self._silent_s:
            return
        cards, stack = read_cards(self._ask), self._stack
        if cards and all(card.spins(stack.busy_percent, stack.hang_power) for card in cards):
            shown = ", ".join(
                f"GPU {card.index} {card.busy_percent:.0f} % {card.power_w:.0f} W" for card in cards
            )
            raise ServerFailed(
                f"NCCL deadlock suspected: {shown}, and no line in its log for "
                f"{now - self._changed_at:.0f} s; {self._settings}",
                "a start that goes on",
                "see NCCL_P2P_LEVEL, ACS and IOMMU, and try NCCL_P2P_DISABLE=1; "
                "cards that stay at 100 % need a reset (nvidia-smi --gpu-reset)",
            )
