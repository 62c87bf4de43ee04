"""Interrupted at any point: nothing is left, the to-do list is true, finished cells are kept."""

import csv
import json
import random
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from boxes import need_box, orphans
from command import (
    SHORT,
    end,
    overrides,
    processes_about,
    runbook,
    short_parameters,
    start_runbook,
    wait_for_line,
    wait_nothing_left,
)

from runbook.run import Run


def step_of(folder, name):
    return Run.open(folder).step(name)


def cells_of(folder):
    with (folder / "cells.csv").open() as file:
        return list(csv.DictReader(file))


def kill_a_server_at_work(out, port):
    """Kill the next server once it has answered a request; returns its configuration's name."""
    measured = len(requests_of(out))
    deadline = time.monotonic() + 120
    while len(requests_of(out)) == measured:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for entry in processes_about(str(port)):
        if "serve_llamacpp" in entry:
            subprocess.run(["kill", "-9", entry.split(":")[0]], check=False)
    return requests_of(out)[measured]["config"]


def requests_of(folder):
    lines = (folder / "requests.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


@pytest.fixture
def short(tmp_path):
    need_box(tmp_path)
    path, port = short_parameters(tmp_path)
    return path, port, tmp_path / "run"


def start_short(short, *more):
    path, _, out = short
    return start_runbook("run", path, "--out", out, *overrides(*SHORT), *more)


@pytest.mark.parametrize(
    ("number", "code", "status"),
    [
        (signal.SIGINT, 130, "failed"),
        (signal.SIGTERM, 143, "failed"),
        (signal.SIGKILL, -9, "interrupted"),
    ],
    ids=["ctrl-c", "sigterm", "sigkill"],
)
def test_a_runner_that_is_ended_in_the_benchmark(short, number, code, status):
    path, port, out = short
    before = set(orphans())
    runner = start_short(short, "--to", "benchmark")
    try:
        wait_for_line(runner, "[1/3]")
        assert processes_about(str(port))
        time.sleep(random.uniform(0, 1.5))  # whatever it is at
        runner.send_signal(number)
        assert runner.wait(60) == code
    finally:
        end(runner)
    wait_nothing_left(port)
    assert not set(orphans()) - before
    step = step_of(out, "benchmark")
    assert step.status == status
    if status == "failed":
        assert number.name in step.reason
    for book in out.glob("*.ipynb"):
        nbformat.read(book, as_version=4)
    assert not [left for left in out.iterdir() if left.name.startswith(".executing")]
    finished = {(row["config"], row["concurrency"]): row["life"] for row in cells_of(out)}
    assert finished
    begun = {(one["config"], str(one["concurrency"])) for one in requests_of(out)}
    assert len(begun - {*finished}) <= 1, "more than the cell at work was lost"

    go_on = ("run", path, "--resume", "--out", out, "--to", "benchmark", *overrides(*SHORT))
    if number == signal.SIGINT:
        verified = (out / "stack.json").read_text()
        elsewhere = verified.replace('"release": "', '"release": "5.4-')
        (out / "stack.json").write_text(elsewhere)
        moved = runbook(*go_on)
        assert moved.returncode == 1, moved.stderr
        assert "not the one that was verified: kernel 5.4-" in moved.stderr
        assert f"--from verify_stack --out {out}" in moved.stderr
        (out / "stack.json").write_text(verified)
    resumed = runbook(*go_on)
    assert resumed.returncode == 0, resumed.stderr
    assert "01_verify_stack" not in resumed.stdout
    assert step_of(out, "benchmark").status == "completed"
    after = {(row["config"], row["concurrency"]): row["life"] for row in cells_of(out)}
    assert len(after) == 3
    assert {cell: after[cell] for cell in finished} == finished, "a finished cell was repeated"


def test_a_second_run_in_the_same_folder_is_refused(short):
    path, port, out = short
    runner = start_short(short, "--to", "benchmark")
    try:
        wait_for_line(runner, "benchmark:")
        second = runbook("run", path, "--resume", "--out", out, *overrides(*SHORT))
        assert second.returncode == 2
        assert str(runner.pid) in second.stderr
        assert runner.poll() is None
    finally:
        end(runner, signal.SIGTERM)
    wait_nothing_left(port)


def test_a_port_in_use_is_named_and_left_alone(short):
    path, port, out = short
    script = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(99)"
    with subprocess.Popen([sys.executable, "-c", script]) as holder:
        time.sleep(0.5)
        ended = runbook("run", path, "--out", out, *overrides(*SHORT))
        assert ended.returncode == 1, ended.stderr
        assert f"{holder.pid}" in ended.stdout + ended.stderr
        assert holder.poll() is None
        holder.kill()
    assert step_of(out, "verify_stack").status == "failed"
    assert step_of(out, "benchmark").status == "pending"


def test_a_server_that_dies_costs_its_own_cells_alone(short):
    path, port, out = short
    refused = runbook("check", path, "-p", "configurations[name=ngram-wide].args=[--no-such]")
    assert refused.returncode == 2
    assert "--no-such" in refused.stderr

    runner = start_short(short, "--to", "benchmark", "-p", "benchmark.requests=6")
    try:
        wait_for_line(runner, "[1/3]")
        victim = kill_a_server_at_work(out, port)
        out_text, _ = runner.communicate(timeout=300)
        assert runner.returncode == 1, out_text
    finally:
        end(runner)
    wait_nothing_left(port)
    rows = cells_of(out)
    assert {row["config"] for row in rows if row["status"] == "server_died"} == {victim}
    others = [row for row in rows if row["config"] != victim]
    assert len(others) == 2
    assert {row["status"] for row in others} == {"ok"}
    assert step_of(out, "benchmark").status == "failed"
    assert "FAILED at benchmark" in (out / "production_v2.md").read_text()
