"""An assumption is tested only where each item of its list was compared, and never by less."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook.publish.artefacts import Artefacts
from runbook.publish.assumptions import ASSUMPTIONS, assumptions, judge
from runbook.run import Run

CHOSEN = Path(__file__).parents[1] / "cases" / "records" / "chosen"
STRENGTH = {"refuted": 0, "not tested": 1, "tested": 2}
TRAFFIC, LAUNCH, NCCL, MODEL = (one.text for one in ASSUMPTIONS)
OF_THE_LAUNCH = [
    "arguments",
    "environment",
    "worker environment",
    "interpreter",
    "sitecustomize",
    "limits",
    "working directory",
    "user",
]


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    """The eight-card run with everything compared: recorded all-reduce times, files read again."""
    folder = tmp_path_factory.mktemp("assumptions") / "run"
    shutil.copytree(CHOSEN, folder)
    run = Run.open(folder)
    change_params(run, lambda values: values["stack"].update(collective_us={"32768": 100.0}))
    proofs = run.read_json("service/proofs.json", list)
    proofs = [one for one in proofs if one["name"] != "model files"]
    proofs.append({"name": "model files", "status": "proved", "evidence": "equal"})
    run.write_json("service/proofs.json", proofs)
    return folder


@pytest.fixture
def run(compared, tmp_path) -> Run:
    shutil.copytree(compared, tmp_path / "run")
    return Run.open(tmp_path / "run")


def change_params(run, change) -> None:
    values = run.params.model_dump(mode="json")
    change(values)
    run.write("params.yaml", json.dumps(values))


def change_json(run, name, change, kind=dict) -> None:
    value = run.read_json(name, kind)
    change(value)
    run.write_json(name, value)


def judged(run) -> dict[str, tuple[str, str]]:
    found = Artefacts.of(run.path)
    return {one.text: judge(one, found) for one in ASSUMPTIONS}


def test_three_are_tested_where_everything_was_compared(run):
    words = {text: word for text, (word, _) in judged(run).items()}
    assert words == {TRAFFIC: "not tested", LAUNCH: "tested", NCCL: "tested", MODEL: "tested"}


def test_the_table_has_a_row_for_each(run):
    rows = str(assumptions(run.path)).splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [
        one.text for one in ASSUMPTIONS
    ]


@pytest.mark.parametrize("name", OF_THE_LAUNCH)
@pytest.mark.parametrize(
    ("status", "word"),
    [("refuted", "refuted"), ("not provable here", "not tested"), (None, "not tested")],
)
def test_each_proof_of_the_launch_decides(run, name, status, word):
    def change(proofs):
        for one in [one for one in proofs if one["name"] == name]:
            one["status"] = status
            if status is None:
                proofs.remove(one)

    change_json(run, "service/proofs.json", change, list)
    assert judged(run)[LAUNCH][0] == word
    assert name in judged(run)[LAUNCH][1]


def test_an_unmeasured_install_tests_no_launch(run):
    change_json(run, "service/manifest.json", lambda m: m.update(run="unmeasured: disk is dying"))
    word, evidence = judged(run)[LAUNCH]
    assert word == "not tested"
    assert "no launch was measured" in evidence and "disk is dying" in evidence


def test_another_launch_than_the_recorded_one_refutes(run):
    change_json(
        run, "service/manifest.json", lambda m: m["spec"]["env"].update(NCCL_P2P_LEVEL="PHB")
    )
    assert judged(run)[LAUNCH][0] == "refuted"


def test_times_compared_with_nothing_test_nothing(run):
    change_params(run, lambda values: values["stack"].update(collective_us={}))
    word, evidence = judged(run)[NCCL]
    assert word == "not tested"
    assert "compared with nothing (stack.collective_us is empty)" in evidence


def test_a_class_of_links_that_nobody_declared_tests_nothing(run):
    change_params(run, lambda values: values["stack"].update(topology=""))
    assert judged(run)[NCCL][0] == "not tested"


@pytest.mark.parametrize("name", ["topology", "collective"])
@pytest.mark.parametrize(
    ("status", "word"), [("warn", "not tested"), ("unknown", "not tested"), ("fail", "refuted")]
)
def test_a_warning_is_no_answer(run, name, status, word):
    def change(stack):
        next(one for one in stack["checks"] if one["name"] == name)["status"] = status

    change_json(run, "stack.json", change)
    assert judged(run)[NCCL][0] == word


def test_a_served_name_is_no_model_file(run):
    change_json(run, "stack.json", lambda stack: stack.update(checks=[]))
    word, evidence = judged(run)[MODEL]
    assert word == "not tested"
    assert "model list" not in evidence


def test_files_that_are_not_read_again_test_nothing(run):
    def change(proofs):
        proofs[:] = [one for one in proofs if one["name"] != "model files"]

    change_json(run, "service/proofs.json", change, list)
    assert judged(run)[MODEL][0] == "not tested"


def test_a_draft_that_does_not_exist_needs_no_comparison(run):
    def without_draft(values):
        values["server"]["draft"] = ""
        values["configurations"] = values["configurations"][:1]
        values["choose"].update(expected=None, prefer=[], override=None)

    change_params(run, without_draft)
    change_json(
        run,
        "stack.json",
        lambda stack: [
            one.update(status="skipped") for one in stack["checks"] if one["name"] == "draft"
        ],
    )
    assert judged(run)[MODEL][0] == "tested"


#: Keys of the artefacts whose loss or change may only weaken what they are evidence of.
STATUSES = ["fail", "warn", "unknown", "skipped", "refuted", "not provable here", "other", ""]


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_changed_piece_of_evidence_only_weakens(compared, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("changed") / "run"
    shutil.copytree(compared, folder)
    run = Run.open(folder)
    before = judged(run)
    name = data.draw(
        st.sampled_from(
            ["service/proofs.json", "stack.json", "service/manifest.json", "launches.json"]
        )
    )
    if data.draw(st.booleans()) and name != "service/proofs.json":
        (folder / name).unlink()
    elif name in ("service/proofs.json", "stack.json"):

        def change(value):
            rows = value if isinstance(value, list) else value["checks"]
            row = data.draw(st.sampled_from(rows))
            if data.draw(st.booleans()):
                rows.remove(row)
            else:
                row["status"] = data.draw(st.sampled_from(STATUSES))

        change_json(run, name, change, list if name.endswith("proofs.json") else dict)
    else:

        def change(value):
            chosen = value if "spec" in value else value["eagle3-topk1-spec-v2"]
            part = data.draw(st.sampled_from(sorted(chosen["spec"])))
            chosen["spec"][part] = "changed" if data.draw(st.booleans()) else None

        change_json(run, name, change)
    after = judged(run)
    assert all(STRENGTH[after[text][0]] <= STRENGTH[before[text][0]] for text in before)
