"""The command line as a user runs it, and what must not be left of a run."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
RUNBOOK = Path(sys.executable).with_name("runbook")
REHEARSAL = ROOT / "params" / "rehearsal.yaml"

#: One block, short answers: a run of about a minute, for what is no matter of figures.
SHORT = (
    "benchmark.blocks=1",
    "benchmark.concurrencies=[1]",
    "benchmark.requests=2",
    "choose.mix=[{concurrency: 1, share: 1}]",
    "workload.output_tokens=8",
    "choose.expected=null",
    "choose.override={choose: ngram-lean, reason: a test of the chain, by: pytest}",
    "service.burst=8",
    "service.unproved=warn",  # one block tells nothing of the spread between lives
)


def runbook(*words, timeout_s=600, **options):
    """Run the command line to its end."""
    return subprocess.run(
        [RUNBOOK, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        check=False,
        **options,
    )


def start_runbook(*words, **options):
    """Start the command line in a session of its own; its output can be read line by line."""
    return subprocess.Popen(
        [RUNBOOK, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        **options,
    )


def overrides(*given):
    """``-p`` for each."""
    return [word for one in given for word in ("-p", one)]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for_line(process, text, timeout_s=300):
    """Read the output until a line holds ``text``; fails when it ends before."""
    deadline = time.monotonic() + timeout_s
    seen = []
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if not line:
            break
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"no line with {text!r} in:\n{''.join(seen)}")


def processes_about(text):
    """Command lines of living processes that hold ``text``, this one's own kin left out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if text in words and int(entry.name) != os.getpid():
                found.append(f"{entry.name}: {' '.join(words)}")
    return found


def wait_nothing_left(port, timeout_s=6.0):
    """No server on ``port`` and no process that names it, within the time promised."""
    deadline = time.monotonic() + timeout_s
    while left := processes_about(str(port)) or held(port):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def held(port):
    """Why ``port`` cannot be bound, if so; a process that ends loses its name before its port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return str(error)
    return None


def end(process, number=signal.SIGKILL):
    """End a process that a test started, if it still runs."""
    if process.poll() is None:
        process.send_signal(number)
        process.wait(60)
    process.stdout.close()


def short_parameters(folder, real=False, **server):
    """A parameters file for a short run on a port of its own.

    The server's own launcher, and behind it a stand-in for llama.cpp, or with ``real`` llama.cpp.
    """
    values = yaml.safe_load(REHEARSAL.read_text())
    values["server"].update({"port": free_port(), **server})
    if not real:
        model = folder / "standin.gguf"
        model.write_bytes(b"GGUF")
        values["server"]["model"] = str(model)
        values["server"]["env"]["PYTHONPATH"] = str(ROOT / "tests" / "standin_llamacpp")
    path = folder / "short.yaml"
    path.write_text(yaml.safe_dump(values))
    return path, values["server"]["port"]
