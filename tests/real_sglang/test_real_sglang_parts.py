"""The stand-in kernels, and the parsers of three releases, under the Python that has SGLang."""

import json
import subprocess
import time
from pathlib import Path

import httpx
import pytest
import yaml
from server_lives import free_port

from runbook import params, verify_stack
from runbook.engines import engine_for
from runbook.engines.sglang.engine import read_running
from runbook.hosts.local import LocalHost
from runbook.rehearsal import sglang_on_cpu

ROOT = Path(__file__).parents[2]
REHEARSAL = ROOT / "params" / "rehearsal-sglang.yaml"
PRODUCTION = ROOT / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml"
#: Other releases lie in it beside the installed one.
SGLANG = ROOT / ".venv-sglang"


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
    (version,) = (check for check in report.checks if check.name == "engine_version")
    assert version.status == "pass", version
    checks = [check for check in report.checks if check.name == "sglang_arguments"]
    return checks, {
        name: facts.facts.get("arguments") for name, facts in report.facts.serving.items()
    }


def changed(path, folder, change):
    """Parameters of a file after ``change`` has worked on its values."""
    values = yaml.safe_load(path.read_text())
    values["host"] = {"kind": "local"}
    values["workload"]["prompts"] = "builtin"
    values["workload"]["mix"] = {"edit": 1}
    change(values)
    file = folder / "changed.yaml"
    file.write_text(json.dumps(values))  # no aliases
    return params.load(file)


def test_the_installed_release_resolves_refuses_and_adjusts(tmp_path):
    def change(values):
        names = {one["name"]: one for one in values["configurations"]}
        names["eagle3-topk1"]["args"][-1] = "8"
        names["eagle3-topk4"]["args"].append("--speculative-eagle-topkk=4")
        values["server"]["env"]["SGLANG_ENABLE_SPEC_V2"] = "True"

    checks, parsed = arguments_of(changed(REHEARSAL, tmp_path, change))
    assert parsed["baseline"]["resolved"]["speculative_algorithm"] is None
    assert parsed["eagle3-topk1"]["resolved"]["speculative_num_draft_tokens"] == 4
    said = {check.found.partition(":")[0]: check for check in checks}
    assert said["eagle3-topk4"].status == "fail"
    assert "unrecognized arguments: --speculative-eagle-topkk" in said["eagle3-topk4"].found
    assert said["eagle3-topk1"].status == "warn"
    assert "effective 4, asked 8" in said["eagle3-topk1"].found
    assert "SPEC_V2" not in json.dumps(parsed)  # nothing is said of a variable it does not know


def trees(release, folder, switches):
    """The checks ``sglang_arguments`` by configuration, and what the parser of ``release`` said:
    the tree of the production parameters under each value of the variable."""

    def change(values):
        values["server"].update(
            interpreter=sglang_on_cpu.interpreter(),
            model=str(sglang_on_cpu.MODELS_FOLDER / "target"),
            draft=str(sglang_on_cpu.MODELS_FOLDER / "draft"),
            env={
                "PYTHONPATH": str(SGLANG / f"sglang-{release}"),
                "SGLANG_ENABLE_SPEC_V2": "False",
            },
            args=["--max-running-requests", "128", "--device", "cuda", "--page-size", "1"],
        )
        values["stack"] = {"engine_version": f"=={release}"}
        values["choose"].update(expected=None, prefer=[])
        baseline, tree, _ = values["configurations"]
        named = [
            tree
            | {"name": f"eagle3-topk4-{switch.lower()}", "env": {"SGLANG_ENABLE_SPEC_V2": switch}}
            for switch in switches
        ]
        values["configurations"] = [baseline, *named]

    checks, parsed = arguments_of(changed(PRODUCTION, folder, change))
    return checks, {name: "\n".join(answer["said"]) for name, answer in parsed.items()}


def test_on_the_production_release_the_variable_decides(tmp_path):
    """What the parameters ask for exists there; its opposite is refused in SGLang's words."""
    (check,), said = trees("0.5.10.post1", tmp_path, ["False", "True"])
    assert check.status == "fail" and check.found.startswith("eagle3-topk4-true: ")
    assert "Spec v2 currently only supports topk = 1" in check.found
    assert "removed" not in said["eagle3-topk4-false"]


def test_a_later_release_warns_that_the_variable_does_nothing(tmp_path):
    checks, said = trees("0.5.20", tmp_path, ["True"])
    assert [check.status for check in checks] == ["pass"], checks
    assert "SGLANG_ENABLE_SPEC_V2 has been removed" in said["eagle3-topk4-true"]


def test_a_real_server_from_its_start_to_its_end(start):
    """A request whose client hangs up is ended; a prompt too long for the model is refused in
    words; its log tells the acceptance that its counters tell; a stop drains what runs, and leaves
    no process."""
    values = yaml.safe_load(REHEARSAL.read_text())
    values["server"]["port"] = free_port()
    values["workload"] |= {"prompts": "builtin", "mix": {"edit": 1}}
    wanted = params.from_values(values, "test")
    engine = engine_for(wanted.server)
    life = start(engine.launch_spec(wanted, wanted.configuration("eagle3-topk1")))
    engine.wait_ready(life.url, life.alive, 300)
    asked = {
        "messages": [{"role": "user", "content": "Give 4 records for oslo"}],
        "max_tokens": 1500,
        "ignore_eos": True,
        "stream": True,
    }
    with httpx.stream("POST", f"{life.url}/v1/chat/completions", json=asked, timeout=60) as answer:
        lines = answer.iter_lines()
        for _ in range(240):  # it counts what runs every 40 steps
            next(lines)
        assert read_running(httpx.get(f"{life.url}/metrics").text) == 1
    assert engine.end_requests(life.url, 60) == ""
    assert read_running(httpx.get(f"{life.url}/metrics").text) == 0
    before = engine.counters(life.url).predicted
    assert engine.counters(life.url).predicted == before < 1500
    long = asked | {"messages": [{"role": "user", "content": "oslo " * 4000}], "stream": False}
    refused = httpx.post(f"{life.url}/v1/chat/completions", json=long, timeout=60)
    assert refused.status_code == 400 and life.alive()
    counted = engine.acceptance_length(engine.counters(life.url))
    in_log = engine.acceptance_in_log(life.log.read_text(errors="replace"))
    assert in_log == pytest.approx(counted, abs=0.4)  # lines of 40 steps, the last not yet said

    processes = [life.process.pid, *descendants(life.process.pid)]
    assert len(processes) >= 3  # its scheduler and its detokenizer
    short = asked | {"max_tokens": 300}
    with httpx.stream("POST", f"{life.url}/v1/chat/completions", json=short, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        life.process.terminate()
        assert [line for line in lines if line][-1] == "data: [DONE]"  # it drains
    assert life.process.wait(30) is not None
    deadline = time.monotonic() + 10
    while any(map(is_running, processes)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in processes if is_running(pid)]


def descendants(pid):
    """The processes below one, whatever session they are in."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *descendants(child)]
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
