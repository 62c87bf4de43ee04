from __future__ import annotations

from collections.abc import Iterator

import pytest
from load_prompts import prompts
from paced_servers import started

from runbook.load import LoadPlan


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """The paced server, one event a stream every 5 ms."""
    with started() as url:
        yield url


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
