"""Launches of the stand-in server."""

import json
import sys
import time
import urllib.request
from pathlib import Path

from server_lives import free_port

from runbook.launch.spec import LaunchSpec

SERVER = Path(__file__).parent / "launch" / "standin_server.py"
ENV = {"PATH": "/usr/bin:/bin", "MODE": 'a "b" $c %d'}


def standin(*words: str, **fields) -> LaunchSpec:
    """A launch of the stand-in on a free port; ``words`` as the script takes them."""
    argv = (sys.executable, str(SERVER), str(free_port()), *words)
    return LaunchSpec(**{"argv": argv, "env": ENV, "cwd": "/", "nofile": 1024, **fields})


def ask(server, timeout_s: float = 10.0) -> dict:
    """What the stand-in says of itself, once it listens."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{server.spec.argv[2]}", timeout=5
            ) as answer:
                return json.load(answer)
        except OSError:
            assert time.monotonic() < deadline and server.alive(), server.log_tail()
            time.sleep(0.02)
