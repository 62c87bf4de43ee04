"""How a unit came back at the last boot of its host, from the journal of that boot.

Run as root: ``after-boot UNIT`` prints it, ``after-boot UNIT FILE`` writes it there once the unit
has come to rest. The one-shot unit that is installed beside a service does the latter at each
boot, so that what happened is known however soon the journal is rotated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

#: How systemd marks what it says of a unit (``systemd/sd-messages.h``).
STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
RESTART_PLANNED = "5eb03494b6584870a536b337290809b3"

#: What the gate says when a completion was served.
SERVED = "gate: ready"

#: The exit code where nothing can be told.
UNKNOWN = 22


def after_boot(words: list[str]) -> int:
    """Print what this boot tells of the unit ``words[0]``, or write it to ``words[1]``; 22 when it
    cannot be told."""
    unit, file = words[0], words[1] if len(words) > 1 else ""
    try:
        if file:
            wait_for_rest(unit)
        found = {"probe": "boot", **read_boot(unit)}
        if file:
            replace_file(Path(file), json.dumps(found) + "\n")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"boot: {type(error).__name__}: {error}", file=sys.stderr)
        return UNKNOWN
    served = sum(start["served_s"] is not None for start in found["starts"])
    said = f"boot: starts of {unit}: {len(found['starts'])}, of them served: {served}"
    print(said if file else json.dumps(found))
    return 0


def wait_for_rest(unit: str) -> None:
    """Wait while systemd brings a unit up, and while it tries again."""
    show = ("systemctl", "show", "-P", "ActiveState", unit)
    while said_by(*show) in ("activating", "reloading"):
        time.sleep(0.5)


def read_boot(unit: str) -> dict[str, Any]:
    """The boot that the host is in, and the starts of ``unit`` in it.

    ``at``: when systemd took over, in seconds of the epoch. Of the host's monotonic clock:
    ``began_s``, when systemd took over; ``over_s``, when the boot was over (null: it is not);
    ``kept_from_s``, how far back the journal reaches. ``read_at``: now, in seconds of the epoch.
    """
    said_by("journalctl", "--sync")
    manager = said_by("systemctl", "show", "-P", "UserspaceTimestampMonotonic")
    over = said_by("systemctl", "show", "-P", "ActiveEnterTimestampMonotonic", "multi-user.target")
    began_s, over_s = int(manager) / 1e6, int(over) / 1e6
    now_s, uptime_s = time.time(), float(Path("/proc/uptime").read_text().split()[0])
    journal = ("journalctl", "--boot", "--output=json", "--quiet", "--no-pager")
    oldest = next(printed_by(*journal), "")
    return {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "at": now_s - (uptime_s - began_s),
        "began_s": began_s,
        "over_s": over_s or None,
        "kept_from_s": moment_s(json.loads(oldest)) if oldest else uptime_s,
        "read_at": now_s,
        "starts": list(until_served(starts_in(printed_by(*journal, "--unit", unit)))),
    }


def until_served(starts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The starts up to the first that served. A server may have logged for months since then."""
    for start in starts:
        yield start
        if start["served_s"] is not None:
            return


def starts_in(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The starts of the unit in a journal (one JSON object a line), in order: ``at_s``, whether
    systemd had ``planned`` it, and ``served_s``, null for one that did not serve."""
    start: dict[str, Any] | None = None
    planned = False
    for line in lines:
        entry = json.loads(line)
        said = entry.get("MESSAGE_ID")
        if said == RESTART_PLANNED:
            planned = True
        elif said == STARTING:
            if start:
                yield start
            start = {"at_s": moment_s(entry), "planned": planned, "served_s": None}
            planned = False
        elif start and SERVED in str(entry.get("MESSAGE")):
            yield {**start, "served_s": moment_s(entry)}
            start = None
    if start:
        yield start


def moment_s(entry: dict[str, Any]) -> float:
    """When an entry of the journal was written, in seconds of the monotonic clock."""
    return int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6


def said_by(*command: str) -> str:
    """What a command prints, without the last line's end. Raises ``OSError`` and
    ``subprocess.SubprocessError``."""
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120)
    return done.stdout.decode(errors="replace").strip()


def printed_by(*command: str) -> Iterator[str]:
    """The lines that a command prints; it is ended when no more are wanted.

    Raises ``OSError``, and ``subprocess.CalledProcessError`` when it fails.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        try:
            for line in started.stdout:
                yield line.decode(errors="replace")
        except GeneratorExit:
            started.kill()
            raise
    if started.returncode:
        raise subprocess.CalledProcessError(started.returncode, command)


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
