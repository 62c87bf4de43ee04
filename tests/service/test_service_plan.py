"""Plans are pure: from facts as they would be read to what would be done."""

import dataclasses
import json
import sys

import pytest
from standin_service import UNIT, make_measured, make_params

from runbook.errors import BadInput, Blocked, NotHere
from runbook.install_service import measured_in
from runbook.install_service.facts import HostFacts
from runbook.install_service.meaning import meaning
from runbook.install_service.places import KEPT_TEXTS, Places
from runbook.install_service.plan import make_plan, make_target, start_timeout
from runbook.install_service.undo import prunable
from runbook.launch.server import local_url
from runbook.launch.unit_file import parse_unit

PLACES = Places(UNIT)
GUARD = "# a guard\n"
RUNNING = {
    "FragmentPath": PLACES.unit_file,
    "UnitFileState": "enabled",
    "ActiveState": "active",
    "NeedDaemonReload": "no",
}


def target(*arguments, **service):
    params = make_params(18080, **service)
    measured = make_measured(18080, *arguments)
    return make_target(params, "baseline", measured, GUARD, "/usr/bin/python3", "run")


def installed(what, number=1, **state):
    folder = PLACES.generation(number)
    files = {
        **what.files,
        PLACES.boot_link: what.boot_text,
        PLACES.current: f"{number}\n",
        **{f"{folder}/{name}": text for name, text in what.kept.items()},
        f"{folder}/manifest.json": json.dumps(dict(what.manifest)),
        f"{folder}/served": "now\n",
    }
    return HostFacts(PLACES, files, {**RUNNING, **state})


def with_files(facts, **more):
    return dataclasses.replace(facts, files={**facts.files, **more.pop("files", {})}, **more)


def test_an_empty_host_gets_everything():
    plan = make_plan(target(), HostFacts(PLACES))
    assert [change.path for change in plan.files if not change.same] == [
        PLACES.guard(GUARD),
        PLACES.expected(target().expected_text),
        PLACES.boot_file,
        PLACES.unit_file,
    ]
    assert plan.actions == ("daemon-reload", "enable", "start")
    assert (plan.generation, plan.is_new) == (1, True)
    assert "a new unit" in plan.meaning
    assert "--- /dev/null" in plan.diff


def test_a_host_as_planned_gets_nothing():
    plan = make_plan(target(), installed(target()))
    assert plan.unchanged
    assert plan.describe() == f"{UNIT}: nothing to do, it is as planned"


@pytest.mark.parametrize(
    ("state", "actions"),
    [
        ({"UnitFileState": "disabled"}, ("enable",)),
        ({"ActiveState": "inactive"}, ("start",)),
        ({"ActiveState": "failed"}, ("start",)),
        ({"NeedDaemonReload": "yes"}, ("daemon-reload", "restart")),
    ],
)
def test_only_what_is_missing_is_done(state, actions):
    plan = make_plan(target(), installed(target(), **state))
    assert plan.actions == actions
    assert not plan.is_new
    assert not plan.unchanged


def test_a_boot_that_would_not_be_recorded_is_mended():
    files = dict(installed(target()).files)
    del files[PLACES.boot_link]
    assert make_plan(target(), HostFacts(PLACES, files, RUNNING)).actions == ("enable",)


def test_nobody_is_restarted_for_the_recorder_of_boots():
    found = installed(target())
    edited = with_files(found, files={PLACES.boot_file: target().boot_text + "#\n"})
    assert make_plan(target(), edited).actions == ("daemon-reload",)


def test_an_apply_that_was_cut_before_its_end_is_finished_as_a_new_generation():
    facts = installed(target("--old"))
    new = target("--new")
    facts = with_files(facts, files={PLACES.unit_file: new.unit_text})
    plan = make_plan(new, facts)
    assert plan.is_new
    assert not plan.unchanged
    assert plan.generation == 2


def test_a_new_number_is_never_one_that_was_begun():
    facts = with_files(installed(target("--old")), files={f"{PLACES.generation(4)}/unit": "half"})
    assert facts.generations == [1]
    assert make_plan(target(), facts).generation == 5


