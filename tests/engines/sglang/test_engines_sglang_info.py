"""``/server_info`` over releases: captured, and in the shapes that other releases give."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang_answers import case

from runbook.engines.sglang.info import read_info, running_worker
from runbook.redaction import REMOVED, without_secrets

TREE = case("server_info-eagle3-topk4.json")
RANK = "effective_max_running_requests_per_dp"


def changed(**values):
    return {**copy.deepcopy(TREE), **values}


def ranks(*states):
    return changed(internal_states=list(states))


def test_as_captured():
    baseline = read_info(case("server_info-baseline.json"))
    assert (baseline.model_id, baseline.speculation) == ("m/target", "none")
    assert (baseline.max_concurrency, baseline.settings["worker"]) == (2048, "none")
    tree = read_info(TREE)
    assert (tree.speculation, tree.max_concurrency) == ("EAGLE3", 48)
    expected = {
        "version": "0.5.23",
        "worker": "v2",
        "disable_overlap_schedule": True,
        "speculative_eagle_topk": 4,
        "speculative_num_steps": 3,
        "speculative_num_draft_tokens": 16,
        "speculative_draft_model_path": "m/eagle3",
        "attention_backend": "torch_native",
        "prefill_attention_backend": "intel_amx",
        "decode_attention_backend": "intel_amx",
        "mem_fraction_static": 0.719,
        "ranks_differ": [],
    }
    assert {name: tree.settings[name] for name in expected} == expected
    assert tree.settings["launch_command"].startswith("--model-path m/target8 --device cpu")
    assert tree.settings["env_vars"]["SGLANG_EXPOSE_OWN_ENV_VARS"] == "1"


def test_arguments_in_an_object_of_their_own_read_the_same():
    own = {k: v for k, v in TREE.items() if k in ("version", "internal_states", "status")}
    nested = {**own, "server_args": {k: v for k, v in TREE.items() if k not in own}}
    assert read_info(nested) == read_info(TREE)


def test_a_single_state_that_is_no_list():
    assert read_info(changed(internal_states=TREE["internal_states"][0])) == read_info(TREE)


def test_numbers_and_truths_as_text():
    said = changed(
        speculative_eagle_topk="4",
        speculative_num_steps=3.0,
        disable_overlap_schedule="true",
        mem_fraction_static="0.719",
        internal_states=[{**TREE["internal_states"][0], RANK: "48"}],
    )
    assert read_info(said) == read_info(TREE)


def test_a_router_wraps_the_servers():
    wrapped = {"prefill": [changed(speculative_algorithm=None)], "decode": [TREE]}
    assert read_info(wrapped) == read_info(TREE)
    twice = read_info({"decode": [TREE, TREE]})
    assert twice.max_concurrency == 96


def test_a_rank_each_and_the_fewest_count():
    state = TREE["internal_states"][0]
    eight = ranks(*[{**state, RANK: 6} for _ in range(8)]) | {"dp_size": 8}
    assert read_info(eight).max_concurrency == 48
    differ = read_info(ranks({**state, RANK: 48}, {**state, RANK: 32}))
    assert differ.max_concurrency == 32
    assert differ.settings["ranks_differ"] == [f"{RANK}: 32, 48"]


def test_a_release_that_tells_less():
    old = {"model_path": "/m", "speculative_algorithm": None, "max_running_requests": 7}
    info = read_info(old)
    assert (info.model_id, info.speculation, info.max_concurrency) == ("/m", "none", 7)
    assert info.settings["version"] is None and info.settings["env_vars"] is None
    assert read_info({"model_path": "/m"}).speculation == "unknown"
    assert read_info({"model_path": "/m"}).max_concurrency is None


@pytest.mark.parametrize("graph", [1.5, {"decode": 0.5}, None])
def test_the_memory_of_graphs_is_a_number_or_an_object(graph):
    state = {**TREE["internal_states"][0], "memory_usage": {"graph": graph}}
    assert read_info(ranks(state)).max_concurrency == 48


@pytest.mark.parametrize("state", [{}, {"avg_spec_accept_length": 2.4}])
def test_acceptance_since_the_start_is_no_setting(state):
    assert read_info(ranks({**TREE["internal_states"][0], **state})) == read_info(TREE)


@pytest.mark.parametrize(
    ("version", "algorithm", "no_overlap", "worker"),
    [
        ("0.5.10", "EAGLE3", True, "v1"),
        ("0.5.10", "EAGLE3", False, "v2 overlap"),
        ("0.5.13", "EAGLE3", True, "v2"),
        ("0.9.0", "EAGLE3", False, "v2 overlap"),
        ("0.9.0", "EAGLE3", True, "no overlap"),
        (None, "EAGLE3", True, "no overlap"),
        ("0.5.10", "none", False, "none"),
        ("0.5.10", "EAGLE3", None, "unknown"),
        ("0.5.10", "unknown", True, "unknown"),
    ],
)
def test_the_worker_by_overlap_and_release(version, algorithm, no_overlap, worker):
    assert running_worker(version, algorithm, no_overlap) == worker


def test_nextn_is_eagle():
    assert read_info(changed(speculative_algorithm="NEXTN")).speculation == "EAGLE"


@pytest.mark.parametrize("answer", [None, [], "x", 7, {}, {"decode": []}, {"decode": [7]}])
def test_what_is_no_server_info(answer):
    assert read_info(answer) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    *("model_path", "speculative_algorithm", "version", "dp_size", "disable_overlap_schedule"),
    *("internal_states", "server_args", "decode", "mem_fraction_static", "served_model_name"),
]


@settings(max_examples=150)
@given(
    st.dictionaries(st.sampled_from(KEYS), JSON | st.lists(st.dictionaries(st.just(RANK), JSON)))
)
def test_any_answer_is_read_without_an_error(answer):
    info = read_info(answer)
    assert info is None or (info.model_id and info.speculation)
    assert info is None or info.max_concurrency is None or isinstance(info.max_concurrency, int)


# --- secrets -------------------------------------------------------------------------------


def test_nothing_of_the_captured_answer_is_taken_for_a_secret_but_its_keys():
    def changes(before, after):
        return {name for name in before if before[name] != after[name]}

    after = without_secrets(TREE)
    keys = {"watermark_key", "watermark_key_b"}
    assert changes(TREE, after) == {*keys, "internal_states"}
    assert changes(TREE["internal_states"][0], after["internal_states"][0]) == keys


@pytest.mark.parametrize(
    "told",
    [
        {"api_key": "S"},
        {"admin_api_key": "S"},
        {"ssl_keyfile_password": "S"},
        {"internal_states": [{"api_key": "S", "hf_token": "S"}]},
        {"server_args": {"api_keys": ["S", "S"]}},
        {"env_vars": {"SGLANG_SECRET": "S", "HF_TOKEN": "S", "AWS_SECRET_ACCESS_KEY": "S"}},
        {"launch_command": "--port 1 --api-key S --tp 8"},
        {"launch_command": "--admin-api-key=S"},
        {"launch_command": "--api-key 'S S S'"},
        {"argv": ["--port", "1", "--api-key", "S", "--tp", "8"]},
        {"argv": ["--api-key=S"]},
    ],
)
def test_secrets_are_gone_at_any_depth(told):
    after = str(without_secrets(told))
    assert "S" not in after.replace("SGLANG_SECRET", "").replace("AWS_SECRET_ACCESS_KEY", "")
    assert REMOVED in after


@pytest.mark.parametrize(
    "told", [{"api_key": None}, {"api_key": ""}, {"max_total_num_tokens": 8192}, {"keys": "kept"}]
)
def test_what_is_none_stays(told):
    assert without_secrets(told) == told


@given(JSON)
def test_any_value_keeps_its_shape(value):
    assert type(without_secrets(value)) is type(value)
