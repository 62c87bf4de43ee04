"""Captured hosts: a folder holds what commands printed there, and the verdicts that are right."""

import json
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
        assert all(check.fix for check in found if check.status in ("fail", "warn"))
    others = [c for c in report.checks if c.name in CARD_CHECKS and c.name not in right["checks"]]
    odd = [check for check in others if check.status != "pass" and not is_not_captured(check)]
    assert odd == []
    assert report.verdict.ok == (right["exit"] == 0), report.verdict


@pytest.mark.parametrize("name", NAMES)
def test_a_captured_host_without_parameters(name):
    report = verify_captured_machine(HOSTS / name)
    failed = [check for check in report.checks if check.status == "fail"]
    assert report.verdict.ok == (expected(name)["exit_without_parameters"] == 0), failed
    assert "without parameters only cards and what surrounds them" in report.verdict.text
    nothing = all(check.status == "skipped" for check in report.checks)
    assert ("nothing was checked; not verified for GPUs" in report.verdict.text) == nothing
    assert nothing == (name == "no-driver")
