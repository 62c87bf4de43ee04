"""Figures that were measured elsewhere are accepted by a person, for a reason, or refused."""

import pytest
from test_params import MINIMAL

from runbook import params
from runbook.errors import BadInput, NotChosen
from runbook.run import Run
from runbook.verbs import given

FASTER = {"baseline": 10.0, "fast": 14.0}
SLOWER = {"baseline": 10.0, "fast": 9.0}


def parameters(*others, **choose):
    values = {
        **MINIMAL,
        "configurations": [{"name": name} for name in ("baseline", "fast", *others)],
        "benchmark": {"concurrencies": [1]},
        "choose": {"mix": [{"concurrency": 1, "share": 1}], **choose},
    }
    return params.from_values(values, "x")


def figures(tmp_path, speeds):
    table = tmp_path / "t.csv"
    rows = [f"{name},1,{speed}" for name, speed in speeds.items()]
    table.write_text("\n".join(["config,concurrency,output_tok_s", *rows]) + "\n")
    return given.read(parameters(), [table])


def test_the_choice_of_the_figures_is_accepted_by_name(tmp_path):
    terms = parameters("other")
    found = given.accept(terms, figures(tmp_path, FASTER), "weeks of it", "me")
    override = found.choose.override
    assert (override.choose, override.reason, override.by) == ("fast", "weeks of it", "me")


def test_a_slower_configuration_leaves_the_baseline_to_be_accepted(tmp_path):
    found = given.accept(parameters(), figures(tmp_path, SLOWER), "as it was", "me")
    assert found.choose.override.choose == "baseline"


@pytest.mark.parametrize(
    ("reason", "by", "said"),
    [
        (None, None, "nobody has accepted"),
        ("because", None, "--accept without --by"),
        (None, "me", "--by without --accept"),
    ],
)
def test_a_reason_and_a_name_are_wanted(tmp_path, reason, by, said):
    with pytest.raises(BadInput, match=said):
        given.accept(parameters(), figures(tmp_path, FASTER), reason, by)


def test_an_override_in_the_parameters_needs_nothing_more(tmp_path):
    override = {"choose": "baseline", "reason": "as it was", "by": "me"}
    terms = parameters(override=override)
    assert given.accept(terms, figures(tmp_path, FASTER), None, None) is terms
    with pytest.raises(BadInput, match="one of them"):
        given.accept(terms, figures(tmp_path, FASTER), "because", "me")


def test_what_is_expected_and_not_chosen_is_not_accepted(tmp_path):
    with pytest.raises(NotChosen, match="expected was fast"):
        given.accept(parameters(expected="fast"), figures(tmp_path, SLOWER), "because", "me")


def test_names_of_no_configuration_are_refused(tmp_path):
    with pytest.raises(BadInput, match="the figures are of quick"):
        given.accept(parameters(), figures(tmp_path, {"baseline": 1.0, "quick": 2.0}), "so", "me")


def refused(tmp_path, header, *rows):
    table = tmp_path / "t.csv"
    table.write_text("\n".join([header, *rows]) + "\n")
    with pytest.raises(NotChosen) as raised:
        given.accept(terms := capped(), given.read(terms, [table]), "so it is", "me")
    return str(raised.value)


def capped(*args):
    """C=8 alone; ``fast`` has ``args``."""
    values = {
        **MINIMAL,
        "configurations": [{"name": "baseline"}, {"name": "fast", "args": list(args)}],
        "benchmark": {"concurrencies": [8]},
        "choose": {"mix": [{"concurrency": 8, "share": 1}]},
    }
    return params.from_values(values, "x")


@pytest.mark.parametrize(
    ("column", "baseline", "fast", "said"),
    [
        ("requests", "400", "260", "fast completed 260 requests"),
        ("tokens_out", "512", "64", "output tokens of a request"),
        ("tokens_in", "4000", "800", "input tokens of a request"),
        ("running", "8", "3", "3 ran at once, 8 were asked"),
    ],
)
def test_figures_that_may_not_be_compared_are_not_accepted(tmp_path, column, baseline, fast, said):
    header = f"config,concurrency,output_tok_s,{column}"
    rows = (f"baseline,8,10,{baseline}", f"fast,8,50,{fast}")
    assert said in refused(tmp_path, header, *rows)


def test_a_declared_cap_makes_figures_queue_limited(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("config,concurrency,output_tok_s\nbaseline,8,10\nfast,8,50\n")
    terms = capped("--max-running-requests", "2")
    with pytest.raises(NotChosen, match="2 at once are declared, 8 asked"):
        given.accept(terms, given.read(terms, [table]), "so it is", "me")


def test_two_values_of_one_cell_are_refused_with_their_lines(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("config,concurrency,output_tok_s\nbaseline,8,10\nfast,8,50\nfast,8,70\n")
    with pytest.raises(BadInput, match="line 3"):
        given.read(capped(), [table])


def test_what_the_figures_say_against_themselves_is_kept(tmp_path):
    table = tmp_path / "t.csv"
    rows = ("baseline,8,10,", "fast,8,50,1.0")
    table.write_text("\n".join(["config,concurrency,output_tok_s,accept_length", *rows]) + "\n")
    terms = capped("--speculative-algorithm", "EAGLE")
    run = Run.create(terms, tmp_path / "run")
    given.keep(run, given.read(terms, [table]), [table])
    notes = run.read_json("given/sources.json")["notes"]
    assert any("the draft is not used" in note for note in notes)
