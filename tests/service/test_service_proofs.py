"""The comparisons behind the proofs: unknown is never equal, clipped is never proved."""

import dataclasses
import json

import pytest

from runbook.engines.base import ServerInfo
from runbook.install_service.measured import info_from
from runbook.install_service.proofs import (
    Proof,
    prove_arguments,
    prove_environment,
    prove_equal,
    prove_info,
    prove_limits,
    prove_listener,
    prove_speed,
    prove_workers,
    verdict,
)
from runbook.launch.spec import LaunchSpec

SPEC = LaunchSpec(("/p", "-x", "1"), {"A": "1"}, "/", nofile=4096, memlock=None)
INFO = ServerInfo("m", "EAGLE3", 8, {"topk": 1})


def test_arguments_differ_by_place():
    assert prove_arguments(SPEC, ["/p", "-x", "1"]).status == "proved"
    proof = prove_arguments(SPEC, ["/p", "-x", "2", "-y"])
    assert proof.status == "refuted"
    assert "argument 2: measured '1', serves with '2'" in proof.evidence
    assert "argument 3: measured nothing, serves with '-y'" in proof.evidence


def test_what_a_process_hides_is_unknown():
    for proof in (
        prove_arguments(SPEC, None),
        prove_environment(SPEC, None),
        prove_limits(SPEC, None),
        prove_equal("cwd", "/", None),
        prove_info(None, INFO),
    ):
        assert proof.status == "not provable here"


def test_the_environment_is_equal_apart_from_what_the_manager_sets():
    assert prove_environment(SPEC, ["A=1", "INVOCATION_ID=x", "LANG=C"]).status == "proved"
    assert "HOME was not measured" in prove_environment(SPEC, ["A=1", "HOME=/"]).evidence
    assert "A is missing" in prove_environment(SPEC, []).evidence
    assert "A is '1=2', measured '1'" in prove_environment(SPEC, ["A=1=2"]).evidence
    spec = dataclasses.replace(SPEC, env={"LANG": "C"})
    assert prove_environment(spec, ["LANG=de"]).status == "refuted"


@pytest.mark.parametrize(
    ("files", "memory", "status"),
    [
        ("4096", "unlimited", "proved"),
        ("1024", "unlimited", "not provable here"),
        ("4096", "8388608", "not provable here"),
        ("8192", "unlimited", "refuted"),
        ("8192", "65536", "refuted"),
    ],
)
def test_a_limit_that_the_host_clips_is_not_provable_and_a_wider_one_refuted(files, memory, status):
    limits = {"Max open files": files, "Max locked memory": memory}
    assert prove_limits(SPEC, limits).status == status


BOUND = {"cpus": "0-3", "nice": 5, "numa_policy": "bind", "numa_nodes": "1", "umask": "0027"}


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ({}, "proved", "cpus 0-3"),
        ({"cpus": "0,1,2,3", "umask": "027"}, "proved", "nice 5"),
        ({"cpus": "0-127"}, "refuted", "cpus is 0-127, measured 0-3"),
        ({"numa_policy": "default", "numa_nodes": ""}, "refuted", "numa_policy is default"),
        ({"nice": 0}, "refuted", "nice is 0, measured 5"),
        ({"umask": "0022"}, "refuted", "umask is 0022, measured 0027"),
        ({"nice": None}, "not provable here", "it cannot be read: nice"),
        ({"oom_score_adjust": 0}, "not provable here", "the host clips: oom_score_adjust is 0"),
        ({"oom_score_adjust": -900}, "refuted", "oom_score_adjust is -900"),
    ],
)
def test_processors_and_priorities_are_compared_with_those_measured(found, status, said):
    process = {**BOUND, **({"oom_score_adjust": -500} if "oom_score_adjust" in found else {})}
    spec = dataclasses.replace(SPEC, process=process)
    limits = {"Max open files": "4096", "Max locked memory": "unlimited"}
    proof = prove_limits(spec, limits, {**BOUND, **found})
    assert proof.status == status and said in proof.evidence, proof


