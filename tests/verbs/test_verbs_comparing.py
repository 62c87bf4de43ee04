"""Two runs beside each other: only what differs, and no certainty that is not there."""

import json
import re
import shutil
from pathlib import Path

import pytest

from runbook import choose
from runbook.cells import Cell, to_csv
from runbook.params import load
from runbook.run import Run
from runbook.verbs import comparing

REHEARSAL = Path(__file__).parents[2] / "params" / "rehearsal.yaml"
RECORD = Path(__file__).parents[1] / "cases" / "records" / "chosen"


def cells(factor, blocks=3):
    return [
        Cell(config, block, block, 1, output_tok_s=base * factor * (1 + 0.004 * block), requests=4)
        for config, base in (("baseline", 20.0), ("ngram-lean", 25.0))
        for block in range(1, blocks + 1)
    ]


def make_run(folder, found, facts, *overrides):
    run = Run.create(load(REHEARSAL, overrides), folder)
    run.write_json("stack.json", {"facts": facts})
    run.write("cells.csv", to_csv(found))
    run.write("decision.json", choose.decide(found, choose.equal_mix(found)).to_json())
    return run


@pytest.fixture
def runs(tmp_path):
    return (
        make_run(tmp_path / "before", cells(1.0), {"kernel": "6.1", "memory": "1 GiB"}),
        make_run(
            tmp_path / "after",
            cells(1.2),
            {"kernel": "6.2", "memory": "2 GiB", "GPUs": "8"},
            "server.port=18081",
            "workload.output_tokens=32",
            'configurations[name=ngram-lean].args=["--spec-type","ngram-simple"]',
        ),
    )


def test_what_changed_is_named_and_what_did_not_is_left_out(runs):
    found = comparing.compare(*runs)
    assert {(c.what, c.before, c.after) for c in found.stack} == {
        ("kernel", "6.1", "6.2"),
        ("GPUs", None, "8"),
    }
    changed = {change.what: change for change in found.parameters}
    assert set(changed) == {
        "server.port",
        "workload.output_tokens",
        "configurations[ngram-lean].args",
    }
    assert changed["server.port"].after == "18081"
    assert "workload.output_tokens" in found.notes[1]


def test_figures_have_the_interval_of_two_runs_that_share_no_block(runs):
    found = {figure.config: figure for figure in comparing.compare(*runs).figures}
    figure = found["ngram-lean"]
    assert figure.ratio == pytest.approx(1.2)
    assert figure.low < 1.2 < figure.high
    assert figure.word == "faster"
    assert figure.after / figure.before == pytest.approx(1.2)


def test_fewer_than_three_blocks_on_a_side_give_no_interval():
    [figure, _] = comparing.compare_cells(cells(1.0), cells(1.2, blocks=2))
    assert (figure.low, figure.high, figure.word) == (None, None, "no interval")


def test_a_point_of_one_run_alone_and_cells_that_are_void():
    lone = Cell("new", 1, 1, 8, output_tok_s=5.0)
    void = Cell("void", 1, 1, 8, output_tok_s=5.0, status="void")
    [figure] = comparing.compare_cells([], [lone, void])
    assert (figure.before, figure.after, figure.word) == (
        None,
        pytest.approx(5.0),
        "only in one run",
    )


def test_the_same_run_differs_in_nothing(runs):
    found = comparing.compare(runs[0], runs[0])
    assert (found.stack, found.parameters, found.choice) == ((), (), ())
    assert {figure.word for figure in found.figures} == {"not clear"}
    assert comparing.as_text(found).count("nothing differs") == 3
    assert "to be served: ngram-lean, in both" in comparing.as_text(found)


def test_a_run_that_has_measured_nothing_is_compared_all_the_same(runs, tmp_path):
    empty = Run.create(load(REHEARSAL), tmp_path / "empty")
    found = comparing.compare(empty, runs[0])
    assert {change.what for change in found.choice} >= {"status", "choice"}
    assert {figure.before for figure in found.figures} == {None}
    assert "unknown -> 20.2" in comparing.as_text(found)


def test_text_and_json_say_the_same(runs):
    found = comparing.compare(*runs)
    text = comparing.as_text(found)
    value = json.loads(comparing.as_json(found))
    assert value["before"] == "before"
    for change in [*value["stack"], *value["parameters"], *value["choice"]]:
        assert change["what"] in text


