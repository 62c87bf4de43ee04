"""Two runs beside each other: only what differs, and no certainty that is not there."""

import json
from pathlib import Path

import pytest

from runbook import choose
from runbook.cells import Cell, to_csv
from runbook.params import load
from runbook.run import Run
from runbook.verbs import comparing

REHEARSAL = Path(__file__).parents[2] / "params" / "rehearsal.yaml"


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
