"""Whether a service still answers, ``alive`` of the guard; run by a timer as root.

One late answer is no sign of death: a queue may be full, a prompt long. A server is stuck after two
strikes in a row, each a completion that did not come in time, where its own counters prove that
it has done nothing between them. Counters that cannot be read, or are not there, prove nothing.

Exit codes: 0 it answers, or is busy; 11 late, a strike; 12, 13 as the gate's: it cannot ask; 24
stuck.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from runbook.probe.boot import replace_file, said_by
from runbook.probe.completion import SERVED_TOKENS
from runbook.probe.gate import LATE, WRONGLY_ASKED, Ladder, NotYet, read_key, wait

STUCK = 24
_SAMPLE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})? +([0-9.eE+-]+)(?: +-?\d+)?")

#: Counter -> value, and ``life``: which life of the unit it is of.
Progress = dict[str, str]


def alive(words: list[str]) -> int:
    """Ask as the command line says; the exit code."""
    parser = argparse.ArgumentParser("alive", exit_on_error=False)
    parser.add_argument("--url", required=True, help="base URL without /v1")
    parser.add_argument("--model", default="", help="id that must be served; empty for the first")
    parser.add_argument("--deadline", type=float, required=True, help="seconds")
    parser.add_argument("--unit", required=True, help="whose server it is")
    parser.add_argument("--strike", type=Path, required=True, help="where a strike is kept")
    parser.add_argument("--counter", action="append", default=[], help="of work that was done")
    parser.add_argument("--running", default="", help="the gauge of requests that run")
    try:
        given = parser.parse_args(words)
        key = read_key(0)
    except (argparse.ArgumentError, ValueError, OSError) as error:
        print(f"alive: {error}", flush=True)
        return WRONGLY_ASKED
    ladder = Ladder(given.url, given.model, SERVED_TOKENS, 0, key)
    before = read_progress(ladder, given.unit, given.counter)
    code = wait(ladder, 0, given.deadline)
    if code != LATE:
        if code == 0:
            given.strike.unlink(missing_ok=True)
        return code
    now = read_progress(ladder, given.unit, given.counter)
    strike = read_strike(given.strike)
    code, said = judge_late(before, now, strike)
    running = running_in(read_metrics(ladder), given.running)
    print(f"alive: no answer in {given.deadline:g} s, requests running: {running}; {said}")
    if code == LATE and now is not None:
        replace_file(given.strike, json.dumps(now))
    else:
        given.strike.unlink(missing_ok=True)
    return code


def judge_late(
    before: Progress | None, now: Progress | None, strike: Progress | None
) -> tuple[int, str]:
    """What a late answer means: exit code and words. ``before`` and ``now``: the counters before
    it was asked and after; ``strike``: those after the last answer that was late too. Pure."""
    if now is None:
        return LATE, "its counters cannot be read, which proves nothing: nobody is restarted"
    if before is not None and before != now:
        return 0, "it is busy, its counters move"
    if strike is None or strike != now:
        return LATE, "first strike"
    counted = ", ".join(f"{name} {value}" for name, value in now.items() if name != "life")
    return STUCK, f"second strike, and nothing was done between them: {counted}"


def read_progress(ladder: Ladder, unit: str, counters: Sequence[str]) -> Progress | None:
    """The counters of the server now; ``None`` where the first of them is not told, or it is not
    known which life of the unit they are of."""
    values = totals_in(read_metrics(ladder))
    if not counters or counters[0] not in values:
        return None
    try:
        life = said_by("systemctl", "show", "-P", "InvocationID", unit)
    except (OSError, subprocess.SubprocessError):
        return None
    return {"life": life, **{name: repr(values[name]) for name in counters if name in values}}


def read_metrics(ladder: Ladder) -> str:
    """What the server prints on ``/metrics``, empty where it does not."""
    try:
        status, body = ladder.get("/metrics")
    except (NotYet, OSError, HTTPException, ValueError):
        return ""
    return body.decode(errors="replace") if status == 200 else ""


def totals_in(text: str) -> dict[str, float]:
    """Sum of each metric over its labels, of Prometheus' text format. Pure."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line.strip())
        if match:
            try:
                found[match[1]] = found.get(match[1], 0.0) + float(match[2])
            except ValueError:
                continue
    return found


def running_in(text: str, name: str) -> str:
    """How many requests run, in words. Pure."""
    value = totals_in(text).get(name)
    return "unknown" if value is None else f"{value:g}"


def read_strike(path: Path) -> Progress | None:
    """The counters of the last strike, ``None`` without one."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
