"""The verb ``facts``: its exit codes, its JSON, and a folder captured here and read again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.verify_stack.commands import host_facts

ROOT = Path(__file__).parents[2]
HOSTS = ROOT / "tests" / "cases" / "hosts"
PRODUCTION = ROOT / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml"
REHEARSAL = ROOT / "params" / "rehearsal.yaml"
RUNBOOK = Path(sys.executable).with_name("runbook")


def facts(*words):
    return subprocess.run(
        [RUNBOOK, "facts", *map(str, words)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["eight-cards", "mig-on-one-card", "no-driver"])
@pytest.mark.parametrize("given", [(), (PRODUCTION,)], ids=["alone", "production"])
def test_the_exit_code_is_the_verdict(name, given):
    right = json.loads((HOSTS / name / "expected.json").read_text())
    said = facts(*given, "--from", HOSTS / name)
    assert said.returncode == right["exit" if given else "exit_without_parameters"], said.stderr
    shown = json.loads(said.stdout)
    assert set(shown) == {"facts", "checks", "verdict", "fingerprints", "readings"}
    assert (
        said.stderr.splitlines()[-1]
        == f"VERDICT {'NO' if said.returncode else 'ok'}: " + (shown["verdict"]["text"])
    )


def test_what_did_not_pass_is_told_in_words_with_its_fix():
    said = facts("--from", HOSTS / "mig-on-one-card")
    assert "fail     mig: GPU 3: Enabled (sudo nvidia-smi -i INDEX -mig 0" in said.stderr
    assert facts("--from", HOSTS / "mig-on-one-card", "--json").stderr.count("\n") == 1


def test_what_was_not_captured_is_unknown(tmp_path):
    (tmp_path / "nvcc-version.txt").write_text("bash: nvcc: command not found\n")
    said = facts(PRODUCTION, "--from", tmp_path, "-p", "stack.checks={nccl: off}")
    shown = {check["name"]: check["status"] for check in json.loads(said.stdout)["checks"]}
    assert {shown[name] for name in ("gpus", "mig", "topology", "model", "port")} == {"unknown"}
    assert shown["nccl"] == "skipped"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "absent"], "absent is no folder"),
        (["--from", "{tmp}"], "holds none of the captured files"),
        (["--from", "x", "--capture", "y"], "both --from and --capture"),
        (["absent.yaml"], "No such file"),
        ([PRODUCTION, "--from", "{tmp}", "-p", "stack.checks={topologie: off}"], "topology"),
    ],
)
def test_bad_input_ends_with_2(words, said, tmp_path):
    done = facts(*(str(word).replace("{tmp}", str(tmp_path)) for word in words))
    assert done.returncode == 2 and said in done.stderr and not done.stdout


def test_json_that_is_none_is_bad_input_where_nothing_else_was_captured(tmp_path):
    (tmp_path / "python-packages.json").write_text('{"sglang": "0.5.10"')
    done = facts(PRODUCTION, "--from", tmp_path)
    assert done.returncode == 2 and "python-packages.json" in done.stderr
    (tmp_path / "proc-cmdline.txt").write_text("root=/dev/vda1 ro iommu=pt\n")
    done = facts(PRODUCTION, "--from", tmp_path)
    told = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    assert told["iommu"]["status"] == "pass"
    assert "python-packages.json" in told["engine_version"]["found"]


def test_captured_here_it_reads_the_same(tmp_path):
    live = facts("--capture", tmp_path / "here")
    again = facts("--from", tmp_path / "here")
    assert {path.name for path in (tmp_path / "here").iterdir()} == {
        fact.file for fact in host_facts()
    }
    one, other = json.loads(live.stdout), json.loads(again.stdout)
    assert (one["checks"], one["fingerprints"]) == (other["checks"], other["fingerprints"])
    assert live.returncode == again.returncode


def test_a_deployment_is_captured_with_what_its_interpreters_told(tmp_path):
    overrides = ("-p", "host.kind=local", "-p", f"server.model={REHEARSAL}")
    live = facts(REHEARSAL, "--capture", tmp_path, *overrides)
    packages = json.loads((tmp_path / "python-packages.json").read_text())
    assert packages["xllamacpp"]
    again = facts(REHEARSAL, "--from", tmp_path, *overrides)
    one, other = (
        {check["name"]: check for check in json.loads(said.stdout)["checks"]}
        for said in (live, again)
    )
    for name in ("interpreter", "engine_version", "model", "sitecustomize", "limits", "memory"):
        assert one[name] == other[name] and one[name]["status"] != "unknown"
    assert other["port"]["status"] == "unknown"
