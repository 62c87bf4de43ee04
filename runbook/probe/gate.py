"""Readiness gate of a unit: ends when the service has served, or at once when it cannot.

``ready`` of the guard, run by systemd as ExecStartPost, so that ``systemctl start`` returns when a
completion was served. It climbs a ladder (the port is ours, health, model, a streamed completion
of two tokens or more) and watches the main process all the while. It prints what it waits for.

Exit codes, chosen outside those that systemd gives names to (2 to 7, 64 to 78, 200 and up):
0 served; 10 the main process is gone, or its workers are; 11 out of time; 12 the server will not
serve us; 13 wrongly asked.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import threading
import time
import urllib.parse
from pathlib import Path

from runbook.probe.completion import (
    MOST_BYTES,
    PROBE_TOKENS,
    SENSELESS_IN_TURN,
    SERVED_TOKENS,
    NotServed,
    name_few,
    parse_answer,
    read_completion,
    read_lines,
    why_senseless,
)
from runbook.probe.look import LostWorkers, link, sockets_on, unified_cgroup
from runbook.redaction import redact, remember

GONE, LATE, REFUSED, WRONGLY_ASKED = 10, 11, 12, 13
SAY_AGAIN_S = 15.0
#: Between answers without sense: a server may still be warming up.
SENSELESS_PAUSE_S = 1.0

#: What reading an answer of another form raises.
NO_ANSWER = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


class Refused(Exception):
    """The server answers, and waiting longer will not help."""


class Senseless(Exception):
    """A completion without text, or of mere repetition."""


class NotYet(Exception):
    """The server is not ready; the text says in what way."""


def process_start(pid: int) -> str | None:
    """Start time of a process in clock ticks; ``None`` when it has ended or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def unit_holds_port(port: int, main: int) -> bool | None:
    """Whether a process of ``main``'s control group listens on ``port``.

    ``None`` when that cannot be read. An older server that still holds the port would answer in
    the place of the new one.
    """
    held = sockets_on(port)
    if not held:
        return False
    ours, readable = unified_cgroup(str(main)), False
    for process in Path("/proc").glob("[0-9]*"):
        if process.name != str(main) and unified_cgroup(process.name) != ours:
            continue
        try:
            for descriptor in (process / "fd").iterdir():
                readable = True
                if link(descriptor) in held:
                    return True
        except OSError:
            continue
    return False if readable else None


