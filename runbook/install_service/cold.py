"""A cold start: how long a service takes when its model is not in memory, as after a boot."""

from __future__ import annotations

import json
import time

from runbook.install_service.proofs import Proof, judge, unprovable
from runbook.install_service.service import Service
from runbook.install_service.undo import start
from runbook.launch.page_cache import Dropped, drop_page_cache

NAME = "cold start"
#: In the run folder: ``seconds``, what was dropped, and of which configuration.
RECORD = "service/cold_start.json"


def prove_cold_start(service: Service) -> tuple[Proof, dict[str, object] | None]:
    """Stop the service, drop the page cache of its model's files, start it: the proof, and what is
    recorded where the start was a cold one. It is started again whatever happens.

    Raises ``HostFailed`` when it does not come to serve.
    """
    host, unit = service.host, service.unit
    reason = host.why_no_systemd()
    if reason is not None:
        return unprovable(NAME, reason), None
    roles = service.target.manifest["guard"]["roles"]
    paths = sorted(path for path in roles.values() if path.startswith("/"))
    dropped: Dropped | None = None
    host.run("systemctl", "stop", unit, timeout_s=service.stop_s + 30)
    try:
        if paths:
            dropped = drop_page_cache(host.run_program, paths)
    finally:
        began = time.monotonic()
        start(host, unit, service.target.unit_text, "start")
        took_s = time.monotonic() - began
    why = dropped.why_not_cold if dropped else "its parameters name no file of a model"
    if dropped is None or why is not None:
        return unprovable(NAME, f"{why}; it served after {took_s:.1f} s"), None
    said = f"{took_s:.1f} s to a completion, {dropped.said} read from where they lie"
    found = {
        "configuration": service.target.manifest["configuration"],
        "seconds": round(took_s, 1),
        "files": dropped.files,
        "bytes": dropped.bytes,
    }
    return judge(NAME, [], said), found


def announce(service: Service) -> str:
    """What a cold start does to those who use the service, before it is done."""
    return (
        f"{service.unit} is stopped and started again from cold files: nobody answers until it "
        f"has served, which may take up to {service.start_s:.0f} s"
    )


def as_text(found: dict[str, object]) -> str:
    """The record as it lies in the run folder."""
    return json.dumps(found, indent=1) + "\n"
