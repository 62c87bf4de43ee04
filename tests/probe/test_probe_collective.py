"""The trial all-reduce: real processes with a stand-in torch, which answers, hangs, breaks or
brings what was not sent."""

import json
import time
from pathlib import Path

import pytest
from test_probe_serving import BASE, ENV

from runbook.hosts.local import LocalHost
from runbook.launch.spec import LaunchSpec
from runbook.probe.ask import Questions, ask_serving

SMI = """#!/bin/sh
case "$1" in
  *utilization*) printf '0, 100\\n1, 3\\n' ;;
  *) printf '0, 5, 16\\n1, 4, 16\\n' ;;
esac
"""


@pytest.fixture
def trial(tmp_path):
    site, own = Path(__file__).parents[1] / "standin_host" / "site", tmp_path / "tmp"
    own.mkdir()
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "marks").mkdir()

    def ask(limit_s=30.0, gpus=2, path=f"{tmp_path}:{ENV['PATH']}", **env):
        places = {"PYTHONPATH": str(site), "STANDIN_MARKS": str(tmp_path / "marks")}
        places |= {"TMPDIR": str(own), "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        spec = LaunchSpec((BASE, "-m", "server"), {**ENV, **places, **env}, "/")
        questions = Questions(gpus=gpus, limit_s=limit_s)
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
    assert (told["wrong"], told["compared"]) == ([], 2 * (1 + 3 * 4 + 3))
    assert told["links"][1] == {
        "index": "1",
        "pcie.link.gen.current": "4",
        "pcie.link.width.current": "16",
    }
    assert (told["said"], told["busy_after"]) == ("", ["0"])


def test_one_that_hangs_is_ended_in_time_and_all_with_it(trial):
    begun = time.monotonic()
    found, ranks = trial(limit_s=2.0, STANDIN_HANGS="1")
    told = found.facts["collective"]
    assert ranks == 2 and time.monotonic() - begun < 30
    assert (told["us"], told["busy_after"]) == ({}, ["0"])


def test_one_that_breaks_ends_the_trial_with_its_words(trial):
    told = trial(STANDIN_BREAKS="0")[0].facts["collective"]
    assert told["us"] == {}
    assert told["said"] == "RuntimeError: NCCL error: unhandled system error"


def test_without_nvidia_smi_the_links_are_not_told(trial):
    told = trial(path=ENV["PATH"])[0].facts["collective"]
    assert told["us"] and told["links"] == told["busy_after"] == []


#: What is wrong, and what is told of it.
WRONG = {
    "everywhere": ({"own": True}, 2 * 4 + 2 * 3),
    "the sum on one rank": ({"sender": None, "rank": 1, "at": 700}, 3),
    "one size": ({"sender": None, "elements": 65537, "at": 65536}, 2),
    "one direction of one pair": ({"sender": 1, "rank": 0, "at": 12}, 3),
    "one direction and size": ({"sender": 0, "rank": 1, "elements": 4194301, "at": 4194300}, 1),
}


@pytest.mark.parametrize(("wrong", "times"), WRONG.values(), ids=WRONG)
def test_what_was_not_sent_is_told_by_rank_size_and_sender(trial, wrong, times):
    told = trial(STANDIN_WRONG=json.dumps(wrong))[0].facts["collective"]
    assert len(told["wrong"]) == times
    for one in told["wrong"]:
        assert one["rank"] == wrong.get("rank", one["rank"])
        assert one["elements"] == wrong.get("elements", one["elements"])
        assert one["sender"] == wrong.get("sender", one["sender"])
        assert one["at"] == wrong.get("at", 0)
        assert one["found"] != one["wanted"]
    assert told["us"], "the times are told all the same"


def test_every_direction_of_every_pair_is_compared(trial):
    told = trial(gpus=4, STANDIN_WRONG=json.dumps({"elements": 1023, "at": 3}))[0]
    pairs = {(one["sender"], one["rank"]) for one in told.facts["collective"]["wrong"]}
    sums = {(None, rank) for rank in range(4)}
    assert pairs == sums | {(a, b) for a in range(4) for b in range(4) if a != b}