def test_further_limits_are_compared_too():
    spec = dataclasses.replace(SPEC, limits={"core": 0, "stack": None})
    limits = {"Max open files": "4096", "Max locked memory": "unlimited"}
    limits |= {"Max core file size": "0", "Max stack size": "unlimited"}
    assert prove_limits(spec, limits).evidence.endswith("core 0, stack unlimited")
    assert prove_limits(spec, {**limits, "Max core file size": "9"}).status == "refuted"
    assert prove_limits(spec, {**limits, "Max stack size": "9"}).status == "not provable here"


def test_the_listener_is_of_the_unit_and_younger_than_its_file():
    ours = {"pid": 7, "cgroup": "/system.slice/x.service", "started": 100.0}
    assert prove_listener([ours], ours["cgroup"], 50.0, 80).status == "proved"
    assert "older than" in prove_listener([ours], ours["cgroup"], 200.0, 80).evidence
    other = {**ours, "cgroup": "/user.slice"}
    assert "/user.slice" in prove_listener([other], ours["cgroup"], 50.0, 80).evidence
    assert "nobody listens" in prove_listener([], ours["cgroup"], 50.0, 80).evidence


def test_server_info_differs_by_field():
    assert prove_info(INFO, INFO).status == "proved"
    other = dataclasses.replace(INFO, settings={"topk": 4, "steps": 3})
    proof = prove_info(INFO, other)
    assert "settings.topk is 4, measured 1" in proof.evidence
    assert "settings.steps is 3, measured None" in proof.evidence


def test_server_info_comes_back_from_its_json_as_it_was():
    stored = json.loads(json.dumps(dataclasses.asdict(INFO)))
    kept = info_from(stored)
    assert kept == INFO
    assert prove_info(kept, INFO).status == "proved"
    of_another_release = stored | {"alike": ["mem_fraction_static"]}
    assert prove_info(info_from(of_another_release), INFO).status == "proved"


def test_the_verdict_counts_and_lets_the_parameters_decide_on_the_unprovable():
    good, bad = Proof("a", "proved", ""), Proof("b", "refuted", "")
    unknown = Proof("c", "not provable here", "")
    assert verdict([good], "fail", "x").ok
    assert not verdict([good, bad], "warn", "x").ok
    assert not verdict([good, unknown], "fail", "x").ok
    said = verdict([good, unknown], "warn", "x")
    assert said.ok
    assert said.text == "x: 1 of 2 proved, not provable here: c"


def test_a_worker_that_shows_another_value_refutes_and_one_that_hides_is_unknown():
    ours = {"pid": 7, "name": "worker", "environ": ["A=1", "SET_BY_SITECUSTOMIZE=1"]}
    other = {"pid": 8, "name": "scheduler", "environ": ["A=2"]}
    hidden = {"pid": 9, "name": "sglang::sched", "environ": None}
    assert prove_workers(SPEC, [], ()).status == "proved"
    assert prove_workers(SPEC, [ours], ()).status == "proved"
    assert "1 hide theirs" in prove_workers(SPEC, [ours, hidden], ()).evidence
    assert prove_workers(SPEC, [hidden], ()).status == "not provable here"
    shown = [f"{name}={value}" for name, value in SPEC.env.items()]
    cut = {"pid": 9, "name": "sglang::schedul", "environ": ["x=1", *shown[1:]], "cut": True}
    told = prove_workers(SPEC, [cut], ())
    assert told.status == "proved" and "leave to be seen" in told.evidence
    changed = {**cut, "environ": ["x=1", f"{shown[-1]}!"]}
    assert prove_workers(SPEC, [changed], ()).status == "refuted"
    refuted = prove_workers(SPEC, [ours, other], ())
    assert refuted.status == "refuted"
    assert refuted.evidence == "A is '2' in worker 8 (scheduler), measured '1'"
    assert prove_workers(SPEC, [other], {"A"}).status == "proved"


def test_speed_is_judged_by_the_spread_between_lives():
    assert prove_speed([100, 101, 102], 97, "C=1", 0.02).status == "proved"
    assert prove_speed([100, 101, 102], 80, "C=1", 0.02).status == "refuted"
    assert prove_speed([100, 101, 102], 140, "C=1", 0.02).status == "refuted"
    assert prove_speed([100, 101, 102], None, "C=1", 0.02).status == "not provable here"
    for few in ([], [100], [100, 101]):
        assert prove_speed(few, 100, "C=1", 0.02).status == "not provable here"
