from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from load_prompts import prompts

from runbook.load import LoadPlan


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """The paced server, one event a stream every 5 ms."""
    with started() as url:
        yield url


@contextlib.contextmanager
def started(*options: str) -> Iterator[str]:
    """A paced server of its own."""
    script = Path(__file__).with_name("paced_server.py")
    command = [sys.executable, str(script), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


@pytest.fixture
def slow_server_url() -> Iterator[str]:
    """A server of this test alone, one event a stream every 50 ms."""
    with started("--step-ms", "50") as url:
        yield url


@pytest.fixture
def plan_of(server_url: str):
    """A plan for the paced server; ``extra`` fields choose the shape of the answers."""

    def plan(requests: int = 1, concurrency: int = 1, output_tokens: int = 8, **fields) -> LoadPlan:
        options = {"request_timeout_s": 20.0, "prompts": prompts(100), "url": server_url}
        own = {
            name: fields.pop(name)
            for name in list(fields)
            if name in (*options, "api_key_file", "arrivals_s")
        }
        return LoadPlan(
            model="m",
            requests=requests,
            concurrency=concurrency,
            output_tokens=output_tokens,
            extra=fields,
            **(options | own),
        )

    return plan