# --- two tunings of the production case -------------------------------------------------------

TUNED = {
    "nccl": ("pass", "2.29.3 from libnccl.so.2"),
    "iommu": ("pass", "iommu=pt"),
    "acs": ("warn", "redirects on 3 of 8 bridges"),
    "memory": ("pass", "3 GiB available"),
    "kernel_driver": ("unknown", "another reason"),
    "driver": ("pass", "8 x 590.1"),
}


@pytest.fixture
def tunings(tmp_path):
    """The run of the stand-in host, and the same with another tuning of host and servers."""
    for name in ("before", "after"):
        shutil.copytree(RECORD, tmp_path / name)
    stack = json.loads((tmp_path / "after" / "stack.json").read_text())
    for check in stack["checks"]:
        check["status"], check["found"] = TUNED.get(
            check["name"], (check["status"], check["found"])
        )
    stack["facts"]["kernel"] = "6.9"
    launches = json.loads((tmp_path / "after" / "launches.json").read_text())
    for config, launch in launches.items():
        launch["info"]["settings"] |= {"attention_backend": "flashinfer", "new_setting": 1}
        if config == "eagle3-topk1-spec-v2":
            next(one for one in launch["checks"] if one["name"] == "worker")["found"] = "v1"
    for name, value in (("stack.json", stack), ("launches.json", launches)):
        (tmp_path / "after" / name).write_text(json.dumps(value))
    return Run.open(tmp_path / "before"), Run.open(tmp_path / "after")


def test_what_checks_found_otherwise_is_a_change_of_the_stack(tunings):
    found = {change.what: change for change in comparing.compare(*tunings).stack}
    assert set(found) == {"kernel", "nccl", "iommu", "acs", "driver"}
    assert found["nccl"].after == "2.29.3 from libnccl.so.2"
    assert found["acs"].before == "pass, off on 8 bridges"
    assert found["iommu"].after == "pass, iommu=pt"


def test_what_servers_said_otherwise_is_told_with_who_said_it(tunings):
    found = comparing.compare(*tunings)
    assert [(one.what, one.before, one.after) for one in found.servers] == [
        ("all: attention_backend", "triton", "flashinfer"),
        ("eagle3-topk1-spec-v2: worker", "v2 overlap", "v1"),
    ]
    assert "eagle3-topk1-spec-v2: worker: v2 overlap -> v1" in comparing.as_text(found)


def test_figures_are_those_of_the_record(tunings):
    text = comparing.as_text(comparing.compare(*tunings))
    record = (RECORD / "golden.md").read_text()
    row = re.search(r"^\| eagle3-topk1-spec-v2 \| 10 \|.*", record, re.MULTILINE)[0].split(" | ")
    speed, ttft, tpot, accepted = row[2], row[4], row[6], row[8]
    assert f"eagle3-topk1-spec-v2 C=10: {speed} -> {speed}  +0.0 % (" in text
    said = f"TTFT p50 {ttft} -> {ttft} ms, TPOT p50 {tpot} -> {tpot} ms"
    assert f"{said}, accepted {accepted} -> {accepted} tokens a step" in text


def test_an_override_serves_and_another_rule_or_runbook_is_told(tunings):
    before, after = tunings
    values = after.params.model_dump(mode="json")
    values["choose"]["override"] = {"choose": "baseline", "reason": "night", "by": "me"}
    values["choose"]["mix"][0]["share"] = 0.5
    after.write("params.yaml", json.dumps(values))
    state = after.read_json("run.json")
    after.write_json("run.json", {**state, "versions": {**state["versions"], "commit": "abc"}})
    found = comparing.compare(before, Run.open(after.path))
    text = comparing.as_text(found)
    assert "to be served: eagle3-topk1-spec-v2 -> baseline (by override of me)" in text
    assert "the rule is another (choose.mix[0].share)" in text
    assert "the runbook was another, commit: unknown -> abc" in text


def test_figures_of_another_tool_are_told(tunings):
    tunings[1].write_json("measured.json", {"figures_of": "/tmp/theirs.csv"})
    assert any("of /tmp/theirs.csv" in note for note in comparing.compare(*tunings).notes)
