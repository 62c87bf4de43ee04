"""What is read out of the server's answers, as captured and in shapes it could take."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.engines import Counters, ServerInfo
from runbook.engines.llamacpp import LlamaCpp, asked_speculation, read_counters, read_info
from runbook.params import Configuration

CASES = Path(__file__).parents[1] / "cases" / "llamacpp"
ENGINE = LlamaCpp()
BASELINE = Configuration(name="baseline")
LEAN = Configuration(name="lean", args=["--spec-type", "ngram-simple"])
PROPS = json.loads((CASES / "props-baseline.json").read_text())


def case(name):
    text = (CASES / name).read_text()
    return json.loads(text) if name.endswith(".json") else text


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("baseline", "none"), ("ngram-wide", "ngram-simple"), ("ngram-lean", "ngram-simple")],
)
def test_info_as_captured(name, algorithm):
    assert read_info(PROPS, case(f"slots-{name}.json")) == ServerInfo(
        model_id="smollm2-135m-instruct-f32",
        speculation=algorithm,
        max_concurrency=8,
        settings={
            "model_path": "/models/smollm2-135m-instruct-f32.gguf",
            "weights": "all F32",
            "slots": 8,
            "context_per_slot": 2048,
            "build": "b0-unknown",
        },
    )


def test_the_properties_alone_never_tell_the_algorithm():
    assert PROPS["default_generation_settings"]["params"]["speculative.types"] == "none"
    assert read_info(PROPS, None).speculation == "unknown"


@pytest.mark.parametrize(
    ("slots", "algorithm"),
    [
        ([], "unknown"),
        ({"error": "x"}, "unknown"),
        ([{"id": 0}], "unknown"),
        ([{"speculative": True}], "unknown"),
        ([{"speculative": True}, {"speculative": False}], "unknown"),
        ([{"speculative": False, "params": {"speculative.types": "draft-eagle3"}}], "none"),
        ([{"speculative": True, "params": {"speculative.types": "ngram-mod"}}], "ngram-mod"),
        ([{"speculative": True, "params": {"speculative.types": 7}}], "unknown"),
        ([None, {"speculative": True, "params": []}], "unknown"),
    ],
)
def test_the_slots_tell_the_algorithm(slots, algorithm):
    assert read_info({}, slots).speculation == algorithm


@pytest.mark.parametrize(
    ("slots", "expected"),
    [("8", 8), (8.0, 8), (8.5, None), (True, None), ("eight", None), (None, None), ([], None)],
)
def test_numbers_in_other_clothes(slots, expected):
    assert read_info({"total_slots": slots}, None).max_concurrency == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
KEYS = ["total_slots", "model_path", "model_alias", "model_ftype", "default_generation_settings"]
SLOT = st.fixed_dictionaries({}, optional={"speculative": JSON, "params": JSON})


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(KEYS), JSON), st.lists(SLOT | JSON) | JSON)
def test_any_answer_is_read_without_an_error(properties, slots):
    info = read_info(properties, slots)
    assert info.max_concurrency is None or isinstance(info.max_concurrency, int)
    assert info.model_id and info.speculation


# --- counters ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["baseline", "ngram-wide", "ngram-lean"])
def test_counters_as_captured(name):
    counters = read_counters(case(f"metrics-{name}.txt"))
    assert counters.predicted == 68
    assert (counters.drafted == 0) == (name == "baseline")
    assert counters.accepted <= counters.drafted
    drafts = {"baseline": [0], "ngram-wide": range(1, 68), "ngram-lean": range(1, 68)}
    assert counters.drafts in drafts[name]


def test_a_counter_that_is_not_exposed_is_none():
    text = "llamacpp:tokens_predicted_total 1.5e+06\nvllm:other 4\n"
    assert read_counters(text) == Counters(predicted=1500000)
    assert read_counters("# nothing\n") is None


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (Counters(64, 472, 48, 60), 4.0),
        (Counters(64, 0, 0, 0), 1.0),
        (Counters(64), None),
        (Counters(0, 0, 0, 0), None),
        (Counters(None, 8, 4, 1), None),
        (Counters(4, 8, 4, 1), None),
    ],
)
def test_acceptance_length_is_output_tokens_per_verify_step(cell, expected):
    assert ENGINE.acceptance_length(cell) == expected


# --- checks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configuration", "found", "status"),
    [
        (BASELINE, "none", "pass"),
        (BASELINE, "ngram-simple", "fail"),
        (LEAN, "ngram-simple", "pass"),
        (LEAN, "none", "fail"),
        (LEAN, "draft-simple", "fail"),
        (LEAN, "unknown", "unknown"),
        (BASELINE, "unknown", "unknown"),
    ],
)
def test_the_configuration_is_what_runs(configuration, found, status):
    (check,) = ENGINE.check_configuration(ServerInfo("m", found, 8), configuration)
    assert (check.status, check.found) == (status, found)
    assert bool(check.fix) == (status != "pass")


@pytest.mark.parametrize(
    ("configuration", "cell", "status"),
    [
        (BASELINE, Counters(64, 0, 0, 0), "pass"),
        (BASELINE, Counters(64, 8, 4, 1), "fail"),
        (LEAN, Counters(64, 40, 20, 5), "pass"),
        (LEAN, Counters(64, 0, 0, 0), "fail"),
        (LEAN, Counters(64, 40, 0, 5), "warn"),
        (LEAN, Counters(64), "unknown"),
        (BASELINE, Counters(), "unknown"),
    ],
)
def test_the_draft_is_used_exactly_where_it_was_asked_for(configuration, cell, status):
    (check,) = ENGINE.check_cell(cell, configuration)
    assert check.status == status
    assert bool(check.fix) == (status != "pass")


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ([], "none"),
        (["--spec-type=ngram-simple"], "ngram-simple"),
        (["--spec-type", "draft-simple", "--spec-type", "none"], "none"),
        (["--spec-type"], "none"),
        (["--alias", "x"], "none"),
    ],
)
def test_the_last_word_on_speculation_counts(args, asked):
    assert asked_speculation(Configuration(name="c", args=args)) == asked
