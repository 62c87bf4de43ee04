"""Captured hosts: a folder holds what commands printed there, and the verdicts that are right."""

import json
import shutil
from pathlib import Path

import pytest

from runbook import params
from runbook.engines import engine_for
from runbook.verify_stack import verify_captured, verify_captured_machine
from runbook.verify_stack.checks import CARD_CHECKS

CLONE = Path(__file__).parents[2]
HOSTS = CLONE / "tests" / "cases" / "hosts"
NAMES = sorted(path.name for path in HOSTS.iterdir())
PRODUCTION = params.load(CLONE / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml")


def expected(name):
    return json.loads((HOSTS / name / "expected.json").read_text())


def verify(name, parameters=PRODUCTION):
    engine = engine_for(parameters.server)
    specs = {one.name: engine.launch_spec(parameters, one) for one in parameters.configurations}
    return verify_captured(parameters, HOSTS / name, specs, engine)


def is_not_captured(check):
    return check.status == "unknown" and (
        "not captured" in check.found or "no NVIDIA" in check.found
    )


def test_there_are_twenty_at_least():
    assert len(NAMES) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_a_captured_host_gets_its_verdicts(name):
    report, right = verify(name), expected(name)
    for wanted, (status, said) in right["checks"].items():
        found = [check for check in report.checks if check.name == wanted]
        assert any(check.status == status and said in check.found for check in found), found
    asked = (HOSTS / name / "serving.json").exists()
    others = [
        check
        for check in report.checks
        if (asked or check.name in CARD_CHECKS) and check.name not in right["checks"]
    ]
    good = ("pass", "skipped") if asked else ("pass",)
    odd = [check for check in others if check.status not in good and not is_not_captured(check)]
    assert odd == []
    assert report.verdict.ok == (right["exit"] == 0), report.verdict


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_right_says_what_was_found_and_wanted_and_what_to_do(name):
    fleet = params.load(CLONE / "params" / "rehearsal.yaml")
    reports = [verify(name), verify(name, fleet), verify_captured_machine(HOSTS / name)]
    for check in (check for report in reports for check in report.checks):
        if check.status not in ("pass", "skipped"):
            assert check.found and check.wanted and check.fix, check


@pytest.mark.parametrize("name", NAMES)
def test_a_captured_host_without_parameters(name):
    report = verify_captured_machine(HOSTS / name)
    failed = [check for check in report.checks if check.status == "fail"]
    assert report.verdict.ok == (expected(name)["exit_without_parameters"] == 0), failed
    assert "without parameters only cards and what surrounds them" in report.verdict.text
    nothing = all(check.status == "skipped" for check in report.checks)
    assert ("nothing was checked; not verified for GPUs" in report.verdict.text) == nothing
    assert nothing == (name == "no-driver")


@pytest.mark.parametrize(
    ("written", "status"),
    [
        ({"sgl_kernel": None, "sglang-kernel": "0.4.1"}, "pass"),
        ({"sglang_kernel": "0.4.1", "flashinfer": "0.6.2"}, "pass"),
        ({"SGLang-Kernel": "0.4.1", "sgl_kernel": "Module Not Found"}, "pass"),
        ({"sgl-kernel": "0.3.21"}, "fail"),
        ({"sglang-kernel": "Module Not Found"}, "fail"),
    ],
)
def test_packages_are_found_however_they_are_written(tmp_path, written, status):
    told = {"SGLang": "0.5.10", "torch": "2.9.1+cu130", **written}
    (tmp_path / "python-packages.json").write_text(json.dumps(told))
    engine = engine_for(PRODUCTION.server)
    specs = {one.name: engine.launch_spec(PRODUCTION, one) for one in PRODUCTION.configurations}
    report = verify_captured(PRODUCTION, tmp_path, specs, engine)
    (found,) = [check for check in report.checks if check.name == "sglang_packages"]
    assert found.status == status, found
    (kernels,) = [check for check in report.checks if check.name == "kernels"]
    assert ("flashinfer-python 0.6.2" in kernels.found) == ("flashinfer" in written)


@pytest.mark.parametrize(
    "told", [1, {}, {"facts": 1, "reasons": {}}, {"facts": {}, "reasons": {}, "x": 1}]
)
def test_answers_of_another_form_leave_their_own_facts_unknown(tmp_path, told):
    shutil.copytree(HOSTS / "eight-cards", tmp_path / "host")
    (tmp_path / "host" / "serving.json").write_text(json.dumps({"baseline": told}))
    checks = {one.name: one for one in captured_at(tmp_path / "host").checks}
    assert checks["python"].status == "unknown"
    assert "serving.json holds no answers of serving interpreters" in checks["python"].found
    assert checks["engine_version"].status == "pass", "python-packages.json is whole"
    assert checks["gpus"].status == checks["acs"].status == "pass"


def captured_at(folder):
    engine = engine_for(PRODUCTION.server)
    specs = {one.name: engine.launch_spec(PRODUCTION, one) for one in PRODUCTION.configurations}
    return verify_captured(PRODUCTION, folder, specs, engine)


@pytest.mark.parametrize("value", [None, "x", 7, [], {}])
@pytest.mark.parametrize(
    "name",
    sorted(json.loads((HOSTS / "eight-cards/serving.json").read_text())["baseline"]["facts"]),
)
def test_a_fact_that_was_not_read_or_is_of_another_form_is_no_traceback(tmp_path, name, value):
    shutil.copytree(HOSTS / "eight-cards", tmp_path / "host")
    told = json.loads((HOSTS / "eight-cards" / "serving.json").read_text())
    for answer in told.values():
        answer["facts"][name] = value
    (tmp_path / "host" / "serving.json").write_text(json.dumps(told))
    engine = engine_for(PRODUCTION.server)
    specs = {one.name: engine.launch_spec(PRODUCTION, one) for one in PRODUCTION.configurations}
    report = verify_captured(PRODUCTION, tmp_path / "host", specs, engine)
    assert report.to_json()
    whole = {
        one.name: one.status for one in verify("eight-cards").checks if one.name in CARD_CHECKS
    }
    assert whole == {one.name: one.status for one in report.checks if one.name in CARD_CHECKS}
    if value is not None:  # null is how a probe says that it could not read something
        bad = [one for one in report.checks if one.status not in ("pass", "skipped")]
        assert all(one.found and one.wanted and one.fix for one in bad)


@pytest.mark.parametrize(
    "name",
    sorted(json.loads((HOSTS / "eight-cards/serving.json").read_text())["baseline"]["facts"]),
)
def test_a_fact_that_an_older_capture_lacks_is_unknown(tmp_path, name):
    shutil.copytree(HOSTS / "eight-cards", tmp_path / "host")
    told = json.loads((HOSTS / "eight-cards" / "serving.json").read_text())
    for answer in told.values():
        del answer["facts"][name]
    (tmp_path / "host" / "serving.json").write_text(json.dumps(told))
    engine = engine_for(PRODUCTION.server)
    specs = {one.name: engine.launch_spec(PRODUCTION, one) for one in PRODUCTION.configurations}
    report = verify_captured(PRODUCTION, tmp_path / "host", specs, engine)
    bad = [check for check in report.checks if check.status not in ("pass", "skipped")]
    assert all(check.found and check.wanted and check.fix for check in bad)
    assert {check.status for check in bad} <= {"warn", "unknown"}


def rows(text, change):
    """A CSV with its rows changed."""
    changed = [change(number, line.split(", ")) for number, line in enumerate(text.splitlines())]
    return "".join(", ".join(fields) + "\n" for fields in changed if fields)


def untold(columns):
    """Of every card these columns say nothing."""
    return lambda _number, fields: [
        "[N/A]" if at in columns else field for at, field in enumerate(fields)
    ]


@pytest.mark.parametrize(
    ("file", "change", "name", "status", "said"),
    [
        (
            "nvidia-smi-query.csv",
            lambda n, fields: (
                [fields[0], *["[GPU is lost]"] * (len(fields) - 1)] if n == 5 else fields
            ),
            "gpus",
            "fail",
            "GPU 5 tells neither name nor UUID",
        ),
        ("nvidia-smi-state.csv", untold([2]), "idle", "unknown", "how busy"),
        ("nvidia-smi-state.csv", untold([5, 6, 7]), "clocks", "unknown", "what slows it down"),
        *(
            (
                "nvidia-smi-state.csv",
                lambda n, fields: fields if n < 4 else [],
                name,
                "unknown",
                "4 of 8",
            )
            for name in ("idle", "clocks", "ecc_errors")
        ),
    ],
)
def test_what_a_card_does_not_tell_is_never_a_pass(tmp_path, file, change, name, status, said):
    shutil.copytree(HOSTS / "eight-cards", tmp_path / "host")
    text = (HOSTS / "eight-cards" / file).read_text()
    (tmp_path / "host" / file).write_text(rows(text, change))
    engine = engine_for(PRODUCTION.server)
    specs = {one.name: engine.launch_spec(PRODUCTION, one) for one in PRODUCTION.configurations}
    report = verify_captured(PRODUCTION, tmp_path / "host", specs, engine)
    (found,) = [check for check in report.checks if check.name == name]
    assert found.status == status, found
    assert said in found.found
