"""What a launch finds by its environment: compilers, toolkit, libraries, caches."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runbook import params, verify_stack
from runbook.checks import Check
from runbook.engines import engine_for
from runbook.launch.spec import LaunchSpec
from runbook.params import Params
from runbook.probe.ask import ServingFacts
from runbook.verify_stack.facts import StackFacts, questions_for

CLONE = Path(__file__).parents[2]
HOST = CLONE / "tests" / "cases" / "hosts" / "eight-cards"
PRODUCTION = params.load(CLONE / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml")
ENGINE = engine_for(PRODUCTION.server)
TOLD = json.loads((HOST / "serving.json").read_text())["baseline"]["facts"]

LIBRARIES = {"/usr/local/cuda-13.0/lib64": True, "/opt/nccl/lib": False}


def spec_with(**env: str) -> LaunchSpec:
    """The launch of the baseline with other variables; an empty one is left out."""
    spec = ENGINE.launch_spec(PRODUCTION, PRODUCTION.configurations[0])
    changed = {**spec.env, **env}
    return replace(spec, env={name: value for name, value in changed.items() if value})


def check(
    name: str, env: dict[str, str] | None = None, wanted: Params = PRODUCTION, **facts: Any
) -> Check:
    told = {key: value for key, value in {**TOLD, **facts}.items() if value != "not asked"}
    found = StackFacts({}, {"baseline": ServingFacts(copy.deepcopy(told), {})})
    report = verify_stack.judge(wanted, found, {"baseline": spec_with(**(env or {}))}, ENGINE)
    return next(one for one in report.checks if one.name == name)


@pytest.mark.parametrize(
    ("tools", "env", "status", "said"),
    [
        ({}, {}, "pass", "/usr/bin/gcc"),
        ({"gcc": None, "clang": "/usr/bin/clang"}, {}, "pass", "/usr/bin/clang"),
        ({"gcc": None, "cc": None}, {}, "fail", "neither gcc nor clang on PATH"),
        ({"gcc": None}, {}, "fail", "/usr/bin/cc is not looked for"),
        ({"gcc": None, "gcc-13": "/opt/bin/gcc-13"}, {"CC": "gcc-13"}, "pass", "/opt/bin/gcc-13"),
        ({"/opt/gone/gcc": None}, {"CC": "/opt/gone/gcc"}, "fail", "CC=/opt/gone/gcc is no"),
        ({}, {"CC": "never-asked"}, "unknown", "nobody looked for never-asked"),
        ({"ninja": None, "gcc": None}, {}, "fail", "not on PATH: ninja"),
    ],
)
def test_a_c_compiler_is_looked_for_where_kernels_are_compiled(tools, env, status, said):
    found = check("tools", env, tools={**TOLD["tools"], **tools})
    assert (found.status, said in found.found) == (status, True), found
    assert bool(found.fix) == (status != "pass")


def test_a_capture_that_does_not_tell_of_a_compiler_leaves_it_unknown():
    older = {name: TOLD["tools"][name] for name in ("nvcc", "ninja")}
    assert check("tools", tools=older).status == "unknown"
    without = PRODUCTION.model_copy(
        update={"stack": PRODUCTION.stack.model_copy(update={"gpus": 0})}
    )
    assert check("tools", wanted=without, tools=older).status == "pass"


def test_who_asks_the_host_asks_for_compilers_on_gpus_alone():
    asked = questions_for(PRODUCTION, ENGINE).tools
    assert {"nvcc", "ninja", "gcc", "clang", "cc"} <= set(asked)
    server = PRODUCTION.server.model_copy(update={"env": {"CC": "/opt/gcc"}})
    assert (
        "/opt/gcc" in questions_for(PRODUCTION.model_copy(update={"server": server}), ENGINE).tools
    )
    rehearsal = params.load(CLONE / "params" / "rehearsal.yaml")
    assert questions_for(rehearsal, engine_for(rehearsal.server)).tools == ()


TOOLKIT = TOLD["toolkit"]


@pytest.mark.parametrize(
    ("env", "toolkit", "status", "said"),
    [
        ({}, {}, "pass", "none reserved"),
        ({"CUDA_HOME": ":/opt/cuda-12.6"}, {}, "fail", "CUDA_HOME=:/opt/cuda-12.6 is no folder"),
        ({"CUDA_HOME": "/opt/a:/opt/b"}, {}, "fail", "is no folder"),
        ({"CUDA_HOME": "cuda-13.0"}, {}, "fail", "is no folder"),
        ({"CUDA_HOME": "/opt/cuda"}, {"nvcc": None}, "fail", "CUDA_HOME=/opt/cuda has no bin/nvcc"),
        ({"CUDA_HOME": "", "CUDA_PATH": "/c"}, {"nvcc": None}, "fail", "CUDA_PATH=/c has no bin"),
        ({}, {"release": "12.4"}, "warn", "is CUDA 12.4, /usr/local/cuda/bin/nvcc on PATH is CUDA"),
        ({}, {"release": None}, "unknown", "does not tell its release"),
        ({}, {"on_path": None, "on_path_release": None}, "pass", "none reserved"),
        ({"CUDA_HOME": ""}, {"nvcc": None, "release": None}, "pass", "none reserved"),
    ],
)
def test_cuda_home_is_the_toolkit_that_compiles(env, toolkit, status, said):
    found = check("environment", env, toolkit={**TOOLKIT, **toolkit})
    assert (found.status, said in found.found) == (status, True), found
    assert bool(found.fix) == (status != "pass")


@pytest.mark.parametrize("tools", [[], ["ninja"], ["python3", "git"]])
def test_a_runtime_without_a_compiler_is_no_fault_where_none_is_asked_for(tools):
    stack = PRODUCTION.stack.model_copy(update={"tools": tools})
    wanted = PRODUCTION.model_copy(update={"stack": stack})
    toolkit = {**TOOLKIT, "nvcc": None}
    found = check("environment", {"CUDA_HOME": "/opt/runtime"}, wanted, toolkit=toolkit)
    assert (found.status, "has no bin/nvcc" in found.found) == ("warn", True)
    found = check("environment", {"CUDA_HOME": ":/opt/runtime"}, wanted, toolkit=toolkit)
    assert found.status == "fail"


def test_what_is_wrong_by_itself_needs_no_host():
    broken = {"CUDA_HOME": ":/opt/cuda-13.1"}
    found = check("environment", broken, toolkit="not asked", environment="not asked")
    assert found.status == "fail"
    assert check("environment", toolkit="not asked").status == "unknown"
    assert check("environment", {"CUDA_HOME": ""}, toolkit="not asked").status == "pass"
    assert check("environment", folders="not asked").status == "unknown"


def cache(path: str, writable: bool = True, noexec: bool = False) -> dict[str, Any]:
    return {"path": path, "writable": writable, "noexec": noexec}


@pytest.mark.parametrize(
    ("libraries", "caches", "status", "said"),
    [
        ({"/opt/nccl/lib": True}, {"HOME": cache("/srv/llm")}, "pass", "none reserved"),
        (LIBRARIES, {}, "warn", "LD_LIBRARY_PATH: not there: /opt/nccl/lib"),
        (
            {},
            {"HOME": cache("/nonexistent", False)},
            "fail",
            "cannot be written: HOME /nonexistent",
        ),
        (
            LIBRARIES,
            {"TRITON_CACHE_DIR": cache("/var/t", False), "TMPDIR": cache("/tmp", True, True)},
            "fail",
            "TRITON_CACHE_DIR /var/t",
        ),
        ({}, {"TMPDIR": cache("/tmp", True, True)}, "warn", "mounted noexec: TMPDIR /tmp"),
    ],
)
def test_libraries_and_caches_that_are_named_can_be_used(libraries, caches, status, said):
    found = check("environment", folders={"libraries": libraries, "caches": caches})
    assert (found.status, said in found.found) == (status, True), found
    assert bool(found.fix) == (status != "pass")
