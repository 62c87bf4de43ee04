"""The stand-in kernels, and the parsers of two releases, under the Python that has SGLang."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from runbook import params, verify_stack
from runbook.engines import engine_for
from runbook.hosts.local import LocalHost
from runbook.rehearsal import sglang_on_cpu

ROOT = Path(__file__).parents[2]
REHEARSAL = ROOT / "params" / "rehearsal-sglang.yaml"
PRODUCTION = ROOT / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml"
#: The release that the production parameters are for, laid beside the installed one.
OLD = ROOT / ".venv-sglang" / "sglang-0.5.10.post1"


def test_the_models_are_whole_and_sglang_is_installed():
    sglang_on_cpu.require()


def test_the_stand_in_kernels_compute_what_the_plainest_code_computes():
    kernels = Path(__file__).with_name("kernels.py")
    done = subprocess.run(
        [sglang_on_cpu.interpreter(), str(kernels)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "all agree\n", done.stderr


def arguments_of(parameters):
    """The checks ``sglang_arguments`` and what was resolved, by configuration."""
    engine = engine_for(parameters.server)
    specs = {one.name: engine.launch_spec(parameters, one) for one in parameters.configurations}
    report = verify_stack.verify(parameters, LocalHost(), specs, engine)
    checks = [check for check in report.checks if check.name == "sglang_arguments"]
    return checks, report.facts.parsed()


def changed(path, folder, change):
    """Parameters of a file after ``change`` has worked on its values."""
    values = yaml.safe_load(path.read_text())
    values["host"] = {"kind": "local"}
    values["workload"]["prompts"] = "builtin"
    values["workload"]["mix"] = {"edit": 1}
    change(values)
    file = folder / "changed.yaml"
    file.write_text(yaml.safe_dump(values))
    return params.load(file)


def test_the_installed_release_resolves_refuses_and_adjusts(tmp_path):
    def change(values):
        names = {one["name"]: one for one in values["configurations"]}
        names["eagle3-topk1"]["args"][-1] = "8"
        names["eagle3-topk4"]["args"].append("--speculative-eagle-topkk=4")

    checks, parsed = arguments_of(changed(REHEARSAL, tmp_path, change))
    assert parsed["baseline"]["resolved"]["speculative_algorithm"] is None
    assert parsed["eagle3-topk1"]["resolved"]["speculative_num_draft_tokens"] == 4
    said = {check.found.partition(":")[0]: check for check in checks}
    assert said["eagle3-topk4"].status == "fail"
    assert "unrecognized arguments: --speculative-eagle-topkk" in said["eagle3-topk4"].found
    assert said["eagle3-topk1"].status == "warn"
    assert "effective 4, asked 8" in said["eagle3-topk1"].found
    assert "s3cret" not in json.dumps(parsed)


@pytest.mark.parametrize(
    ("switch", "status", "found"),
    [
        ("True", "fail", "Spec v2 currently only supports topk = 1"),
        ("False", "pass", ""),
    ],
)
def test_the_production_release_is_asked_what_it_makes_of_a_tree_on_v2(
    tmp_path, switch, status, found
):
    def change(values):
        values["server"].update(
            interpreter=sglang_on_cpu.interpreter(),
            model=str(sglang_on_cpu.MODELS_FOLDER / "target"),
            draft=str(sglang_on_cpu.MODELS_FOLDER / "draft"),
            env={"PYTHONPATH": str(OLD), "SGLANG_ENABLE_SPEC_V2": switch},
            args=["--max-running-requests", "128", "--device", "cuda", "--page-size", "1"],
        )
        values["stack"] = {}
        values["choose"].update(expected=None, prefer=[])
        tree = values["configurations"][1]
        tree["env"] = {}
        values["configurations"] = [values["configurations"][0], tree]

    checks, parsed = arguments_of(changed(PRODUCTION, tmp_path, change))
    about = [check for check in checks if status == "pass" or "topk4" in check.found]
    assert [check.status for check in about] == [status], (checks, parsed)
    assert found in about[0].found
