"""What SGLang's own parser answered, as the probe tells it, and what the checks make of it."""

import json
import sys
from pathlib import Path

import pytest

from runbook import probe
from runbook.engines.sglang.info import read_info
from runbook.engines.sglang.observed import Asked
from runbook.engines.sglang.options import read_options
from runbook.engines.sglang.parsed import check_as_parsed, check_parsed
from runbook.hosts.local import LocalHost
from runbook.launch.spec import LaunchSpec
from runbook.probe.ask import Questions, ask_serving

BASELINE = Asked("baseline", read_options([]), None)
WORDS = [
    *("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3"),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "8"),
]
EAGLE = Asked("eagle3-topk1-spec-v2", read_options(WORDS), "v2")
RESOLVED = {
    "model_path": "/m",
    "speculative_algorithm": "EAGLE3",
    "speculative_eagle_topk": 1,
    "speculative_num_steps": 3,
    "speculative_num_draft_tokens": 8,
    "disable_overlap_schedule": False,
    "attention_backend": "triton",
}
PLAIN = {"resolved": {"model_path": "/m", "speculative_algorithm": None}, "said": []}


def judge(answer, asked=EAGLE):
    check, *_ = check_parsed([asked], {asked.name: answer})
    return check.status, check.found


def test_taken_as_asked():
    both = {"baseline": PLAIN, EAGLE.name: {"resolved": RESOLVED, "said": []}}
    (check,) = check_parsed([BASELINE, EAGLE], both)
    assert check.status == "pass"
    assert "baseline, eagle3-topk1-spec-v2" in check.found


def test_a_refusal_fails_with_the_parsers_own_words():
    words = "sglang serve: error: unrecognized arguments: --speculative-eagle-topkk 4"
    assert judge({"refused": words, "said": [words]}) == (
        "fail",
        f"eagle3-topk1-spec-v2: {words}",
    )


def test_a_changed_value_warns_and_a_changed_algorithm_fails():
    changed = {**RESOLVED, "speculative_num_draft_tokens": 4}
    status, found = judge({"resolved": changed, "said": []})
    assert status == "warn"
    assert "effective 4, asked 8" in found
    assert judge({"resolved": {**RESOLVED, "speculative_algorithm": None}, "said": []})[0] == "fail"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("Spec v1 is used for eagle/eagle3 speculative decoding", "fail"),
        ("Spec v2 is enabled by default for eagle/eagle3", "pass"),
    ],
)
def test_the_worker_that_the_parser_names_before_anything_starts(said, status):
    untold = {**RESOLVED, "disable_overlap_schedule": None}
    assert judge({"resolved": untold, "said": [said]})[0] == status


@pytest.mark.parametrize(("version", "found"), [("0.5.12", "v1"), ("0.5.23", "v2")])
def test_without_overlap_the_release_tells_the_worker(version, found):
    answer = {"resolved": {**RESOLVED, "disable_overlap_schedule": True}, "said": []}
    (check,) = check_parsed([EAGLE], {EAGLE.name: answer}, version)
    assert (check.status, check.found) == ("fail", f"{EAGLE.name}: worker: {found}")


def test_what_cannot_be_told_is_unknown():
    why = "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) is available."
    assert judge({"unknown": why, "said": []}) == ("unknown", f"eagle3-topk1-spec-v2: {why}")
    assert check_parsed([EAGLE], None)[0].status == "unknown"
    assert check_parsed([EAGLE], {})[0].status == "unknown"


def test_a_server_that_runs_otherwise_than_parsed_is_named():
    running = {**RESOLVED, "version": "0.5.12", "attention_backend": "flashinfer"}
    check = check_as_parsed(read_info(running), read_info(RESOLVED))
    assert (check.status, check.found) == ("warn", "attention_backend flashinfer, parsed triton")
    assert check_as_parsed(read_info(RESOLVED), read_info(RESOLVED)).status == "pass"


PARSER = """
import argparse
class Args:
    def __init__(self, values):
        self.__dict__.update(values, api_key="s3cret", nested={"a": 1})
        if self.topk == 4:
            raise ValueError("Spec v2 currently only supports topk = 1")
        if self.topk == 5:
            raise RuntimeError("No accelerator")
def prepare_server_args(argv):
    parser = argparse.ArgumentParser(prog="sglang serve")
    parser.add_argument("--topk", type=int)
    print("adjusted")
    return Args(vars(parser.parse_args(argv)))
"""


@pytest.fixture
def ask(tmp_path):
    package = tmp_path / "sglang" / "srt"
    package.mkdir(parents=True)
    (package / "server_args.py").write_text(PARSER)
    env = {"PYTHONPATH": str(tmp_path)}

    def answers(**launches):
        spec = LaunchSpec((sys.executable, "-m", "sglang.launch_server"), env, "/")
        argv = {name: [*spec.argv, *words] for name, words in launches.items()}
        return ask_serving(LocalHost(), spec, Questions(launches=argv), "sglang_arguments")

    return answers


def test_the_probe_tells_each_command_line_apart(ask):
    told = ask(good=["--topk", "1"], bad=["--topkk", "1"], refused=["--topk=4"], no=["--topk=5"])
    facts = told.facts["arguments"]
    assert facts["good"] == {"resolved": {"topk": 1}, "said": ["adjusted"]}
    assert facts["bad"]["refused"].endswith("error: unrecognized arguments: --topkk 1")
    assert facts["refused"]["refused"] == "ValueError: Spec v2 currently only supports topk = 1"
    assert facts["no"]["unknown"] == "RuntimeError: No accelerator"
    assert "s3cret" not in json.dumps(facts)


def test_without_sglang_the_reason_is_said():
    spec = LaunchSpec((sys.executable, "-m", "sglang.launch_server"), {}, "/")
    told = ask_serving(LocalHost(), spec, Questions(launches={"a": spec.argv}), "sglang_arguments")
    assert "SGLang's parser cannot be had: ModuleNotFoundError" in told.why_unknown("arguments")
    assert Path(probe.__file__).with_name("sglang_arguments.py").exists()