class Ladder(threading.Thread):
    """Asks the server until it has served; ``waits_for`` is the rung it stands on."""

    def __init__(self, url: str, model: str, tokens: int, main: int, key: str | None) -> None:
        super().__init__(daemon=True)
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.base = parts.path.rstrip("/")
        self.model, self.tokens, self.main = model, tokens, main
        self.headers = {"Content-Type": "application/json"}
        if key:
            remember(key)
            self.headers["Authorization"] = f"Bearer {key}"
        self.waits_for = "the first look"
        self.served: str | None = None
        self.refused: str | None = None
        self.senseless = 0

    def run(self) -> None:
        """Climb again and again, less often as time goes by, until served or refused."""
        begun = time.monotonic()
        while self.served is None and self.refused is None:
            try:
                self.climb()
            except Refused as error:
                self.refused = shown(error)
            except Senseless as error:
                self.senseless += 1
                self.waits_for = f"sense ({shown(error)})"
                if self.senseless == SENSELESS_IN_TURN:
                    self.refused = f"{shown(error)}, {SENSELESS_IN_TURN} times in turn"
                time.sleep(SENSELESS_PAUSE_S)
            except NotYet as error:
                self.waits_for = shown(error)
            except NotServed as error:
                self.waits_for = f"a completion ({shown(error)})"
            except (OSError, http.client.HTTPException, *NO_ANSWER) as error:
                self.waits_for = f"an answer ({type(error).__name__}: {shown(error)})"
            time.sleep(min(1.0, max(0.1, (time.monotonic() - begun) / 50)))

    def climb(self) -> None:
        """One try, from the bottom. Raises ``NotYet`` or ``Refused``."""
        if self.main and unit_holds_port(self.port, self.main) is False:
            if sockets_on(self.port):
                raise NotYet(f"port {self.port}: held by a process that is not of this unit")
            raise NotYet(f"the server to listen on port {self.port}")
        self.waits_for = "health"
        status, _ = self.get("/health")
        if status not in (200, 404, 405):
            raise NotYet(f"health (it says {status})")
        model = self.served_model()
        self.waits_for = f"a completion of {model}"
        count, text = self.complete(model)
        if count < self.tokens:
            raise NotYet(f"a completion of {self.tokens} tokens (it gave {count})")
        if why := why_senseless(count, text):
            raise Senseless(why)
        self.served = f"{model} served a completion of {count} tokens"

    def served_model(self) -> str:
        """The id to ask for, which the server must list."""
        status, body = self.get("/v1/models")
        if status in (401, 403):
            raise Refused(f"/v1/models says {status}: the server wants an API key we do not have")
        if status != 200:
            raise NotYet(f"the list of models (it says {status})")
        names = [str(entry["id"]) for entry in parse_answer(body)["data"]]
        if self.model and self.model not in names:
            raise Refused(f"the server has the models {name_few(names)}, not {self.model}")
        if not names:
            raise NotYet("a model in the list of models")
        return self.model or names[0]

    def complete(self, model: str) -> tuple[int, str]:
        """Tokens and text of one streamed completion."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Count from one to twenty."}],
            "max_tokens": PROBE_TOKENS,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        connection = http.client.HTTPConnection(self.host, self.port)
        try:
            path = f"{self.base}/v1/chat/completions"
            connection.request("POST", path, json.dumps(body), self.headers)
            answer = connection.getresponse()
            if answer.status in (401, 403):
                raise Refused(
                    f"it says {answer.status}: the server wants an API key we do not have"
                )
            if answer.status != 200:
                said = answer.read(300).decode(errors="replace")
                raise NotYet(f"a completion (it says {answer.status}: {redact(said, cut=True)})")
            refuse_encoded(answer)
            return read_completion(read_lines(lambda: answer.read1(65536)))
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request("GET", self.base + path, headers=self.headers)
            answer = connection.getresponse()
            refuse_encoded(answer)
            body = answer.read(MOST_BYTES + 1)
            if len(body) > MOST_BYTES:
                raise NotYet(f"a shorter answer of {path} (it is above {MOST_BYTES} bytes)")
            return answer.status, body
        finally:
            connection.close()


def refuse_encoded(answer: http.client.HTTPResponse) -> None:
    """Raise ``NotYet`` for an answer that is compressed, which nobody asked for."""
    encoding = answer.getheader("Content-Encoding") or "identity"
    if encoding.lower() != "identity":
        raise NotYet(f"an answer that is not compressed (it says {encoding})")


def shown(error: Exception) -> str:
    """What an error says, in one short line, without the key."""
    return " ".join(redact(str(error)).split())[:300]


def tell(text: str) -> None:
    """A line of the journal, without the key."""
    print(f"gate: {redact(text)}", flush=True)


def wait(ladder: Ladder, main: int, deadline_s: float) -> int:
    """Watch ladder, main process and clock; return the exit code."""
    begun = time.monotonic()
    born = process_start(main) if main else None
    said, said_at, lost_workers = "", 0.0, LostWorkers(main)
    ladder.start()
    while True:
        waited = time.monotonic() - begun
        if ladder.served:
            tell(f"ready after {waited:.1f} s: {ladder.served}")
            return 0
        rung = ladder.waits_for
        if main and (born is None or process_start(main) != born):
            tell(f"main process {main} is gone while waiting for {rung}")
            return GONE
        if main and (lost := lost_workers.look()):
            tell(f"will not become ready: {lost}")
            return GONE
        if ladder.refused:
            tell(f"will not become ready: {ladder.refused}")
            return REFUSED
        if waited > deadline_s:
            tell(f"gave up after {waited:.0f} s waiting for {rung}")
            return LATE
        if (rung != said and waited - said_at >= 1) or waited - said_at >= SAY_AGAIN_S:
            tell(f"{waited:.0f} of {deadline_s:.0f} s, waiting for {rung}")
            said, said_at = rung, waited
        time.sleep(0.05)


def read_key(main: int) -> str | None:
    """The API key from systemd's credentials, ``None`` without one.

    Older releases of systemd (252) hide them from ExecStartPost, or show it an empty folder; then
    the main process's own view of the same folder is read. Raises ``OSError`` when there is a key
    that cannot be read, ``ValueError`` for one that no request can carry.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return None
    views = ["", f"/proc/{main}/root"] if main else [""]
    for view in views:
        try:
            key = Path(f"{view}{folder}/api-key").read_text().strip()
            if not (key.isascii() and key.isprintable()):
                raise ValueError("the API key is not one line of ASCII text")
            return key or None
        except FileNotFoundError:  # no key, or not in this view of the folder
            continue
        except PermissionError:
            if view == views[-1]:
                raise
    return None


def ready(words: list[str]) -> int:
    """Wait as the command line says; the exit code. A request that hangs may outlive it."""
    parser = argparse.ArgumentParser("ready", exit_on_error=False)
    parser.add_argument("--url", required=True, help="base URL without /v1")
    parser.add_argument("--model", default="", help="id that must be served; empty for the first")
    parser.add_argument("--deadline", type=float, required=True, help="seconds")
    parser.add_argument("--tokens", type=int, default=SERVED_TOKENS, help="that count as served")
    try:
        given = parser.parse_args(words)
        pid = int(os.environ.get("MAINPID") or 0)
        key = read_key(pid)
    except (argparse.ArgumentError, ValueError, OSError) as error:
        tell(f"{error}")
        return WRONGLY_ASKED
    ladder = Ladder(given.url, given.model, given.tokens, pid, key)
    return wait(ladder, pid, given.deadline)
