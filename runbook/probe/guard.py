"""Guard of a unit, one file on its host: ``before-start``, ``ready`` (gate.py), ``stopped``
(tries.py), ``alive`` (alive.py), ``after-boot`` (boot.py), and ``drift``.

``before-start EXPECTED`` looks whether what was measured is still there. Run by systemd as
ExecStartPre under the interpreter that will serve, with its flags, as its user, in its
environment; EXPECTED is the path of a JSON file. One line a finding,
``guard: LEVEL: NAME: FOUND; wanted: WANTED``; the exit code is 0, 20 when something failed, 21
without expectations. ``drift`` asks the same with the JSON itself: then nothing fails, findings
are printed as JSON, and the content of files is read, not only their size and time.

What was not measured is skipped. What was, and cannot be read now, is unknown, never a pass.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from runbook.probe.alive import alive
from runbook.probe.boot import after_boot
from runbook.probe.gate import ready
from runbook.probe.look import listeners, sockets_on
from runbook.probe.serving import CACHES, is_closed, read_all, read_files
from runbook.probe.topology import fingerprint, parse_matrix
from runbook.probe.tries import stopped

FAILED, NO_EXPECTATIONS, NO_COMMAND = 20, 21, 23
GIB = 2**30
#: After a boot the driver may still be busy with its cards, after a stop it may still free memory.
GPUS_WAIT_S = 60.0
#: And may not answer at all.
SMI_S = 30.0
#: More than this share of a card in use before a start is somebody's.
GPU_USED_SHARE = 0.05

#: Status, found, wanted. The status is pass, fail, unknown or skipped.
Answer = tuple[str, str, str]
NOT_MEASURED: Answer = ("skipped", "it was not measured", "")


def judge_file(wanted: dict[str, Any] | None, found: dict[str, Any] | None) -> Answer:
    """One model: by its content where that was read, else by size and time."""
    if not wanted:
        return NOT_MEASURED
    aim = _describe_file(wanted)
    if not found:
        return "unknown", "it could not be looked at", aim
    if found.get("kind") != wanted["kind"] or found.get("readable") is False:
        return "fail", found.get("why") or f"it is a {found.get('kind')}", aim
    said = _describe_file(found)
    if any(found.get(key) != wanted.get(key) for key in ("size_bytes", "files", "listing_sha256")):
        return "fail", said, aim
    if found.get("sha256") and wanted.get("sha256"):
        return ("pass" if found["sha256"] == wanted["sha256"] else "fail"), said, aim
    if is_unchanged(wanted, found):
        return "pass", said, aim
    return "unknown", f"{said}: changed since, and no hash tells whether its content is", aim


def is_unchanged(wanted: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether place, size and times are those that were measured."""
    keys = ("realpath", "size_bytes", "mtime_ns", "newest_mtime_ns")
    return all(found.get(key) == wanted.get(key) for key in keys)


def _describe_file(file: dict[str, Any]) -> str:
    size = f"{file.get('size_bytes', 0)} bytes"
    if file["kind"] == "folder":
        size = f"{file.get('files')} file{'s' * (file.get('files') != 1)}, {size}"
    if file.get("sha256"):
        return f"{size}, SHA-256 {file['sha256'][:12]}"
    stamp_s = (file.get("newest_mtime_ns") or file.get("mtime_ns") or 0) / 1e9
    return f"{size} of {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(stamp_s))}"


def judge_interpreter(wanted: dict[str, Any] | None, found: dict[str, Any] | None) -> Answer:
    """The program and its version; what was not known of it then says nothing now."""
    keys = ("executable", "realpath", "version", "prefix", "sha256")
    known = {key: wanted[key] for key in keys if wanted.get(key)} if wanted else None
    return judge_values(known, found)


def judge_values(wanted: dict[str, Any] | None, found: dict[str, Any] | None) -> Answer:
    """Values by name, each as it was."""
    if not wanted:
        return NOT_MEASURED
    if found is None:
        return "unknown", "it could not be read", _pairs(wanted, wanted)
    other = [key for key in wanted if wanted[key] != found.get(key)]
    shown = other or list(wanted)
    return ("fail" if other else "pass"), _pairs(found, shown), _pairs(wanted, shown)


