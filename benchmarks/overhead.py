"""What the runbook itself costs: a whole rehearsal, split into servers at work and all else.

    python benchmarks/overhead.py [PARAMS] [-p KEY=VALUE ...]
    python benchmarks/overhead.py --run RUN

Runs ``runbook run PARAMS --apply`` (default: the rehearsal) and watches it, or looks back at a
finished run, by the journal of its box (without what the runner needs before it makes the folder).
A server is at work from its spawn to its exit, box and all. Of a notebook, papermill and the kernel
are what is not spent in its cells. Exit 1 where all else is more than a tenth of the wall time, or
``--help`` needs more than 150 ms of processor time. Wants a quiet machine; takes as long as the
rehearsal.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import nbformat

from runbook import params
from runbook.run import STAGES, Run

ROOT = Path(__file__).parents[1]
RUNBOOK = Path(sys.executable).with_name("runbook")
SERVERS = ("serve_llamacpp.py", "sglang.launch_server")
MOST_ELSE, MOST_HELP_MS = 0.10, 150.0
LOOK_EVERY_S = 0.1

Span = tuple[float, float]


@dataclass
class Watched:
    """Spans of processes: seconds since boot, or of a finished run since 1970."""

    servers: list[Span] = field(default_factory=list)
    notebooks: dict[str, Span] = field(default_factory=dict)


def watch(runner: subprocess.Popen[bytes], run: Path, port: int) -> Watched:
    """Follow servers and notebook processes until the runner has ended: exits are told by pidfd,
    starts are what the kernel says."""
    seen, open_, poll = Watched(), {}, select.poll()
    known: set[int] = set()
    while runner.poll() is None or open_:
        for pid in {int(one.name) for one in Path("/proc").glob("[0-9]*")} - known:
            what = role_of(pid, str(run), str(port))
            if what is not None or settled(pid):
                known.add(pid)
            if what is not None:
                open_[descriptor := os.pidfd_open(pid)] = (what, started(pid))
                poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(1000 * LOOK_EVERY_S):
            what, start = open_.pop(descriptor)
            span = (start, time.clock_gettime(time.CLOCK_BOOTTIME))
            if what == "server":
                seen.servers.append(span)
            else:
                # A fork of it bears its name until it becomes its own program.
                first, last = seen.notebooks.get(what, span)
                seen.notebooks[what] = (min(first, span[0]), max(last, span[1]))
            poll.unregister(descriptor)
            os.close(descriptor)
        known &= {int(one.name) for one in Path("/proc").glob("[0-9]*")}
    return seen


def role_of(pid: int, run: str, port: str) -> str | None:
    """``server``, the stage of a notebook's process, or nothing that counts: not of this run."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return None
    if "runbook.pipeline" in words and run in words:
        return words[words.index("runbook.pipeline") + 1]
    ours = port in words and any(Path(word).name in SERVERS for word in words[1:4])
    return "server" if ours else None


