"""The trial all-reduce: real processes with a stand-in torch, which answers, hangs or breaks."""

import time
from pathlib import Path

import pytest
from test_probe_serving import BASE, ENV

from runbook.hosts.local import LocalHost
from runbook.launch.spec import LaunchSpec
from runbook.probe.ask import Questions, ask_serving

TORCH = """
import os, time
from types import SimpleNamespace
float16 = None
ones = lambda *words, **named: None
tensor = lambda values, **named: SimpleNamespace(item=lambda: 2)
cuda = SimpleNamespace(set_device=lambda rank: None, synchronize=lambda: None)
"""
DISTRIBUTED = """
import os, time
init_process_group = lambda backend: open(f"{os.environ['MARKS']}/{os.getpid()}", "w").close()
broadcast = lambda value, source: time.sleep(1.5)
destroy_process_group = lambda: None
def all_reduce(data):
    print("node7:1:1 [0] NCCL INFO says something", flush=True)
    if os.environ["RANK"] == os.environ.get("HANGS"):
        time.sleep(600)
    if os.environ["RANK"] == os.environ.get("BREAKS"):
        raise RuntimeError("NCCL error: unhandled system error")
"""
SMI = """#!/bin/sh
case "$1" in
  *utilization*) printf '0, 100\\n1, 3\\n' ;;
  *) printf '0, 5, 16\\n1, 4, 16\\n' ;;
esac
"""


@pytest.fixture
def trial(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    (tmp_path / "torch" / "distributed.py").write_text(DISTRIBUTED)
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "marks").mkdir()

    def ask(limit_s=30.0, path=f"{tmp_path}:{ENV['PATH']}", **env):
        places = {"PYTHONPATH": str(tmp_path), "MARKS": str(tmp_path / "marks"), "PATH": path}
        spec = LaunchSpec((BASE, "-m", "server"), {**ENV, **places, **env}, "/")
        questions = Questions(gpus=2, limit_s=limit_s)
        found = ask_serving(LocalHost(), spec, questions, "collective")
        ranks = [int(mark.name) for mark in (tmp_path / "marks").iterdir()]
        assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
        return found, len(ranks)

    return ask


def test_times_and_links_under_load_are_told(trial):
    found, ranks = trial()
    assert (found.reason, ranks) == ("", 2)
    told = found.facts["collective"]
    assert list(told["us"]) == ["32768", "262144", "33554432"]
    assert all(us > 0 for us in told["us"].values())
    assert told["links"][1] == {
        "index": "1",
        "pcie.link.gen.current": "4",
        "pcie.link.width.current": "16",
    }
    assert (told["said"], told["busy_after"]) == ("", ["0"])


def test_one_that_hangs_is_ended_in_time_and_all_with_it(trial):
    begun = time.monotonic()
    found, ranks = trial(limit_s=2.0, HANGS="1")
    told = found.facts["collective"]
    assert ranks == 2 and time.monotonic() - begun < 30
    assert (told["us"], told["busy_after"]) == ({}, ["0"])


def test_one_that_breaks_ends_the_trial_with_its_words(trial):
    told = trial(BREAKS="0")[0].facts["collective"]
    assert told["us"] == {}
    assert told["said"] == "RuntimeError: NCCL error: unhandled system error"


def test_without_nvidia_smi_the_links_are_not_told(trial):
    told = trial(path=ENV["PATH"])[0].facts["collective"]
    assert told["us"] and told["links"] == told["busy_after"] == []