def test_foreign_units_are_refused_and_edits_are_drift():
    with pytest.raises(Blocked, match="somebody else"):
        make_plan(target(), HostFacts(PLACES, {PLACES.unit_file: "[Service]\n"}))
    with pytest.raises(Blocked, match=r"standin-boot\.service is a unit of somebody else"):
        make_plan(target(), HostFacts(PLACES, {PLACES.boot_file: "[Service]\n"}))
    with pytest.raises(Blocked, match="/usr/lib/systemd"):
        make_plan(target(), HostFacts(PLACES, {}, {"FragmentPath": "/usr/lib/systemd/system/x"}))
    drop_ins = [f"{path}.d/x.conf" for path in (PLACES.unit_file, PLACES.boot_file)]
    every = "/etc/systemd/system/service.d/x.conf"
    known = "/usr/lib/systemd/system/standin-.service.d/x.conf"
    edits = {
        PLACES.unit_file: target().unit_text + "#\n",
        PLACES.boot_file: target().boot_text + "#\n",
        PLACES.guard(GUARD): "# other\n",
        **dict.fromkeys(drop_ins, ""),
    }
    found = installed(target(), DropInPaths=f"{every} {drop_ins[0]} {known}")
    plan = make_plan(target(), with_files(found, files=edits))
    assert plan.facts.drop_ins == [*drop_ins, known]
    assert len(plan.drift) == 6
    assert not plan.unchanged


@pytest.mark.parametrize(
    ("service", "loads", "seconds", "word"),
    [
        ({}, (100.0, 240.0), 720, "3 times the slowest of 2 measured loads (240.0 s)"),
        ({}, (0.5,), 20, "never less than server.timeouts.start_s (20 s)"),
        ({}, (), 20, "nothing measured"),
        ({}, (6.0, 7.0), 21, "never less than"),
        ({"start_timeout_s": 77.0}, (100.0,), 77, "service.start_timeout_s"),
    ],
)
def test_the_time_for_a_start_comes_from_the_measured_load_and_says_so(
    service, loads, seconds, word
):
    found, origin = start_timeout(make_params(1, **service), loads)
    assert found == seconds
    assert word in origin


def test_a_limit_below_what_the_server_is_given_to_load_is_raised_and_told():
    params = make_params(1)
    service = params.service.model_copy(update={"start_timeout_s": 7.0})
    found, origin = start_timeout(params.model_copy(update={"service": service}), (1.0,))
    assert found == params.server.timeouts.start_s
    assert "service.start_timeout_s is 7 s" in origin


def test_the_gate_gives_up_before_systemd_does():
    unit = parse_unit(target(start_timeout_s=50.0).unit_text)
    gate = unit.command("ExecStartPost", 0)
    assert gate[gate.index("--deadline") + 1] == "50"
    assert unit.value("Service", "TimeoutStartSec") == "55s"
    assert gate[gate.index("--model") + 1] == "standin"
    assert "/usr/bin/python3 -IS" in " ".join(gate)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:18080"),
        ("::", "http://[::1]:18080"),
        ("0", "http://127.0.0.1:18080"),
        ("10.0.0.1", "http://10.0.0.1:18080"),
    ],
)
def test_the_server_is_asked_where_it_listens(address, url):
    params = make_params(18080)
    server = params.server.model_copy(update={"address": address})
    assert local_url(server) == url
    params = params.model_copy(update={"server": server})
    made = make_target(params, "baseline", make_measured(1), GUARD, "/usr/bin/python3", "run")
    gate = parse_unit(made.unit_text).command("ExecStartPost", 0)
    assert gate[gate.index("--url") + 1] == url


def test_model_paths_are_mounts_that_must_be_there():
    unit = parse_unit(target("--model", "/models/a b", "--x=/no", "/tail ").unit_text)
    mounts = unit.values("Unit", "RequiresMountsFor")
    assert '"/models/a b"' in mounts
    assert f'"{sys.executable}"' in mounts
    assert not [mount for mount in mounts if "no" in mount or "tail" in mount]


