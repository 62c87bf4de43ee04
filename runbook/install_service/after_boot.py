"""What the journal of this boot tells of a service: when it served first, and who started it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runbook.checks import counted
from runbook.hosts.base import Host
from runbook.install_service.proofs import Proof, judge, unprovable
from runbook.install_service.service import Service

NAME = "back after reboot"

#: How systemd marks what it says of a unit (``systemd/sd-messages.h``).
_STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
_RESTART_PLANNED = "5eb03494b6584870a536b337290809b3"


#: What boots says something within so many seconds; a journal that begins later has lost it.
_FIRST_WORDS_S = 60.0


@dataclass(frozen=True)
class Boot:
    """Seconds of the host's monotonic clock: when systemd took over, and when the boot was over
    (``None``: it is not). ``at``: when the host booted, in seconds of the epoch. ``kept_from_s``:
    how far back its journal reaches."""

    number: str
    at: float
    began_s: float
    over_s: float | None
    kept_from_s: float = 0.0


@dataclass(frozen=True)
class Start:
    """One start of the unit: when, whether systemd had planned it, and when it served."""

    at_s: float
    planned: bool
    served_s: float | None = None


def prove_after_boot(service: Service) -> Proof:
    """Whether it came back by itself at the last boot of its host, which nobody need have seen."""
    host = service.host
    reason = host.why_no_systemd()
    if reason is not None:
        return unprovable(NAME, reason)
    host.run("journalctl", "--sync")
    out = host.run(
        "journalctl", "--boot", "--unit", service.unit, "--output=json", "--no-pager", "--quiet"
    ).out
    return judge_boot(read_boot(host), list(starts_in(out)), service.target.manifest)


def read_boot(host: Host) -> Boot:
    """The boot that the host is in."""
    manager = host.run("systemctl", "show", "-P", "UserspaceTimestampMonotonic").out
    over = host.run(
        "systemctl", "show", "-P", "ActiveEnterTimestampMonotonic", "multi-user.target"
    ).out
    began_s, over_s = int(manager) / 1e6, int(over) / 1e6
    uptime_s = float((host.read("/proc/uptime") or b"0").split()[0])
    now_s = float(host.run("date", "+%s.%N").out)
    number = (host.read("/proc/sys/kernel/random/boot_id") or b"").decode().strip()
    oldest = host.run("sh", "-c", "journalctl --boot --output=json --quiet | head -n 1").out
    kept_from_s = int(json.loads(oldest)["__MONOTONIC_TIMESTAMP"]) / 1e6 if oldest else now_s
    return Boot(number, now_s - (uptime_s - began_s), began_s, over_s or None, kept_from_s)


def starts_in(journal: str) -> Iterator[Start]:
    """The starts of the unit in a journal (one JSON object a line), in order. Pure."""
    at: float | None = None
    planned = was_planned = served = False
    for line in journal.splitlines():
        entry: Mapping[str, Any] = json.loads(line)
        said, moment_s = entry.get("MESSAGE_ID"), int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6
        if said == _RESTART_PLANNED:
            planned = True
        elif said == _STARTING:
            if at is not None and not served:
                yield Start(at, was_planned)
            at, was_planned, planned, served = moment_s, planned, False, False
        elif at is not None and not served and "gate: ready" in str(entry.get("MESSAGE")):
            served = True
            yield Start(at, was_planned, moment_s)
    if at is not None and not served:
        yield Start(at, was_planned)


def judge_boot(boot: Boot, starts: list[Start], manifest: Mapping[str, Any]) -> Proof:
    """Proved when the first start that served was systemd's own. Pure."""
    written = datetime.fromisoformat(manifest["written"]).timestamp()
    if boot.at < written + 1:  # the install is stamped in whole seconds
        return unprovable(NAME, f"no boot since the install ({manifest['written']})")
    if boot.kept_from_s > boot.began_s + _FIRST_WORDS_S:
        hours = (boot.kept_from_s - boot.began_s) / 3600
        late = f"the journal begins {hours:.1f} h after the boot: ask sooner, or let it keep more"
        return unprovable(NAME, f"{late} (SystemMaxUse of journald.conf)")
    served = next((start for start in starts if start.served_s is not None), None)
    name = f"boot {boot.number[:8]}"
    if served is None or served.served_s is None:
        said = f"{name}: started {counted(len(starts), 'time')}, it has not served yet"
        return judge(NAME, [said], "")
    by_hand = boot.over_s is not None and served.at_s > boot.over_s and not served.planned
    said = (
        f"{name}: a completion was served {served.served_s - boot.began_s:.1f} s after systemd "
        f"took over, {served.served_s - served.at_s:.1f} s after the start, started by "
        + ("hand after the boot was over" if by_hand else "nobody but systemd")
    )
    return judge(NAME, [said] if by_hand else [], said)
