"""The two programs that judge the rule itself run, and say what they are for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.cells import to_csv

ROOT = Path(__file__).parents[2]


def run(program, *arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)


@pytest.fixture
def runs(tmp_path, session):
    """Five runs of the rehearsal's parameters with a clear gain and little noise."""
    folders = []
    for seed in range(5):
        folder = tmp_path / f"rehearsal-{seed}"
        folder.mkdir()
        gains = {"ngram-lean": {1: 1.3, 8: 0.9}, "ngram-wide": {1: 1.2, 8: 0.8}}
        (folder / "cells.csv").write_text(to_csv(session(gains, 3, 0.01, seed, base=(17, 33))))
        (folder / "params.yaml").write_text((ROOT / "params/rehearsal.yaml").read_text())
        folders.append(folder)
    return folders


def test_resampling_whole_blocks_counts_the_answers(runs):
    ended = run("resample.py", *runs)
    assert ended.returncode == 0, ended.stderr
    assert "455 re-sampled runs from 15 blocks" in ended.stdout  # 15 over 3: all of them
    assert float(re.search(r"([\d.]+) %  ngram-lean  <- expected", ended.stdout)[1]) > 95
    assert re.search(r"ngram-lean +15 +\+1[56]\.\d +0\.0\d+ +0\.0\d+ +0\.0\d+", ended.stdout)


def test_resampling_refuses_what_it_cannot_use(runs, tmp_path):
    (tmp_path / "empty").mkdir()
    ended = run("resample.py", runs[0], tmp_path / "empty")
    assert ended.returncode == 2 and "cells.csv does not exist" in ended.stderr
    assert run("resample.py", runs[0], "--blocks", 4).returncode == 2


def test_the_simulation_prints_false_alarms_and_power():
    ended = run("choice.py", "--sessions", "4")
    assert ended.returncode == 0, ended.stderr
    for part in (
        "false alarms",
        "power",
        "looks (margin 2 %",
        "95 % as long as that sd is at most 0.029",
    ):
        assert part in ended.stdout
