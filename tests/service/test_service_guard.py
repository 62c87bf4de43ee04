"""The guard in the plan: what it expects, where it lies, what it said."""

import dataclasses
import json

import pytest
from standin_service import UNIT, Folder, make_measured, make_params

from runbook.install_service import guard, measured_in
from runbook.install_service.facts import HostFacts
from runbook.install_service.places import Places, digest
from runbook.install_service.plan import make_plan, make_target
from runbook.launch.unit_file import parse_unit
from runbook.params import Guard

PLACES = Places(UNIT)
FACTS = {
    "python": {"version": "3.11.7"},
    "packages": {"b": "2", "a": "1"},
    "files": {"/m": {"kind": "file"}},
    "memory": {"available_bytes": 1},
}
CARDS = ({"uuid": "GPU-1", "driver_version": "580.1", "name": "x"}, {"uuid": None})


def measured(**more):
    return dataclasses.replace(make_measured(18080), **{"facts": FACTS, "gpus": CARDS, **more})


def target(**more):
    made = measured(**more)
    python = "/usr/bin/python3"
    return make_target(make_params(18080), "baseline", made, "# guard\n", python, "run")


def test_it_expects_what_was_measured_and_nothing_that_changes_by_itself():
    expected = guard.expectations(make_params(18080), measured())
    assert expected["levels"] == Guard().model_dump()
    assert set(expected["facts"]) == {"python", "packages", "files"}
    assert expected["options"]["packages"] == ["a", "b"]
    assert expected["options"]["files"] == ["/m"]
    assert expected["gpus"] == [{"uuid": "GPU-1", "driver": "580.1"}]
    assert expected["port"] == 18080
    less = guard.expectations(make_params(18080), make_measured(18080))
    assert (less["facts"], less["gpus"]) == ({}, [])
    assert guard.as_text(expected) == guard.as_text(json.loads(guard.as_text(expected)))


def test_it_runs_before_the_start_under_the_interpreter_that_serves_with_its_flags():
    made = target()
    spec = measured().spec
    flags = dataclasses.replace(spec, argv=(spec.argv[0], "-X", "utf8", "-m", "server"))
    unit = parse_unit(target(spec=flags).unit_text)
    command = unit.command("ExecStartPre")
    assert command[:3] == (spec.argv[0], "-X", "utf8")
    assert command[3] == PLACES.guard("# guard\n")
    assert command[4] == "before-start"
    assert command[5].endswith(".json")
    native = dataclasses.replace(spec, argv=("/usr/bin/llama-server", "--port", "1"))
    assert parse_unit(target(spec=native).unit_text).command("ExecStartPre")[0] == (
        "/usr/bin/python3"
    )
    assert made.manifest["guard"] == json.loads(made.expected_text)
    assert made.manifest["files"] == {path: digest(text) for path, text in made.files.items()}


def kept(what, number=1):
    folder = PLACES.generation(number)
    files = {f"{folder}/{name}": text for name, text in what.kept.items()}
    files |= {f"{folder}/manifest.json": json.dumps(dict(what.manifest)), f"{folder}/served": ""}
    files |= {PLACES.current: f"{number}\n", PLACES.boot_link: what.boot_text, **what.files}
    state = {"UnitFileState": "enabled", "ActiveState": "active", "NeedDaemonReload": "no"}
    return HostFacts(PLACES, files, {"FragmentPath": PLACES.unit_file, **state})


def test_a_generation_comes_back_whole():
    made, back = target(), kept(target()).generation(1)
    assert (back.files, back.kept) == (made.files, made.kept)
    assert back.manifest == json.loads(json.dumps(made.manifest))
    assert make_plan(target(), kept(target())).unchanged


def test_a_changed_expectation_is_a_change_and_a_hand_edit_is_drift():
    newer = target(facts={**FACTS, "packages": {"a": "9"}})
    plan = make_plan(newer, kept(target()))
    changed = [change.path for change in plan.files if not change.same]
    assert changed == [PLACES.expected(newer.expected_text), PLACES.unit_file]
    assert plan.actions == ("daemon-reload", "restart")
    facts = kept(target())
    path = PLACES.expected(target().expected_text)
    edited = dataclasses.replace(facts, files={**facts.files, path: "{}"})
    assert make_plan(target(), edited).drift == (f"{path} was changed by hand",)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], []),
        (["gate: ready", "a guard: of something"], []),
        (["guard: 8 good, 0 not, 1 not measured, in 0.10 s"], ["8 good, 0 not, 1 not measured"]),
        (
            ["guard: fail: port: held", "guard: 1 good, 1 not", "gate: x", "guard: 2 good, 0 not"],
            ["2 good, 0 not"],
        ),
        (
            ["guard: 2 good, 0 not", "server", "guard: warn: shm: 1", "guard: 1 good, 1 not"],
            ["warn: shm: 1", "1 good, 1 not"],
        ),
        (["guard: fail: expectations /x: y"], ["fail: expectations /x: y"]),
    ],
)
def test_what_it_said_before_the_last_start_is_read_from_the_journal(lines, said):
    journal = "\n".join(f"2026-11-30T04:00:00 host python[7]: {line}" for line in lines)
    found = guard.said_in(journal)
    assert len(found) == len(said)
    assert all(one.startswith(beginning) for one, beginning in zip(found, said, strict=True))


class Stored(Folder):
    def __init__(self, path, artefacts):
        super().__init__(path)
        self.read_json = artefacts.get


def test_the_facts_of_the_stack_come_from_the_run(tmp_path):
    launches = {"baseline": {"spec": dataclasses.asdict(measured().spec)}}
    stack = {
        "readings": {
            "serving": {"baseline": {"facts": FACTS}},
            "host": {"gpus": {"value": {"gpus": list(CARDS)}}},
        }
    }
    found = measured_in(
        Stored(tmp_path, {"launches.json": launches, "stack.json": stack}), "baseline"
    )
    assert (found.facts, found.gpus) == (FACTS, CARDS)
    bare = {"readings": {"serving": {}, "host": {"gpus": {"value": None}}}}
    found = measured_in(
        Stored(tmp_path, {"launches.json": launches, "stack.json": bare}), "baseline"
    )
    assert (found.facts, found.gpus) == ({}, ())