def _pairs(values: dict[str, Any], keys: Iterable[str]) -> str:
    return ", ".join(f"{key} {_short(values.get(key))}" for key in keys)


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text[:12] if len(text) == 64 and text.isalnum() else text


def judge_customization(expected: dict[str, Any], found: dict[str, Any]) -> Answer:
    """Which ``sitecustomize`` and ``usercustomize`` Python has loaded, and their content."""
    aims, seen = [], []
    for name in ("sitecustomize", "usercustomize"):
        if not expected.get(name):
            return NOT_MEASURED
        if not found.get(name):
            return "unknown", f"{name} could not be read", loaded(expected[name])
        if found[name].get("raised"):
            return "fail", f"{name} raised: {found[name]['raised']}", loaded(expected[name])
        aims.append(f"{name} {loaded(expected[name])}")
        seen.append(f"{name} {loaded(found[name])}")
    return ("pass" if seen == aims else "fail"), ", ".join(seen), ", ".join(aims)


def loaded(part: dict[str, Any]) -> str:
    """The file that was loaded, with its hash."""
    path = part.get("loaded")
    hashes = {one["path"]: one.get("sha256") for one in part.get("candidates") or []}
    return f"{path} ({_short(hashes.get(path, 'not hashed'))})" if path else "none"


def judge_room(free_bytes: int | None, least_gib: float) -> Answer:
    """Free room, in a file system or in shared memory."""
    aim = f"{least_gib:g} GiB free or more"
    if free_bytes is None:
        return "unknown", "it could not be read", aim
    enough = free_bytes >= least_gib * GIB
    return ("pass" if enough else "fail"), f"{free_bytes / GIB:.1f} GiB free", aim


def judge_caches() -> Answer:
    """Home and caches that the environment names must be writable, or may be made, by this user."""
    named = {name: os.environ[name] for name in CACHES if os.environ.get(name)}
    if not named:
        return NOT_MEASURED
    closed = [f"{name} {path} cannot be written" for name, path in named.items() if is_closed(path)]
    said = ", ".join(closed) or f"{', '.join(named)} can be written"
    return ("fail" if closed else "pass"), said, "folders that this user can write"


def judge_gpus(
    wanted: list[dict[str, str]] | None, found: list[dict[str, Any]] | None, count: int = 0
) -> Answer:
    """The very cards, under the driver that was measured with; where these are not known, as many
    as are wanted."""
    if not wanted and not count:
        return NOT_MEASURED
    if not wanted:
        aim = f"{count} or more GPUs"
        if found is None:
            return "unknown", "nvidia-smi does not answer", aim
        return ("pass" if len(found) >= count else "fail"), _cards(found), aim
    aim = _cards(wanted)
    if found is None:
        return "unknown", "nvidia-smi does not answer", aim
    gone = sorted({card["uuid"] for card in wanted} - {card["uuid"] for card in found})
    said = _cards(found) + (f", without {', '.join(gone)}" if gone else "")
    return ("fail" if gone or _cards(found) != aim else "pass"), said, aim


def judge_gpu_memory(count: int, found: list[dict[str, Any]] | None) -> Answer:
    """Nobody must hold the memory of the cards."""
    if not count:
        return NOT_MEASURED
    aim = f"at most {GPU_USED_SHARE:.0%} of each card in use"
    used: list[Any] = [card.get("used") for card in found or [{}]]
    if None in used:
        return "unknown", "nvidia-smi does not tell it", aim
    most = max(used)
    return ("pass" if most <= GPU_USED_SHARE else "fail"), f"{most:.0%} of a card in use", aim


def judge_topology(wanted: str | None) -> Answer:
    """The links between the cards, however these are numbered."""
    if not wanted:
        return NOT_MEASURED
    text = ask_smi("topo", "-m")
    found = None if text is None else fingerprint(parse_matrix(text))
    if found is None:
        return "unknown", "nvidia-smi topo -m tells no whole matrix", wanted
    return ("pass" if found == wanted else "fail"), f"links {found}", f"links {wanted}"