def settled(pid: int) -> bool:
    """Whether a process is what it will be: a fork becomes its program after a while."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started(pid) > 2
    except OSError:
        return True


def started(pid: int) -> float:
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


#: What systemd says of a unit, by the number of the message.
STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
ENDED = ("7ad2d189f7e94e70a38c781354912448", "98e322203f7a4ed290d09fe03c09fe15")


def look_back(run: Run) -> tuple[float, Watched]:
    """Wall time and spans of a finished run. Notebooks follow one another: each process lives from
    the end of the one before to when it has left its notebook."""
    words = ["journalctl", "--quiet", "--no-pager", "--output=json"]
    journals = sorted(run.path.glob("box/upper/var/log/journal/*"))
    if not journals:
        print(f"{run.path}: no journal of its box; wanted: a run where it was made, not a copy")
        sys.exit(2)
    for folder in journals:
        words += ["--directory", str(folder)]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    units = ("runbook-", run.params.service.unit)
    seen = Watched(list(server_spans(map(json.loads, told.splitlines()), units)))
    began = end = (run.path / "params.yaml").stat().st_mtime
    for number, stage in enumerate(STAGES, 1):
        start, end = end, (run.path / f"{number:02}_{stage}.ipynb").stat().st_mtime
        seen.notebooks[stage] = (start, end)
    return (run.path / "production_v2.md").stat().st_mtime - began, seen


def server_spans(journal: Iterable[dict[str, str]], units: tuple[str, ...]) -> Iterator[Span]:
    """When each server lived: from the guard's word, or where there is none from the start of its
    unit, to its exit or to the last that its boot has told."""
    open_: dict[str, float] = {}
    boot, last = "", 0.0
    for line in journal:
        at, unit = int(line["__REALTIME_TIMESTAMP"]) / 1e6, line.get("UNIT", "")
        if line["_BOOT_ID"] != boot:
            yield from ((start, last) for start in open_.values())
            boot, open_ = line["_BOOT_ID"], {}
        last = at
        if line.get("_SYSTEMD_UNIT") in open_ and str(line["MESSAGE"]).startswith("guard: "):
            open_[line["_SYSTEMD_UNIT"]] = at
        if unit.startswith(units) and line.get("MESSAGE_ID") == STARTING:
            open_[unit] = at
        if unit in open_ and line.get("MESSAGE_ID") in ENDED:
            yield open_.pop(unit), at
    yield from ((start, last) for start in open_.values())


def covered(spans: Iterable[Span]) -> float:
    """Seconds in which at least one span lies."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def seconds_in_cells(path: Path) -> float:
    """What papermill noted for the cells of an executed notebook."""
    times = [
        [datetime.fromisoformat(cell.metadata.papermill[key]) for key in ("start_time", "end_time")]
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code" and cell.metadata.get("papermill", {}).get("end_time")
    ]
    return sum((end - start).total_seconds() for start, end in times)


def help_ms(rounds: int = 7) -> float:
    """Median processor time of ``runbook --help``."""
    spent = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([RUNBOOK, "--help"], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * statistics.median(spent)


def report(wall_s: float, seen: Watched, run: Path) -> float:
    """Print the split; returns the share of all else."""
    server_s = covered(seen.servers)
    rest = 1 - server_s / wall_s
    print(f"wall time                   {wall_s:7.1f} s")
    print(f"servers at work             {server_s:7.1f} s  {server_s / wall_s:6.1%}")
    print(f"all else                    {wall_s - server_s:7.1f} s  {rest:6.1%}")
    around_s = 0.0
    for stage, (start, stop) in seen.notebooks.items():
        (path,) = run.glob(f"0?_{stage}.ipynb")
        own_s = stop - start - seconds_in_cells(path)
        around_s += own_s
        print(f"  {stage:<26}{stop - start:7.1f} s, {own_s:.1f} s around its cells")
    print(f"papermill and kernels       {around_s:7.1f} s  {around_s / wall_s:6.1%}")
    return rest


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("params", nargs="?", default=str(ROOT / "params" / "rehearsal.yaml"))
    parser.add_argument("-p", dest="overrides", action="append", default=[])
    parser.add_argument("--run", type=Path, help="a finished run, instead of one of its own")
    given = parser.parse_args(words)
    if given.run:
        run = Run.open(given.run)
        return judge(report(*look_back(run), run.path))
    port = params.load(Path(given.params), given.overrides).server.port
    command = [str(RUNBOOK), "run", given.params, "--apply"]
    command += [word for one in given.overrides for word in ("-p", one)]
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        run_path, log = Path(folder, "run"), Path(folder, "log")
        began = time.monotonic()
        with log.open("wb") as out:
            runner = subprocess.Popen([*command, "--out", str(run_path)], stdout=out, stderr=out)
            seen = watch(runner, run_path, port)
        wall_s = time.monotonic() - began
        if runner.returncode not in (0, 1):
            print(log.read_text())
            return runner.returncode
        rest = report(wall_s, seen, run_path)
    return judge(rest)


def judge(rest: float) -> int:
    """Exit code, by the share of all else and by what ``--help`` needs."""
    spent_ms = help_ms()
    print(f"runbook --help              {spent_ms:7.0f} ms of processor time")
    return 0 if rest <= MOST_ELSE and spent_ms <= MOST_HELP_MS else 1


if __name__ == "__main__":
    sys.exit(main())
