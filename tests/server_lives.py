"""Real servers, started from their launch specs as plain processes."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from runbook.engines.llamacpp import LlamaCpp
from runbook.params import Params, load

REHEARSAL = Path(__file__).parents[1] / "params" / "rehearsal.yaml"
EDIT = """Repeat this code with the function renamed to total_price, change nothing else:

def compute(items, tax_rate, discount):
    subtotal = sum(item.price * item.quantity for item in items)
    discounted = subtotal - subtotal * discount
    return discounted + discounted * tax_rate
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Life:
    """One server process, its URL and its log."""

    process: subprocess.Popen
    url: str
    log: Path

    def alive(self) -> bool:
        return self.process.poll() is None

    def terminate(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        started = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(30), time.monotonic() - started


def complete(url: str, prompt: str = EDIT, tokens: int = 48, key: str | None = None) -> dict:
    answer = httpx.post(
        f"{url}/v1/chat/completions",
        json={
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0,
        },
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=60,
        trust_env=False,
    )
    answer.raise_for_status()
    return answer.json()


@pytest.fixture(scope="session")
def rehearsal() -> Params:
    params = load(REHEARSAL, [f"server.port={free_port()}"])
    LlamaCpp().prepare(params, print)
    return params


@pytest.fixture
def start(tmp_path):
    """``start(spec)`` runs a launch spec; whatever still runs at the end of the test is ended."""
    with contextlib.ExitStack() as ends:

        def run(spec, credentials: Path | None = None) -> Life:
            log = tmp_path / f"server-{len(list(tmp_path.iterdir()))}.log"
            env = dict(spec.env)
            if credentials:
                env["CREDENTIALS_DIRECTORY"] = str(credentials)
            with log.open("wb") as out:
                process = subprocess.Popen(
                    spec.argv, env=env, cwd=spec.cwd, stdout=out, stderr=subprocess.STDOUT
                )
            ends.callback(_end, process)
            port = spec.argv[spec.argv.index("--port") + 1]
            return Life(process, f"http://127.0.0.1:{port}", log)

        yield run


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
