"""Which starts count as tries, ``stopped`` of the guard: run as root by systemd as ExecStopPost.

systemd counts every start of a unit against ``StartLimitBurst``. A start that has served begins
the count anew (the last ExecStartPost of the unit). So does one that somebody interrupted by an
order to stop or to restart while it loaded: nothing failed. What is left are failed starts.
"""

from __future__ import annotations

import subprocess
import sys

from runbook.probe.boot import said_by

_ORDERS = ("stop", "restart")
#: The exit code where systemd does not answer; the stop goes on all the same.
NOT_ANSWERED = 25


def stopped(words: list[str]) -> int:
    """Forget the tries of the unit ``words[0]`` where its start was interrupted by an order."""
    unit = words[0]
    try:
        if is_ordered(said_by("systemctl", "list-jobs", "--no-legend", unit), unit) and (
            was_starting(said_by("systemctl", "show", f"--property={','.join(_STAMPS)}", unit))
        ):
            said_by("systemctl", "reset-failed", unit)
            print("guard: the start was interrupted by an order, it counts as no try", flush=True)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"guard: tries of {unit}: {type(error).__name__}: {error}", file=sys.stderr)
        return NOT_ANSWERED
    return 0


def is_ordered(jobs: str, unit: str) -> bool:
    """Whether somebody ordered the stop, from what ``list-jobs`` prints (number, unit, type,
    state): after a failed start the job is still that of the start. Pure."""
    rows = [line.split() for line in jobs.splitlines()]
    return any(row[1] == unit and row[2] in _ORDERS for row in rows if len(row) > 2)


_STAMPS = ("InactiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic")


def was_starting(shown: str) -> bool:
    """Whether the unit had not come to be active since it left rest. Pure."""
    stamps = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    woken, entered = (int(stamps[name]) for name in _STAMPS)
    return woken > entered
