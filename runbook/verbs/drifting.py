"""``runbook drift``: is what runs still what was measured?"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from runbook import install_service as room
from runbook import streams
from runbook.checks import Check, Verdict
from runbook.engines import engine_for
from runbook.errors import BadInput, NotHere
from runbook.notebook import Work
from runbook.params import Params
from runbook.run import Run, run_of_service

Say = Callable[[str], None]


@contextmanager
def opened(place: Path, load: Callable[[Path], Params]) -> Iterator[Work]:
    """The host of a run folder, or of parameters: by their newest run, if there is one.

    Raises ``NotHere`` where the host is the box of a run and there is none.
    """
    with ExitStack() as scratch:
        run = Run.open(place) if place.is_dir() else run_of_service(load(place), scratch)
        work = Work("install_service", run, "run", False, scratch)
        try:
            yield work
        finally:
            work.close()


def look(work: Work) -> list[Check]:
    """One look. Raises ``NotHere`` where nothing is installed, or no systemd runs."""
    reason = work.host.why_no_systemd()
    if reason is not None:
        raise NotHere(reason, "the systemd that runs the service", "ask on the host itself")
    target = room.installed(work.host, work.params.service.unit)
    service = room.Service(work.host, work.params, target, engine_for(work.params.server))
    measured = None
    if target.manifest.get("run") == work.folder.name:
        with suppress(NotHere):
            measured = room.measured_in(work.run, target.manifest["configuration"])
    return room.read_drift(service, measured)


def watch(work: Work, every_s: float | None, say: Say, as_json: bool) -> int:
    """Look once, or every so many seconds until there is drift or nobody listens any more; the
    exit code."""
    if every_s is not None and every_s <= 0:
        raise BadInput(f"--watch {every_s:g}", "seconds, more than 0", "like --watch 600")
    while True:
        checks = look(work)
        bad = room.drifted(checks)
        say(_as_json(checks) if as_json else as_text(checks, work.params.service.unit))
        if bad or every_s is None or streams.is_unread(sys.stdout):
            return 1 if bad else 0
        time.sleep(every_s)


#: How a line of what is not as it should be begins, by its status.
_MARKS = {"fail": "drift", "unknown": "unknown", "warn": "warned"}


def as_text(checks: list[Check], unit: str) -> str:
    """What is not as it should be, alike things in one line, then what to do; and the verdict."""
    groups: dict[str, dict[str, list[str]]] = {}
    for check in checks:
        if mark := _MARKS.get(check.status):
            said = f"{mark}: {{}}: {check.found}; wanted: {check.wanted}"
            groups.setdefault(check.fix, {}).setdefault(said, []).append(check.name)
    lines = []
    for fix, group in groups.items():
        lines += [said.replace("{}", ", ".join(names), 1) for said, names in group.items()]
        lines.append(f"  next: {fix}")
    bad = room.drifted(checks)
    unknown = sum(check.status == "unknown" for check in checks)
    good = sum(check.status == "pass" for check in checks)
    said = f"{unit}: {good} as measured, {len(bad)} drifted, {unknown} unknown"
    return "\n".join([*lines, str(Verdict(not bad, said))])


def _as_json(checks: list[Check]) -> str:
    return json.dumps([asdict(check) for check in checks], indent=1, ensure_ascii=False)
