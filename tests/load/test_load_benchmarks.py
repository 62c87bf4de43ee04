"""The benchmarks of the client, in little: they run, and print what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def run(name: str, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, FOLDER / name, *options], capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, 1), done.stderr
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_the_cost_stands_beside_that_of_other_clients() -> None:
    sizes = ("--rounds", "1", "--streams", "5", "--events", "8", "--records", "20")
    code, said = run("client_cost.py", *sizes)
    assert code == 0
    for name in ("ours", "stdlib", "httpx"):
        assert re.search(rf"^{name} +[0-9.]+ ms CPU / 1000 events", said, re.MULTILINE), said
    assert "aiohttp" in said and "MiB by 1000 records" in said


def test_the_error_of_its_times_is_told_also_with_a_core_taken() -> None:
    code, said = run("client_truth.py", "--streams", "5", "--events", "8", "--requests", "10")
    found = re.findall(r"(\w+) token p50 (-?[0-9.]+) ms, p99", said)
    assert [kind for kind, _ in found] == ["first", "last", "first", "last"]
    assert all(0 <= float(value) < 1000 for _, value in found)
    assert "one core taken: " in said and said.splitlines()[-1].startswith(("true", "not true"))
    assert (code == 0) == said.splitlines()[-1].startswith("true")
