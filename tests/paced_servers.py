"""Starts the paced server of ``tests/load``."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER = Path(__file__).parent / "load" / "paced_server.py"


@contextmanager
def started(*options: str) -> Iterator[str]:
    """A paced server of its own; yields its URL."""
    command = [sys.executable, str(SERVER), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()
