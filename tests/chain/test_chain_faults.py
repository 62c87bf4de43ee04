"""Interrupted at any point: nothing is left, the to-do list is true, finished cells are kept."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys

import nbformat
import pytest
from boxes import need_box, orphans, wait_until
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

#: Answers of a second each, so that a cell at work is found at work.
BENCHMARK = (*SHORT, "workload.output_tokens=100")


def step_of(folder, name):
    return Run.open(folder).step(name)


def cells_of(folder):
    with (folder / "cells.csv").open() as file:
        return list(csv.DictReader(file))


def requests_of(folder):
    path = folder / "requests.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def wait_for_requests(folder, more_than):
    """Until a cell has sent and noted a request beyond so many."""
    wait_until(lambda: len(requests_of(folder)) > more_than, 120)


@pytest.fixture
def short(tmp_path):
    need_box(tmp_path)
    path, port = short_parameters(tmp_path)
    return path, port, tmp_path / "run"


@pytest.fixture(scope="module")
def verified(tmp_path_factory):
    """A run whose stack is verified and which has measured nothing yet."""
    folder = tmp_path_factory.mktemp("verified")
    need_box(folder)
    path, port = short_parameters(folder)
    words = ("run", path, "--out", folder / "run", "--to", "verify_stack", *overrides(*BENCHMARK))
    ended = runbook(*words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return path, port, folder / "run"


@pytest.fixture
def copied(verified, tmp_path):
    path, port, folder = verified
    shutil.copytree(folder, tmp_path / "run", ignore=shutil.ignore_patterns("box"))
    return path, port, tmp_path / "run"


def go_on(path, out):
    return ["run", path, "--resume", "--out", out, "--to", "benchmark", *overrides(*BENCHMARK)]


@pytest.mark.parametrize(
    ("number", "code", "status", "at"),
    [
        (signal.SIGINT, 130, "failed", "a cell"),
        (signal.SIGTERM, 143, "failed", "a start"),
        (signal.SIGKILL, -9, "interrupted", "a cell"),
    ],
    ids=["ctrl-c", "sigterm", "sigkill"],
)
def test_a_runner_that_is_ended_in_the_benchmark(copied, number, code, status, at):
    """At a cell: its requests are under way. At a start: the cell before has just ended."""
    path, port, out = copied
    before = set(orphans())
    runner = start_runbook(*go_on(path, out))
    try:
        wait_for_line(runner, "[1/3]")
        if at == "a cell":
            wait_for_requests(out, len(requests_of(out)))
        assert processes_about(str(port)) or at == "a start"
        runner.send_signal(number)
        assert runner.wait(60) == code
    finally:
        end(runner)
    wait_nothing_left(port)
    wait_until(lambda: not set(orphans()) - before, 10)  # those of other tests end soon
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

    if number == signal.SIGINT:
        verified = (out / "stack.json").read_text()
        elsewhere = verified.replace('"release": "', '"release": "5.4-')
        (out / "stack.json").write_text(elsewhere)
        moved = runbook(*go_on(path, out))
        assert moved.returncode == 1, moved.stderr
        assert "not the one that was verified: kernel 5.4-" in moved.stderr
        assert f"--from verify_stack --out {out}" in moved.stderr
        (out / "stack.json").write_text(verified)
    resumed = runbook(*go_on(path, out))
    assert resumed.returncode == 0, resumed.stderr
    assert "01_verify_stack" not in resumed.stdout
    assert step_of(out, "benchmark").status == "completed"
    after = {(row["config"], row["concurrency"]): row["life"] for row in cells_of(out)}
    assert len(after) == 3
    assert {cell: after[cell] for cell in finished} == finished, "a finished cell was repeated"


def ignore_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_a_runner_in_the_background_of_a_script_ends_by_sigterm_alone(copied):
    """A shell starts it with SIGINT ignored: a Ctrl-C at the script is not meant for it."""
    path, port, out = copied
    before = set(orphans())
    runner = start_runbook(*go_on(path, out), preexec_fn=ignore_interrupts)
    try:
        wait_for_line(runner, "[1/3]")
        os.killpg(runner.pid, signal.SIGINT)
        wait_for_line(runner, "[2/3]")
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(60) == 143
    finally:
        end(runner)
    wait_nothing_left(port)
    wait_until(lambda: not set(orphans()) - before, 10)  # those of other tests end soon
    step = step_of(out, "benchmark")
    assert (step.status, step.reason) == ("failed", "interrupted by SIGTERM")
    assert len(cells_of(out)) >= 2


def test_a_second_run_in_the_same_folder_is_refused(copied):
    path, port, out = copied
    runner = start_runbook(*go_on(path, out))
    try:
        wait_for_line(runner, "benchmark:")
        second = runbook(*go_on(path, out))
        assert second.returncode == 2
        assert str(runner.pid) in second.stderr
        assert runner.poll() is None
    finally:
        end(runner, signal.SIGTERM)
    wait_nothing_left(port)


HOLD = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
time.sleep(600)
"""


def test_a_port_in_use_is_named_and_left_alone(short):
    path, port, out = short
    words = [sys.executable, "-c", HOLD, str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "listening\n"
            ended = runbook("run", path, "--out", out, *overrides(*SHORT))
            assert ended.returncode == 1, ended.stderr
            assert f"{holder.pid}" in ended.stdout + ended.stderr
            assert holder.poll() is None
        finally:
            holder.kill()
    assert step_of(out, "verify_stack").status == "failed"
    assert step_of(out, "benchmark").status == "pending"


def test_a_server_that_dies_costs_its_own_cells_alone(copied):
    path, port, out = copied
    refused = runbook("check", path, "-p", "configurations[name=ngram-wide].args=[--no-such]")
    assert refused.returncode == 2
    assert "--no-such" in refused.stderr

    runner = start_runbook(*go_on(path, out))
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


def kill_a_server_at_work(out, port):
    """Kill the next server once it has answered a request; returns its configuration's name."""
    measured = len(requests_of(out))
    wait_for_requests(out, measured)
    for entry in processes_about(str(port)):
        if "serve_llamacpp" in entry:
            os.kill(int(entry.split(":")[0]), signal.SIGKILL)
    return requests_of(out)[measured]["config"]