def test_a_gpu_host_gets_its_device_nodes_before_the_start():
    params = make_params(18080)
    params = params.model_copy(update={"stack": params.stack.model_copy(update={"gpus": 8})})
    made = make_target(params, "baseline", make_measured(1), GUARD, "/usr/bin/python3", "run")
    assert " -c=7 -c=255" in made.unit_text
    patience = parse_unit(made.unit_text).value("Service", "TimeoutStartSec")
    assert patience == "95s", "the guard has time to say which cards are not there yet"
    assert "nvidia-modprobe" not in target().unit_text


def test_the_meaning_of_a_difference_is_said_by_option_variable_and_setting():
    before = (
        "[Service]\nExecStart=/p -m x --steps 3 --flag --n -1\nEnvironment=A=1 B=2\nRestart=no\n"
    )
    after = (
        "[Service]\nExecStart=/p -m x --steps 1 --n -1 --tree=4\nEnvironment=A=2 C=3\nUser=llm\n"
    )
    assert meaning(before, after) == [
        "argument --steps: '3' -> '1'",
        "argument --flag: removed (was '')",
        "argument --tree: added, '4'",
        "variable A: '1' -> '2'",
        "variable B: removed (was '2')",
        "variable C: added, '3'",
        "setting Restart: removed (was 'no')",
        "setting User: added, 'llm'",
    ]
    assert meaning(before, before) == []
    assert meaning(None, after) == ["a new unit"]
    assert meaning(before, None) == ["the unit is removed"]


def test_old_generations_those_that_never_served_and_their_guards_are_pruned():
    files = {}
    for number in range(1, 10):
        folder = PLACES.generation(number)
        guard = f"{PLACES.root}/guard-{number}.py"
        files[guard] = "#"
        files |= {f"{folder}/{name}": "" for name in KEPT_TEXTS}
        files[f"{folder}/manifest.json"] = json.dumps({"files": {guard: "hash"}})
        if number != 7:
            files[f"{folder}/served"] = ""
    files[PLACES.current] = "2\n"
    assert prunable(HostFacts(PLACES, files)) == [
        PLACES.generation(1),
        PLACES.generation(3),
        PLACES.generation(7),
        f"{PLACES.root}/guard-1.py",
        f"{PLACES.root}/guard-3.py",
        f"{PLACES.root}/guard-7.py",
    ]


def test_damaged_state_reads_as_absent():
    facts = HostFacts(PLACES, {PLACES.current: "x", f"{PLACES.generation(1)}/manifest.json": "{"})
    assert facts.current is None
    assert facts.manifest(1) == {}
    with pytest.raises(BadInput, match="no generation 1"):
        facts.generation(1)
    half = with_files(facts, files={PLACES.replaced: '[{"unit": "x'})
    with pytest.raises(BadInput, match=r"replaced\.json is not as it was written"):
        _ = half.replaced
    files = dict(installed(target()).files)
    del files[f"{PLACES.generation(1)}/guard.py"]
    assert HostFacts(PLACES, files).generations == []


def test_the_measured_launch_comes_back_from_its_record():
    measured = make_measured(18080)
    record = {
        "fast": {
            "spec": json.loads(json.dumps(dataclasses.asdict(measured.spec))),
            "load_s": [0.5, 0.7],
            "info": dataclasses.asdict(measured.info),
            "launch": "unit",
        },
        "broken": {"spec": {"argv": ["/x"]}},
    }
    found = measured_in(Recorded({"launches.json": record}), "fast")
    assert found == measured
    with pytest.raises(BadInput, match="does not describe"):
        measured_in(Recorded({"launches.json": record}), "broken")
    with pytest.raises(NotHere, match="was not measured"):
        measured_in(Recorded({}), "fast")


class Recorded:
    def __init__(self, artefacts):
        self.read_json = artefacts.get
