"""Figures that were measured elsewhere are accepted by a person, for a reason, or refused."""

import pytest
from test_params import MINIMAL

from runbook import foreign, params
from runbook.errors import BadInput, NotChosen
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
    return foreign.gather([table])


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
