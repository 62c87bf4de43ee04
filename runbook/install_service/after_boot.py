"""How a service came back at the last boot: when it served first, and who started it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from runbook import probe
from runbook.checks import counted
from runbook.hosts.base import Host
from runbook.install_service.proofs import Proof, judge, unprovable
from runbook.install_service.service import Service

NAME = "back after reboot"

#: What boots says something within so many seconds; a journal that begins later has lost it.
_FIRST_WORDS_S = 60.0


@dataclass(frozen=True)
class Start:
    """One start of the unit, on the host's monotonic clock: when, whether systemd had planned it,
    and when it served."""

    at_s: float
    planned: bool
    served_s: float | None = None


@dataclass(frozen=True)
class Boot:
    """A boot of the host and the starts in it, as ``probe/boot.py`` tells them.

    ``at``, ``read_at``: seconds of the epoch; the others are of the monotonic clock. ``recorder``:
    the unit that wrote it down at the time, ``None`` where the journal was read just now.
    """

    boot_id: str
    at: float
    began_s: float
    over_s: float | None
    kept_from_s: float
    read_at: float
    starts: tuple[Start, ...]
    recorder: str | None = None

    def is_same(self, other: Boot) -> bool:
        """Whether both are one boot; containers of one host share its id."""
        return (self.boot_id, self.began_s) == (other.boot_id, other.began_s)

    @property
    def served(self) -> Start | None:
        """The first start that served."""
        return next((start for start in self.starts if start.served_s is not None), None)


def prove_after_boot(service: Service) -> Proof:
    """Whether it came back by itself at the last boot of its host, which nobody need have seen.

    What the one-shot unit recorded is believed where it saw the service serve; before, and where
    there is none, the journal is asked.
    """
    host, places = service.host, service.target.places
    reason = host.why_no_systemd()
    if reason is not None:
        return unprovable(NAME, reason)
    now = parse_boot(_read_now(host, service.unit))
    then = parse_boot((host.read(places.boot_record) or b"").decode(), places.boot_unit)
    if now is None:
        return unprovable(NAME, "the journal of this boot cannot be read")
    if then is not None and then.served is not None and then.is_same(now):
        now = replace(then, at=now.at)  # the clock may have been set right since
    return judge_boot(now, service.target.manifest)


def _read_now(host: Host, unit: str) -> str:
    program = probe.guard_program().encode()
    return host.run(
        host.python, "-I", "-S", "-", "after-boot", unit, stdin=program, check=False
    ).out


def parse_boot(text: str, recorder: str | None = None) -> Boot | None:
    """What was printed or recorded of a boot; ``None`` where nothing was, or half of it. Pure."""
    try:
        said = json.loads(text)
        starts = tuple(Start(**one) for one in said.pop("starts"))
        del said["probe"]
        return Boot(**said, starts=starts, recorder=recorder)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def judge_boot(boot: Boot, manifest: Mapping[str, Any]) -> Proof:
    """Proved when the first start that served was systemd's own. Pure."""
    written = datetime.fromisoformat(manifest["written"]).timestamp()
    if boot.at < written + 1:  # the install is stamped in whole seconds
        return unprovable(NAME, f"no boot since the install ({manifest['written']})")
    if boot.kept_from_s > boot.began_s + _FIRST_WORDS_S:
        hours = (boot.kept_from_s - boot.began_s) / 3600
        late = f"the journal begins {hours:.1f} h after the boot: ask sooner, or let it keep more"
        return unprovable(NAME, f"{late} (SystemMaxUse of journald.conf)")
    name, served = f"boot {boot.boot_id[:8]}", boot.served
    if served is None or served.served_s is None:
        times = counted(len(boot.starts), "time")
        return judge(NAME, [f"{name}: started {times}, it has not served yet"], "")
    by_hand = boot.over_s is not None and served.at_s > boot.over_s and not served.planned
    said = (
        f"{name}: a completion was served {served.served_s - boot.began_s:.1f} s after systemd "
        f"took over, {served.served_s - served.at_s:.1f} s after the start, started by "
        + ("hand after the boot was over" if by_hand else "nobody but systemd")
    )
    if boot.recorder:
        when = datetime.fromtimestamp(boot.read_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        said += f"; recorded by {boot.recorder} at {when}"
    return judge(NAME, [said] if by_hand else [], said)
