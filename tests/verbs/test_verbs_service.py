"""The verbs of a service and what a run decided: they operate it, they do not decide anew."""

import pytest
from test_params import MINIMAL

from runbook import params
from runbook.checks import Check
from runbook.errors import BadInput
from runbook.run import STAGES, STEPS, Run
from runbook.verbs.service import opened

BY_OVERRIDE = {
    "choose": {
        **MINIMAL["choose"],
        "override": {"choose": "lean", "reason": "a trial", "by": "Ada"},
    }
}
OF_THE_SERVICE = {"service": {"unit": "mini.service", "unproved": "warn"}}


def given(*more):
    values = dict(MINIMAL)
    for one in more:
        values |= one
    return params.from_values(values, "x")


@pytest.fixture
def run(tmp_path):
    """A run whose choice was made by an override that was given with -p."""
    run = Run.create(given(BY_OVERRIDE), tmp_path / "run")
    for name in STEPS:
        run.finish(name, "completed")
    return run


def statuses(run):
    return {step.name: step.status for step in Run.open(run.path).todo()}


@pytest.mark.parametrize("verb", ["verify", "rollback", "uninstall"])
def test_what_was_chosen_stays_when_the_service_is_operated(run, verb):
    others = given(OF_THE_SERVICE, {"stack": {"min_cores": 1}})
    with opened(verb, others, run.path, None, False) as desk:
        assert desk.work.params.service.unproved == "warn"
    after = Run.open(run.path).params
    assert after.choose.override and after.choose.override.by == "Ada"
    assert after.stack == run.params.stack
    assert [STEPS[name] for name, status in statuses(run).items() if status == "completed"] == [
        STEPS[name] for name in STEPS if STAGES.index(STEPS[name]) < 3
    ]


@pytest.mark.parametrize(
    ("status", "code"), [("fail", 1), ("warn", 0), ("pass", 0), ("unknown", 0)]
)
def test_a_plan_with_a_failed_check_ends_with_1(run, monkeypatch, status, code, capsys):
    class Planned:
        checks = (Check("unit: verify", status, "x is not executable", "a silent systemd"),)

        def describe(self):
            return "the plan"

    monkeypatch.setattr("runbook.verbs.service.Desk._plan", lambda self: Planned())
    with opened("plan", run.params, run.path, None, False) as desk:
        assert desk.plan() == code
    assert capsys.readouterr().out == "the plan\n"


@pytest.mark.parametrize(
    ("verb", "given", "wanted"),
    [
        ("verify", {"after_boot": True, "cold": True}, "--after-boot and --cold"),
        ("monitoring", {"prometheus": "rules.d"}, "rules.d"),
        ("monitoring", {"prometheus": ""}, "--prometheus ''"),
    ],
)
def test_words_that_cannot_be_meant_are_refused_before_a_host_is_touched(run, verb, given, wanted):
    with opened(verb, run.params, run.path, None, False) as desk:
        with pytest.raises(BadInput, match=wanted):
            getattr(desk, verb)(**given)
        assert desk.work._host is None


def test_an_install_of_another_choice_is_refused_and_changes_nothing(run):
    before = (run.path / "run.json").read_bytes(), (run.path / "params.yaml").read_bytes()
    refused = pytest.raises(BadInput, match=r"choose was done with other .* choose\.override")
    with refused, opened("install", given(), run.path, None, False):
        pass
    assert before == ((run.path / "run.json").read_bytes(), (run.path / "params.yaml").read_bytes())


def test_an_install_of_the_same_choice_may_change_the_service(run):
    with opened("install", given(BY_OVERRIDE, OF_THE_SERVICE), run.path, None, False):
        pass
    assert statuses(run)["choose"] == "completed"
    assert statuses(run)["install_service"] == "pending"
