"""Verdicts on synthetic facts: one stack that is right, and what is changed in it."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest

from runbook import params, strict_yaml, verify_stack
from runbook.engines.llamacpp import LlamaCpp
from runbook.errors import BadInput
from runbook.launch.spec import LaunchSpec
from runbook.params import Params, Stack
from runbook.probe.ask import ServingFacts
from runbook.verify_stack.accelerated import ACCELERATED_CHECKS
from runbook.verify_stack.checks import CARD_CHECKS
from runbook.verify_stack.facts import Reading, StackFacts
from runbook.verify_stack.gpu_checks import GPU_CHECKS

GIB = 2**30
MODEL = "/models/target.gguf"
CLONE = Path(__file__).parents[2]
ENGINE = LlamaCpp()

NOTHING = {"candidates": [], "loaded": None, "switched_off": False, "raised": None}
FACTS = {
    "python": {
        "version": "3.12.3",
        "implementation": "cpython",
        "executable": "/opt/venv/bin/python",
        "realpath": "/usr/bin/python3.12",
        "prefix": "/opt/venv",
        "base_prefix": "/usr",
        "flags": [],
    },
    "packages": {"xllamacpp": "2026.10.11549", "torch": "2.11.0+cu130"},
    "sys_path": ["/usr/lib/python3.12"],
    "sitecustomize": NOTHING,
    "usercustomize": NOTHING,
    "environment": {"set": {"LC_CTYPE": "C.UTF-8"}, "changed": {}, "removed": []},
    "user": {"uid": 0, "gid": 0, "name": "root", "home": "/root"},
    "cwd": "/",
    "limits": {
        "nofile": {"soft": 16384, "hard": 16384},
        "memlock": {"soft": "infinity", "hard": "infinity"},
        "stack": {"soft": 8388608, "hard": "infinity"},
    },
    "nr_open": 1048576,
    "shm": {"size_bytes": 8 * GIB, "free_bytes": 8 * GIB},
    "disks": {
        "/": {"size_bytes": 100 * GIB, "free_bytes": 50 * GIB},
        MODEL: {"size_bytes": 900 * GIB, "free_bytes": 70 * GIB},
    },
    "cores": {"usable": 2, "online": 2},
    "cpu": "EPYC",
    "memory": {"total_bytes": 16 * GIB, "available_bytes": 12 * GIB},
    "kernel": {"release": "6.8.0", "machine": "x86_64"},
    "system": "Ubuntu 24.04",
    "tools": {"nvcc": "/usr/bin/nvcc", "ninja": None},
    "files": {
        MODEL: {
            "kind": "file",
            "realpath": MODEL,
            "mtime_ns": 1,
            "size_bytes": GIB,
            "sha256": "ab" * 32,
            "readable": True,
        }
    },
    "models": {MODEL: {"config": None, "shards": 0, "index_sha256": [], "faults": []}},
}
FOLDER = {"kind": "folder", "listing_sha256": "cd" * 32}
HOST = {
    "gpus": Reading(reason="no NVIDIA driver on this host", absent=True),
    "systemd_version": Reading(255),
    "systemd": Reading({"kind": "box", "why_not": None}),
    "port": Reading({"port": 18080, "holder": None}),
}
SPEC = LaunchSpec(
    ("/opt/venv/bin/python", "server.py"), {"PATH": "/usr/bin", "A": "1"}, "/", "", 16384, None
)
SPECS = {"baseline": SPEC, "ngram-wide": SPEC, "ngram-lean": SPEC}


def parameters(server: dict | None = None, **stack) -> Params:
    loaded = params.load(CLONE / "params" / "rehearsal.yaml")
    update = {"model": MODEL, **(server or {})}
    return loaded.model_copy(
        update={"stack": Stack(**stack), "server": loaded.server.model_copy(update=update)}
    )


def facts(host: dict | None = None, only: str | None = None, **serving) -> StackFacts:
    """The right facts with some changed, for all configurations or for ``only`` one."""
    changed = ServingFacts(copy.deepcopy({**FACTS, **serving}), {})
    same = ServingFacts(copy.deepcopy(FACTS), {})
    answers = {name: changed if only in (None, name) else same for name in SPECS}
    return StackFacts({**HOST, **(host or {})}, answers)


def report(found: StackFacts, wanted: Params | None = None, specs=SPECS):
    return verify_stack.judge(wanted or parameters(), found, specs, ENGINE)


def check(name: str, found: StackFacts, wanted: Params | None = None, specs=SPECS):
    return next(one for one in report(found, wanted, specs).checks if one.name == name)


def customized(path: str, sha: str, **more) -> dict:
    candidate = {"path": path, "realpath": path, "sha256": sha * 64}
    return {**NOTHING, "candidates": [candidate], "loaded": path, **more}


def test_a_right_stack_is_positive_and_gpus_are_skipped_and_said():
    found = report(facts())
    assert found.verdict.ok
    assert "not verified for GPUs" in found.verdict.text
    by_status = {one.name: one.status for one in found.checks}
    assert tuple(by_status) == verify_stack.CHECKS
    assert {name for name, status in by_status.items() if status == "skipped"} == {
        *CARD_CHECKS,
        *ACCELERATED_CHECKS,
        *("packages", "draft", "draft_fits", "tools", "shell"),
    }
    assert set(by_status.values()) == {"pass", "skipped"}
    assert next(c for c in found.checks if c.name == "gpus").found == HOST["gpus"].reason


WRONG = [
    ("cores", {"cores": {"usable": 1, "online": 2}}, {"min_cores": 2}, "fail", "1 of 2"),
    ("memory", {}, {"min_memory_gib": 13.0}, "fail", "12.0 GiB available"),
    ("disk", {}, {"min_disk_gib": 51.0}, "fail", "50.0 GiB free at /"),
    ("disk", {}, {"min_disk_gib": 40.0}, "pass", f"70.0 GiB free at {MODEL}"),
    ("disk", {}, {"want_model_disk_gib": 71.0}, "warn", f"70.0 GiB free at {MODEL}"),
    ("disk", {"disks": {"/": {"free_bytes": 50 * GIB}}}, {}, "unknown", f"not hold '{MODEL}'"),
    ("shm", {}, {"min_shm_gib": 9.0}, "fail", "8.0 GiB free in /dev/shm"),
    ("python", {}, {"python": ">=3.13"}, "fail", "3.12.3"),
    (
        "python",
        {"python": {**FACTS["python"], "version": "odd"}},
        {"python": ">=3"},
        "unknown",
        "odd",
    ),
    ("engine_version", {}, {"engine_version": ">=2027"}, "fail", "xllamacpp 2026.10.11549"),
    ("engine_version", {"packages": {"xllamacpp": None}}, {}, "fail", "is not installed"),
    ("packages", {}, {"packages": {"torch": ">=2.12"}}, "fail", "torch 2.11.0+cu130"),
    ("packages", {}, {"packages": {"torch": ">=2", "triton": ""}}, "fail", "triton is not"),
    ("packages", {}, {"packages": {"torch": ">=2.11"}}, "pass", "torch 2.11.0+cu130"),
    ("tools", {}, {"tools": ["nvcc", "ninja"]}, "fail", "not on PATH: ninja"),
    ("tools", {}, {"tools": ["nvcc"]}, "pass", "/usr/bin/nvcc"),
    ("model", {}, {"model_sha256": "cd" * 32}, "fail", "SHA-256 abab"),
    ("model", {}, {"model_sha256": "ab" * 32}, "pass", "SHA-256 abab"),
    (
        "limits",
        {"limits": {**FACTS["limits"], "nofile": {"soft": 1024, "hard": 1024}}},
        {},
        "fail",
        "nofile 1024, memlock infinity",
    ),
    (
        "environment",
        {"environment": {"set": {}, "changed": {"A": "2"}, "removed": []}},
        {},
        "warn",
        "changed at the start of Python: A",
    ),
]


@pytest.mark.parametrize(("name", "serving", "stack", "status", "said"), WRONG)
def test_one_thing_changed_gives_its_status(name, serving, stack, status, said):
    found = check(name, facts(**serving), parameters(**stack))
    assert found.status == status
    assert said in found.found
    assert bool(found.fix) == (status != "pass")


@pytest.mark.parametrize(
    ("file", "stack", "status", "said"),
    [
        ({"kind": None, "why": "No such file or directory"}, {}, "fail", "No such file"),
        ({"size_bytes": 0}, {}, "fail", "empty"),
        ({"readable": False, "why": "Permission denied"}, {}, "fail", "Permission denied"),
        ({"sha256": None}, {}, "pass", "not taken"),
        ({"sha256": None}, {"model_sha256": "ab" * 32}, "unknown", "not taken"),
        ({**FOLDER, "files": 64}, {}, "pass", "64 files"),
        ({**FOLDER, "files": 0}, {}, "fail", "0 files"),
        ({**FOLDER, "files": 64}, {"model_sha256": "ab" * 32}, "unknown", "64 files"),
    ],
)
def test_model_files(file, stack, status, said):
    files = {MODEL: {**FACTS["files"][MODEL], **file}}
    found = check("model", facts(files=files), parameters(**stack))
    assert (found.status, said in found.found) == (status, True), found


def test_a_draft_is_looked_at_where_there_is_one():
    draft = {"/models/draft": {"kind": None, "why": "No such file or directory"}}
    files = {**FACTS["files"], **draft}
    found = check("draft", facts(files=files), parameters({"draft": "/models/draft"}))
    assert (found.status, found.found) == ("fail", "/models/draft: No such file or directory")


@pytest.mark.parametrize("name", list(FACTS))
def test_a_missing_fact_is_never_a_pass(name):
    wanted = parameters(packages={"torch": ""}, tools=["nvcc"])
    right = {one.name: one.status for one in report(facts(), wanted).checks}
    missing = StackFacts(
        HOST, {config: ServingFacts({**FACTS, name: None}, {name: "EIO"}) for config in SPECS}
    )
    lost = {one.name: one for one in report(missing, wanted).checks if one.status == "unknown"}
    about = {"disks": "disk", "files": "model", "sitecustomize": "sitecustomize"}
    about |= {"packages": "engine_version", "usercustomize": "sitecustomize"}
    expected = about.get(name, name)
    if expected in verify_stack.CHECKS:
        assert right[expected] in ("pass", "fail") and lost[expected].found == "EIO"


@pytest.mark.parametrize("name", list(HOST))
def test_a_missing_fact_of_the_host_is_never_a_pass(name):
    found = facts({name: Reading(reason="timed out")})
    for one in report(found, parameters(gpus=8)).checks:
        if one.name == name or (name == "gpus" and one.name in GPU_CHECKS):
            assert one.status in ("unknown", "fail") and one.found == "timed out"


def test_an_interpreter_that_does_not_run_fails_and_leaves_the_rest_unknown():
    silent = ServingFacts({}, {}, "the probe ended with 126: /opt: gone")
    found = report(StackFacts(HOST, dict.fromkeys(SPECS, silent)))
    by_name = {one.name: one for one in found.checks}
    assert not found.verdict.ok
    assert by_name["interpreter"].status == "fail"
    assert "126: /opt: gone" in by_name["interpreter"].found
    launches = ("python", "engine_version", "model", "cores", "limits", "sitecustomize")
    assert {by_name[name].status for name in launches} == {"unknown"}


def test_a_configuration_that_differs_is_named():
    found = check(
        "memory",
        facts(only="ngram-wide", memory={"available_bytes": GIB}),
        parameters(min_memory_gib=2.0),
    )
    assert found.status == "fail"
    assert "baseline: 12.0 GiB" in found.found and "ngram-wide: 1.0 GiB" in found.found


def test_infinity_of_open_files_is_what_the_kernel_has():
    specs = {name: replace(SPEC, nofile=None) for name in SPECS}
    limits = {**FACTS["limits"], "nofile": {"soft": 1048576, "hard": 1048576}}
    assert check("limits", facts(limits=limits), specs=specs).status == "pass"
    assert check("limits", facts(), specs=specs).status == "warn"


@pytest.mark.parametrize(
    ("env", "status", "said"),
    [
        ({"INVOCATION_ID": "x"}, "fail", "reserved: INVOCATION_ID"),
        ({"RUNBOOK_RUN": "x"}, "fail", "reserved: RUNBOOK_RUN"),
        ({"PATH": "/usr/bin::/bin"}, "fail", "empty element"),
        ({"PATH": ""}, "fail", "empty element"),
        ({"LANG": "C"}, "warn", "LANG"),
        ({"NCCL_PROTO": "LL"}, "pass", "2 variables"),
    ],
)
def test_reserved_variables(env, status, said):
    specs = dict.fromkeys(SPECS, replace(SPEC, env={"PATH": "/usr/bin", **env}))
    found = check("environment", facts(), specs=specs)
    assert (found.status, said in found.found) == (status, True), found


def test_sitecustomize_that_raised_fails_although_python_went_on():
    raised = customized("/venv/sitecustomize.py", "a", loaded=None, raised="KeyError: 'X'")
    found = check("sitecustomize", facts(sitecustomize=raised))
    assert (found.status, found.found) == ("fail", "/venv/sitecustomize.py raised: KeyError: 'X'")


def test_sitecustomize_of_another_configuration_fails_with_both_paths_and_hashes():
    other = customized("/shell/sitecustomize.py", "b")
    found = check("sitecustomize", facts(only="ngram-lean", sitecustomize=other))
    assert found.status == "fail"
    assert "ngram-lean: /shell/sitecustomize.py (bbbbbbbbbbbb)" in found.found
    assert "baseline: none" in found.found
    same_place = customized("/shell/sitecustomize.py", "c")
    changed = facts(sitecustomize=other)
    changed = StackFacts(
        HOST,
        {**changed.serving, "ngram-lean": ServingFacts({**FACTS, "sitecustomize": same_place}, {})},
    )
    assert check("sitecustomize", changed).status == "fail"


def test_sitecustomize_that_shadows_or_is_passed_over_warns():
    two = customized("/a/sitecustomize.py", "a")
    two["candidates"] = two["candidates"] + customized("/b/sitecustomize.py", "b")["candidates"]
    found = check("sitecustomize", facts(sitecustomize=two))
    assert found.status == "warn"
    assert "not loaded: /b/sitecustomize.py (bbbbbbbbbbbb)" in found.found
    passed_over = customized("/a/sitecustomize.py", "a", loaded=None)
    assert check("sitecustomize", facts(sitecustomize=passed_over)).status == "warn"
    off = customized("/a/sitecustomize.py", "a", loaded=None, switched_off=True)
    assert check("sitecustomize", facts(sitecustomize=off)).status == "pass"


def test_variables_of_sitecustomize_are_told():
    env = {"set": {"NCCL_PROTO": "LL", "LC_CTYPE": "C"}, "changed": {}, "removed": []}
    one = customized("/a/sitecustomize.py", "a")
    found = check("sitecustomize", facts(sitecustomize=one, environment=env))
    assert found.status == "pass"
    assert found.found.endswith("set at the start of Python: NCCL_PROTO")


def test_a_port_that_is_held_names_its_holder():
    held = Reading({"port": 18080, "holder": "pid 7 (nginx), unit nginx.service"})
    found = check("port", facts({"port": held}))
    assert (found.status, found.found) == ("fail", "held by pid 7 (nginx), unit nginx.service")


@pytest.mark.parametrize(
    ("value", "status", "said"),
    [
        ({"kind": "box", "why_not": None}, "pass", "systemd 255, in a throw-away box"),
        ({"kind": "box", "why_not": "the box is not booted"}, "warn", "not booted"),
        ({"kind": "local", "why_not": None}, "warn", "asked on local, not in a box"),
        ({"kind": "local", "why_not": "PID 1 is init"}, "warn", "PID 1 is init"),
    ],
)
def test_systemd(value, status, said):
    found = check("systemd", facts({"systemd": Reading(value)}))
    assert (found.status, said in found.found) == (status, True), found


def test_gpus_that_are_asked_for_and_absent_fail():
    found = report(facts(), parameters(gpus=8))
    by_name = {one.name: one for one in found.checks}
    assert not found.verdict.ok
    assert "not verified for GPUs" not in found.verdict.text
    assert by_name["gpus"].status == "fail" and by_name["gpus"].wanted == "8 GPUs"
    assert {by_name[name].status for name in GPU_CHECKS if name != "gpus"} == {"unknown"}


def test_levels_raise_lower_and_switch_off():
    found = facts({"systemd": Reading({"kind": "local", "why_not": "none"})}, shm=None)
    levels = {"systemd": "fail", "shm": "fail", "memory": "warn", "port": "off"}
    wanted = parameters(min_memory_gib=99.0, checks=levels)
    by_name = {one.name: one.status for one in report(found, wanted).checks}
    assert {name: by_name[name] for name in levels} == {
        "systemd": "fail",
        "shm": "fail",
        "memory": "warn",
        "port": "skipped",
    }


def test_an_unknown_check_is_bad_input_with_the_nearest_name():
    with pytest.raises(BadInput, match=r"did you mean sitecustomize\?") as caught:
        verify_stack.require_known_checks(parameters(checks={"site_customize": "off"}), ())
    assert caught.value.exit_code == 2


def test_a_version_range_that_is_none_is_refused_by_the_parameters():
    text = (CLONE / "params" / "rehearsal.yaml").read_text()
    values = strict_yaml.parse(text, "x")
    values["stack"]["engine_version"] = "0.5.10 to 0.5.12"
    with pytest.raises(BadInput, match="no version range"):
        params.from_values(values, "x")


def test_the_report_survives_json():
    written = report(facts({"gpus": Reading({"gpus": [], "faults": ["x"]})}), parameters(gpus=1))
    text = json.dumps(written.to_json(), allow_nan=False)
    assert verify_stack.StackReport.from_json(json.loads(text)) == written


def test_facts_in_short_are_one_line_each():
    shown = report(facts(only="ngram-wide", system=None)).to_json()["facts"]
    assert shown["python"] == "cpython 3.12.3, /opt/venv/bin/python"
    assert shown["memory"] == "12.0 of 16.0 GiB available"
    assert shown["GPUs"] == "no NVIDIA driver on this host"
    assert "ngram-wide: unknown" in shown["operating system"]
    assert all(value is None or "\n" not in value for value in shown.values())