def judge_nccl(wanted: dict[str, str] | None) -> Answer:
    """The files of settings that NCCL reads for this user, by their content."""
    if wanted is None:
        return NOT_MEASURED
    found = read_nccl()
    said, aim = (_pairs(one, sorted(one)) or "no nccl.conf" for one in (found, wanted))
    return ("pass" if said == aim else "fail"), said, aim


def read_nccl() -> dict[str, str]:
    """Path -> hash, or why it cannot be read."""
    own = Path(pwd.getpwuid(os.geteuid()).pw_dir, ".nccl.conf")
    found = {}
    for path in (os.environ.get("NCCL_CONF_FILE") or str(own), "/etc/nccl.conf"):
        try:
            found[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except FileNotFoundError:
            continue
        except OSError as error:
            found[path] = str(error.strerror)
    return found


def _cards(cards: list[dict[str, str]]) -> str:
    drivers = ", ".join(sorted({card["driver"] for card in cards}))
    return f"{len(cards)} GPU{'s' * (len(cards) != 1)}, driver {drivers}"


def judge_port(port: int, held: bool, holders: list[str]) -> Answer:
    """Nobody must listen where the server will."""
    aim = f"port {port} free"
    if not held:
        return "pass", "free", aim
    return "fail", f"held by {'; '.join(holders) or 'a process that this user cannot see'}", aim


def holder(seen: dict[str, Any]) -> str:
    """A process that listens, in words: number, command, unit."""
    try:
        words = Path(f"/proc/{seen['pid']}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    command = b" ".join(words).decode("utf-8", "replace").strip()[:120]
    units = [part for part in (seen["cgroup"] or "").split("/") if part.endswith(".service")]
    return f"pid {seen['pid']} ({command})" + (f", unit {units[-1]}" if units else "")


def read_gpus(wait_for: int) -> list[dict[str, Any]] | None:
    """The cards; waits a while until there are as many as expected, and their memory is free.

    ``used``: the share of its memory in use. ``None``: no answer.
    """
    deadline = time.monotonic() + (GPUS_WAIT_S if wait_for else 0)
    while True:
        cards = ask_driver()
        there = cards is not None and len(cards) >= wait_for
        busy = [card for card in cards or [] if (card["used"] or 0) > GPU_USED_SHARE]
        if (there and not busy) or time.monotonic() >= deadline:
            return cards
        time.sleep(1)


def ask_smi(*words: str) -> str | None:
    """What ``nvidia-smi`` says; ``None`` without it, or when it fails."""
    program = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path="/usr/bin:/usr/sbin")
    if program is None:
        return None
    try:
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=SMI_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def ask_driver() -> list[dict[str, Any]] | None:
    """One question about all cards."""
    fields = "uuid,driver_version,memory.used,memory.total"
    text = ask_smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits") or ""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
    return [
        {"uuid": row[0], "driver": row[1], "used": _share(row[2], row[3])}
        for row in rows
        if len(row) == 4
    ] or None


def _share(part: str, whole: str) -> float | None:
    return int(part) / int(whole) if part.isdigit() and whole.isdigit() and int(whole) else None


def read_serving(expected: dict[str, Any], thorough: bool) -> dict[str, Any]:
    """What the interpreter finds. The content of a file is read where the measured hash is known
    and its place, size or time is another than then; with ``thorough`` in any case."""
    options = expected["options"]
    most = options["hash_up_to_bytes"] if thorough else 0
    facts: dict[str, Any] = read_all({**options, "hash_up_to_bytes": most})["facts"]
    files = facts.get("files") or {}
    for path, wanted in expected["facts"].get("files", {}).items():
        found = files.get(path) or {}
        same_size = found.get("size_bytes") == wanted.get("size_bytes")
        if wanted.get("sha256") and same_size and not is_unchanged(wanted, found):
            again = {"files": [path], "hash_up_to_bytes": options["hash_up_to_bytes"]}
            files[path] = read_files(again)[path]
    return facts


def judge(expected: dict[str, Any], thorough: bool = False) -> list[dict[str, str]]:
    """Every finding: name, level, status, found, wanted; what is off is not looked at."""
    levels: dict[str, str] = {n: v for n, v in expected["levels"].items() if v != "off"}
    facts = read_serving(expected, thorough)
    cards = None
    if count_of(expected) and ("gpus" in levels or "gpu_memory" in levels):
        cards = read_gpus(0 if thorough else count_of(expected))
    findings = []
    for name, level in levels.items():
        status, found, wanted = answer(name, expected, facts, cards)
        findings.append(
            {"name": name, "level": level, "status": status, "found": found, "wanted": wanted}
        )
    return findings


def count_of(expected: dict[str, Any]) -> int:
    """How many cards are waited for: those that were measured with, or those asked for."""
    return len(expected["gpus"]) or int(expected.get("gpu_count") or 0)


def answer(name: str, expected: dict[str, Any], facts: dict[str, Any], cards: Any) -> Answer:
    """The answer to one question of the guard. Raises ``KeyError`` for one it does not know."""
    wanted = expected["facts"]
    if name in ("model", "draft"):
        path = expected["roles"].get(name)
        return judge_file(wanted.get("files", {}).get(path), (facts.get("files") or {}).get(path))
    if name == "interpreter":
        return judge_interpreter(wanted.get("python"), facts.get("python"))
    if name == "sitecustomize":
        return judge_customization(wanted, facts)
    if name == "packages":
        return judge_values(wanted.get("packages"), facts.get("packages"))
    if name == "caches":
        return judge_caches()
    if name == "shm":
        return judge_room((facts.get("shm") or {}).get("free_bytes"), expected["least_shm_gib"])
    if name == "disk":
        free = [room["free_bytes"] for room in (facts.get("disks") or {}).values()]
        return judge_room(min(free, default=None), expected["least_disk_gib"])
    if name == "gpus":
        return judge_gpus(expected["gpus"], cards, count_of(expected))
    if name == "gpu_memory":
        return judge_gpu_memory(count_of(expected), cards)
    if name == "topology":
        return judge_topology(expected.get("topology"))
    if name == "nccl":
        return judge_nccl(expected.get("nccl"))
    port = {"port": expected["port"]}[name]
    return judge_port(port, bool(sockets_on(port)), [holder(one) for one in listeners(port)])


def say(findings: list[dict[str, str]], took_s: float) -> int:
    """Print what was found; 20 when something failed that must not."""
    bad = [one for one in findings if one["status"] in ("fail", "unknown")]
    for one in bad:
        print("guard: {level}: {name}: {found}; wanted: {wanted}".format(**one))
    good = sum(one["status"] == "pass" for one in findings)
    rest = len(findings) - good - len(bad)
    print(f"guard: {good} good, {len(bad)} not, {rest} not measured, in {took_s:.2f} s")
    return FAILED if any(one["level"] == "fail" for one in bad) else 0


def before_start(words: list[str]) -> int:
    """Look, and say what is not as expected; ``words``: the path of the expectations."""
    began = time.monotonic()
    try:
        findings = judge(json.loads(Path(words[0]).read_text()))
    except (OSError, ValueError, KeyError) as error:
        return without_expectations(words[0], error)
    return say(findings, time.monotonic() - began)


def drift(words: list[str]) -> int:
    """Print all findings; ``words``: the expectations themselves."""
    try:
        findings = judge(json.loads(words[0]), thorough=True)
    except (OSError, ValueError, KeyError) as error:
        return without_expectations(words[0], error)
    print("\n" + json.dumps({"probe": "guard", "findings": findings}))
    return 0


def without_expectations(given: str, error: Exception) -> int:
    """Say what is wrong with them."""
    print(f"guard: fail: expectations {given[:200]}: {type(error).__name__}: {error}")
    return NO_EXPECTATIONS


#: What the one file does on its host.
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "before-start": before_start,
    "ready": ready,
    "stopped": stopped,
    "alive": alive,
    "after-boot": after_boot,
    "drift": drift,
}


def main() -> int:
    """Do what the command line asks; the exit code."""
    name, *words = sys.argv[1:] or [""]
    command = COMMANDS.get(name)
    if command is None or not words:
        print(f"guard: {name or 'nothing'} was asked, it knows: {', '.join(COMMANDS)}")
        return NO_COMMAND
    return command(words)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a request that hangs in its thread must not hold the unit's start
