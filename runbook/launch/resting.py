"""Units of a host that rest for a while: stopped, and brought back whatever happens.

A benchmark on a production host needs the GPUs of the service that runs there; so does the new
service that takes its place.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from runbook.errors import BadInput, HostFailed, NotProved
from runbook.hosts.base import Host
from runbook.launch.systemd import show, watched

#: What rests, so that the next start brings it back when both runner and watch were killed.
RECORD = "/run/golive-runbook-resting.json"

#: The longest a unit may take to stop, or to start again, in seconds.
PATIENCE_S = 3600.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Seen:
    """A unit as it was found. ``ports``: where its processes listened, those that their arguments
    name where any is named; ``answers``: one of them alone was there, and spoke HTTP."""

    unit: str
    active: bool
    enabled: bool
    ports: tuple[int, ...] = ()
    answers: bool = False

    def serves_again(self, now: Seen) -> bool:
        """Whether it does where it did. A server has ports by chance too, other ones each time."""
        there = not self.ports or bool(set(self.ports) & set(now.ports))
        return now.active and there and (now.answers or not self.answers)

    def how_it_is_back(self, now: Seen) -> str:
        """What is known of it once it serves again: no more than was seen before it was stopped.

        A unit whose server runs elsewhere (a detached one, a container) is active and listens
        nowhere; of one that listens at several ports nobody knows which speaks HTTP.
        """
        if self.answers:
            return "brought back and answers"
        both = ", ".join(str(port) for port in self.ports if port in now.ports)
        if both:
            return f"brought back and listens at {both}; whether it answers was not asked"
        where = f" (it listens at {', '.join(map(str, now.ports))} now)" if now.ports else ""
        return (
            f"started again{where}; whether it serves is not known: nothing of it was seen to "
            "listen before it was stopped"
        )


S = TypeVar("S", bound=Seen)

_PORTS = """
import glob, http.client, json, os, re, signal, sys
held, words = set(), set()
for pid in open("/sys/fs/cgroup" + sys.argv[1] + "/cgroup.procs").read().split():
    for link in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            held.add(os.readlink(link))
        except OSError:
            pass
    try:
        words |= set(re.findall(r"\\d+", open(f"/proc/{pid}/cmdline").read()))
    except OSError:
        pass
found = set()
for table in ("tcp", "tcp6"):
    for row in open(f"/proc/net/{table}").read().splitlines()[1:]:
        fields = row.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in held:
            found.add(int(fields[1].rpartition(":")[2], 16))
ports = sorted(port for port in found if str(port) in words) or sorted(found)
def late(*_):
    raise OSError("no answer in time")
def speaks(port):
    # As a whole: a server may send one byte now and then.
    signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v1/models")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        signal.alarm(0)
        connection.close()
print(json.dumps([ports, len(ports) == 1 and speaks(ports[0])]))
"""


def see(host: Host, unit: str) -> Seen:
    """Whether a unit runs, starts at boot, where it listens and answers. Changes nothing."""
    state = show(host, unit, "ActiveState", "UnitFileState", "ControlGroup")
    active = state.get("ActiveState") in ("active", "activating", "reloading")
    ports, answers = _ports(host, state, active)
    return Seen(unit, active, state.get("UnitFileState") == "enabled", ports, answers)


def _ports(host: Host, state: dict[str, str], active: bool) -> tuple[tuple[int, ...], bool]:
    group = state.get("ControlGroup")
    if not active or not group:
        return (), False
    done = host.run(host.python, "-I", "-S", "-c", _PORTS, group, check=False)
    ports, answers = json.loads(done.out) if done.code == 0 else ((), False)
    return tuple(ports), answers


def as_text(units: Sequence[Seen]) -> str:
    """Units as JSON: a list of objects."""
    return json.dumps([vars(one) for one in units], indent=1) + "\n"


def seen_in(text: str, path: str, kind: type[S]) -> list[S]:
    """Units from the JSON of ``as_text``, kept at ``path``. Raises ``BadInput``."""
    try:
        return [kind(**{**one, "ports": tuple(one["ports"])}) for one in json.loads(text)]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path} is not as it was written: {error}",
            "the units that were stopped for this",
            f"start by hand what should serve, then remove {path}",
        ) from None


@contextmanager
def resting(host: Host, units: Sequence[str], say: Say) -> Iterator[tuple[Seen, ...]]:
    """Stop those of ``units`` that run, and bring them back at the end: after an error, Ctrl-C,
    ``kill -9`` of the runner (a unit of the host watches it), or at the next start.

    Raises ``NotProved`` when one does not answer again where it did.
    """
    found = _left_by_another(host, units) or [see(host, unit) for unit in units]
    stopped = tuple(one for one in found if one.active)
    if not stopped:
        yield ()
        return
    host.write(RECORD, as_text(stopped))
    start = [["systemctl", "start", "--", *(one.unit for one in stopped)], ["rm", "-f", RECORD]]
    began = time.monotonic()
    with watched(host, "resting", start):
        try:
            for one in stopped:
                say(f"{one.unit}: stopped; it is brought back at the end, whatever happens")
                host.run("systemctl", "stop", "--", one.unit, timeout_s=PATIENCE_S)
            yield stopped
        finally:
            back = bring_back(host, stopped)
            host.remove(RECORD)
            rested_s = time.monotonic() - began
            for unit, how in back.items():
                say(f"{unit}: after {rested_s:.0f} s of rest {how}")


def _left_by_another(host: Host, units: Sequence[str]) -> list[Seen]:
    """What an earlier runner stopped and nobody has brought back."""
    text = host.read(RECORD)
    if text is None:
        return []
    known = {one.unit: one for one in seen_in(text.decode(errors="replace"), RECORD, Seen)}
    return [known.get(unit) or see(host, unit) for unit in units]


def bring_back(host: Host, units: Sequence[Seen]) -> dict[str, str]:
    """Start units and wait until they listen and answer where they did; unit -> what is known of
    it then.

    Raises ``NotProved`` for the first that does not; the others are started all the same.
    """
    failed = []
    for one in units:
        try:
            host.run("systemctl", "start", "--", one.unit, timeout_s=PATIENCE_S)
        except HostFailed as error:
            failed.append(_not_back(one, error.found))
    if failed:
        raise failed[0]
    back = {}
    deadline = time.monotonic() + PATIENCE_S
    for one in units:
        while not one.serves_again(now := see(host, one.unit)):
            if not now.active or time.monotonic() > deadline:
                silent = "without an answer, " if one.answers and not now.answers else ""
                raise _not_back(one, f"{silent}it listens at {now.ports}, before at {one.ports}")
            time.sleep(0.2)
        back[one.unit] = one.how_it_is_back(now)
    return back


def _not_back(one: Seen, why: str) -> NotProved:
    return NotProved(
        f"{one.unit} was stopped for this and does NOT serve again: {why}",
        "the service that ran before",
        f"look at it now: systemctl status {one.unit}",
    )
