"""What exists on which release of SGLang, and what is refused or warned of before a start."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.engines import Seen
from runbook.engines.sglang.checks import STACK_CHECKS, check_releases
from runbook.engines.sglang.models import ModelFacts, read_model
from runbook.engines.sglang.releases import RELEASES, expected_worker, find_release, releases_where
from runbook.params import from_values, load

KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {"kv_lora_rank": 512, "quantization_config": {"quant_method": "x"}},
}
LLAMA = {"architectures": ["LlamaForCausalLM"]}
LLAMA_DRAFT = {"architectures": ["LlamaForCausalLMEagle3"]}
MLA_DRAFT = {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "kv_lora_rank": 512}
PRODUCTION = Path(__file__).parents[3] / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml"
SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"
READ = ["0.5.6", "0.5.9", "0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1"]
READ += ["0.5.13", "0.5.13.post1", "0.5.14", "0.5.20", "0.5.21", "0.5.23"]


def eagle(topk=4, tokens=None, algorithm="EAGLE3", steps=3, unquant=True):
    words = ["--speculative-algorithm", algorithm, "--speculative-num-steps", str(steps)]
    words += ["--speculative-eagle-topk", str(topk)]
    words += ["--speculative-num-draft-tokens", str(tokens or (steps + 1 if topk == 1 else 16))]
    return words + ["--speculative-draft-model-quantization", "unquant"] * unquant


def params(*, name="eagle", args=None, env=None, shared=(), shared_env=None, **changes):
    """A baseline and one more configuration, with one explicit cap for both."""
    cap = changes.pop("cap", ["--max-running-requests", "128"])
    concurrencies = changes.pop("concurrencies", [1, 100])
    return from_values(
        {
            "name": "x",
            "server": {
                "engine": "sglang",
                "port": 30000,
                "model": "/target",
                "draft": "/draft",
                "args": [*cap, *shared],
                "env": shared_env or {},
                **changes,
            },
            "configurations": [
                {"name": "baseline"},
                {"name": name, "args": eagle() if args is None else args, "env": env or {}},
            ],
            "benchmark": {"concurrencies": concurrencies},
            "choose": {"mix": [{"concurrency": 1, "share": 1}]},
            "service": {"unit": "x.service"},
        },
        "test",
    )


def check(version, *, target=KIMI, draft=LLAMA_DRAFT, **how):
    """What is not a pass: name -> (status, all that is said)."""
    checks = check_releases(params(**how), version, read_model(target), read_model(draft))
    bad = [c for c in checks if c.status != "pass"]
    return {c.name: (c.status, f"{c.found} | {c.wanted} | {c.fix}") for c in bad}


# --- A1: which worker runs -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "topk", "switch", "worker"),
    [
        ("0.5.10", 4, True, "refused"),
        ("0.5.9", 4, True, "refused"),
        ("0.5.10", 4, None, "v1"),
        ("0.5.10", 4, False, "v1"),
        ("0.5.10", 1, None, "v1"),
        ("0.5.10.post1", 1, True, "v2 overlap"),
        ("0.5.11", 4, None, "v1"),
        ("0.5.12", 4, None, "v1"),
        ("0.5.12", 4, True, "v1"),
        ("0.5.12.post1", 1, None, "v2 overlap"),
        ("0.5.12", 1, False, "v1"),
        ("0.5.13", 4, None, "v2 overlap"),
        ("0.5.13", 4, False, "v2"),
        ("0.5.13", 1, True, "v2 overlap"),
        ("0.5.14", 4, False, "v2 overlap"),
        ("0.5.23", 4, None, "v2 overlap"),
        ("0.5.23", 1, False, "v2 overlap"),
        ("0.5.6", 4, True, None),
        ("0.5.10", None, True, None),
    ],
)
def test_the_worker_of_a_release(version, topk, switch, worker):
    assert expected_worker(find_release(version), topk, switch) == worker


@pytest.mark.parametrize(
    ("version", "worker"), [("0.5.13", "v2"), ("0.5.23", "v2"), ("0.5.10", None)]
)
def test_overlap_switched_off_by_its_own_option(version, worker):
    assert expected_worker(find_release(version), 1, True, no_overlap=True) == worker


def test_a_refused_combination_names_where_it_exists():
    status, said = check("0.5.10", env={SPEC_V2: "True"})["sglang_worker"]
    assert status == "fail"
    assert "eagle: topk 4" in said and "refuses to start" in said
    assert "exists on 0.5.13 to 0.5.23" in said


@pytest.mark.parametrize("version", ["0.5.13", "0.5.13.post1", "0.5.14", "0.5.20", "0.5.23"])
@pytest.mark.parametrize("env", [{}, {SPEC_V2: "True"}, {SPEC_V2: "False"}])
def test_topk4_v1_cannot_be_run_where_there_is_no_v1_worker(version, env):
    status, said = check(version, name="eagle3-topk4-v1", env=env)["sglang_worker"]
    assert status == "fail"
    assert f"SGLang {version} does not have" in said
    assert "0.5.10 to 0.5.12.post1" in said
    assert "topk 4 against topk 1" in said and "--disable-overlap-schedule" in said


def test_v1_for_another_model_exists_on_older_releases_too():
    _, said = check("0.5.13", name="a-v1", target=LLAMA)["sglang_worker"]
    assert "0.5.6 to 0.5.12.post1" in said


def test_a_topk1_spec_v2_that_would_run_on_v1_is_mislabelled():
    status, said = check("0.5.10", name="eagle3-topk1-spec-v2", args=eagle(1))["sglang_worker"]
    assert status == "warn"
    assert "runs on the v1 worker: its name says v2" in said and f"set {SPEC_V2} to True" in said


def test_a_topk1_v1_that_would_run_on_v2_needs_the_variable_off():
    how = {"name": "eagle3-topk1-v1", "args": eagle(1)}
    status, said = check("0.5.12", **how)["sglang_worker"]
    assert status == "warn" and f"set {SPEC_V2} to False" in said
    assert check("0.5.12", **how, env={SPEC_V2: "False"}) == {}


@pytest.mark.parametrize(("name", "status"), [("topk4-spec-v2", "fail"), ("topk4", "warn")])
def test_a_tree_on_v2_falls_back_on_0_5_12(name, status):
    found, said = check("0.5.12", name=name, env={SPEC_V2: "1"})["sglang_worker"]
    assert found == status
    assert "on the v1 worker" in said and "0.5.13 to 0.5.23" in said


@pytest.mark.parametrize("version", ["0.5.14", "0.5.19", "0.5.21", "0.5.23"])
def test_a_variable_without_effect_warns(version):
    found = check(version, args=eagle(1), env={SPEC_V2: "True"})
    assert list(found) == ["sglang_variables"]
    status, said = found["sglang_variables"]
    assert status == "warn" and f"{SPEC_V2}" in said
    assert ("silently" in said) == (version in ("0.5.21", "0.5.23"))


def test_on_0_5_13_the_variable_only_means_overlap():
    status, said = check("0.5.13", env={SPEC_V2: "0"})["sglang_variables"]
    assert status == "warn" and "v2 worker without overlap" in said
    assert check("0.5.13", env={SPEC_V2: "True"}) == {}


@pytest.mark.parametrize(
    "version", ["0.6.0", "0.5.24", "0.5.5", "0.5.8rc1", "0.5.10rc0", "0.5.12.post2", "x"]
)
def test_an_unknown_release_leaves_it_to_observation(version):
    assert find_release(version) is None
    found = check(version, name="eagle3-topk4-v1")
    assert found["sglang_release"][0] == "warn"
    assert "0.5.6 to 0.5.23" in found["sglang_release"][1]
    assert found["sglang_worker"][0] == "unknown" and found["sglang_model"][0] == "unknown"
    assert not any(status == "fail" for status, _ in found.values())


def test_no_version_is_unknown_and_never_a_pass():
    assert check(None)["sglang_release"][0] == "unknown"


@pytest.mark.parametrize("version", [*READ, "0.5.10+cu130", "0.5.12.post1+sm120"])
def test_releases_that_were_read(version):
    assert find_release(version) is not None


def test_the_table_is_in_order_and_without_overlap():
    spans = [(find_release(row.first), find_release(row.last)) for row in RELEASES]
    assert spans == [(row, row) for row in RELEASES]
    assert releases_where(lambda row: row.v1_worker) == "0.5.6 to 0.5.12.post1"
    assert releases_where(lambda row: row.first in ("0.5.6", "0.5.11")) == "0.5.6, 0.5.11"
    assert releases_where(lambda row: False) == "none that was read"


@given(st.text(max_size=12) | st.from_regex(r"\A0\.5\.\d{1,2}(\.post\d|rc\d)?\Z"))
def test_any_version_is_a_row_or_unknown(version):
    assert find_release(version) in (None, *RELEASES)


# --- A3 to A6: model and draft -------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "draft", "status", "exists"),
    [
        ("0.5.9", LLAMA_DRAFT, "fail", "0.5.10 to 0.5.23"),
        ("0.5.10", MLA_DRAFT, "fail", "0.5.12 to 0.5.23"),
        ("0.5.11", MLA_DRAFT, "fail", "0.5.12 to 0.5.23"),
        ("0.5.12", MLA_DRAFT, None, ""),
        ("0.5.10", LLAMA_DRAFT, None, ""),
        ("0.5.23", LLAMA_DRAFT, None, ""),
    ],
)
def test_hooks_of_the_target_and_class_of_the_draft(version, draft, status, exists):
    found = check(version, draft=draft)
    assert found.get("sglang_model", (None, ""))[0] == status
    assert exists in found.get("sglang_model", (None, ""))[1]


def test_another_target_needs_no_hooks_of_kimi():
    assert check("0.5.9", target=LLAMA) == {}


@pytest.mark.parametrize(
    ("algorithm", "draft", "status"),
    [
        ("EAGLE", LLAMA_DRAFT, "fail"),
        ("NEXTN", LLAMA_DRAFT, "fail"),
        ("EAGLE", MLA_DRAFT, "warn"),
        ("EAGLE", LLAMA, None),
        ("EAGLE3", LLAMA, "warn"),
        ("eagle3", LLAMA_DRAFT, None),
    ],
)
def test_algorithm_and_draft_fit(algorithm, draft, status):
    found = check("0.5.12", args=eagle(algorithm=algorithm), draft=draft)
    assert found.get("sglang_draft", (None,))[0] == status


@pytest.mark.parametrize("algorithm", ["EAGLE3", "STANDALONE"])
def test_a_draft_model_that_is_not_named_is_refused(algorithm):
    checks = check_releases(
        params(args=eagle(algorithm=algorithm), draft=""), "0.5.12", read_model(KIMI), ModelFacts()
    )
    (bad,) = [c for c in checks if c.name == "sglang_draft"]
    assert bad.status == "fail" and "load the target as its draft" in bad.found
    assert "server.draft" in bad.fix


def test_an_n_gram_drafter_needs_no_draft():
    ngram = ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8"]
    checks = check_releases(params(args=ngram, draft=""), "0.5.23", read_model(LLAMA))
    assert {c.status for c in checks} == {"pass"}


def test_a_draft_that_inherits_the_targets_quantisation():
    status, said = check("0.5.12", args=eagle(unquant=False))["sglang_draft"]
    assert status == "warn" and "unquant" in said
    assert check("0.5.12", args=eagle(unquant=False), target=LLAMA) == {}
    quantised = {**LLAMA_DRAFT, "quantization_config": {"quant_method": "x"}}
    assert check("0.5.12", args=eagle(unquant=False), draft=quantised) == {}


def test_models_that_cannot_be_read_are_unknown():
    found = check("0.5.12", target=None, draft=None)
    assert {name: status for name, (status, _) in found.items()} == {
        "sglang_model": "unknown",
        "sglang_draft": "unknown",
    }


def test_a_baseline_that_speculates():
    found = check("0.5.12", shared=eagle(1), args=[])
    assert found["sglang_draft"][0] == "fail" and "baseline" in found["sglang_draft"][1]


# --- A7 to A9: the tree --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "draft", "topk", "status"),
    [
        ("flashinfer", MLA_DRAFT, 4, "fail"),
        ("flashmla", MLA_DRAFT, 4, "fail"),
        ("flashinfer", LLAMA_DRAFT, 4, "warn"),
        ("flashinfer", MLA_DRAFT, 1, None),
        ("triton", MLA_DRAFT, 4, None),
        ("trtllm_mha", LLAMA_DRAFT, 4, "fail"),
        ("trtllm_mha", LLAMA_DRAFT, 1, None),
    ],
)
def test_attention_backends_and_trees(backend, draft, topk, status):
    how = {"shared": ["--attention-backend", backend], "draft": draft}
    found = check("0.5.12", args=eagle(topk), **how)
    assert found.get("sglang_tree", (None,))[0] == status
    assert "triton" in found.get("sglang_tree", (None, "triton"))[1]


@pytest.mark.parametrize(
    ("version", "backend", "status"),
    [
        ("0.5.9", "triton", "fail"),
        ("0.5.9", "flashinfer", None),
        ("0.5.10", "fa3", None),
        ("0.5.13", "triton", "warn"),
        ("0.5.15", "triton", None),
        ("0.5.23", "triton", None),
        ("0.5.23", "torch_native", "fail"),
        ("0.5.23", None, "warn"),
        ("0.6.0", "triton", "warn"),
    ],
)
def test_pages_and_trees(version, backend, status):
    shared = ["--page-size", "64", *(["--attention-backend", backend] if backend else [])]
    found = check(version, shared=shared, target=LLAMA)
    assert found.get("sglang_tree", (None,))[0] == status
    assert "sglang_tree" not in check(version, shared=shared, target=LLAMA, args=eagle(1))


def test_a_chain_of_another_length_than_asked():
    status, said = check("0.5.12", args=eagle(1, tokens=8))["sglang_tree"]
    assert status == "warn" and "8 draft tokens asked, effective 4" in said


def test_different_attention_backends_confound():
    args = [*eagle(), "--attention-backend", "fa3"]
    status, said = check("0.5.12", args=args, shared=["--attention-backend", "triton"])[
        "sglang_alike"
    ]
    assert status == "warn" and "baseline triton, eagle fa3" in said


def test_variables_that_differ_confound_too():
    found = check("0.5.12", env={"NCCL_PROTO": "LL", SPEC_V2: "False"})
    assert list(found) == ["sglang_alike"]
    assert "NCCL_PROTO: baseline not given, eagle LL" in found["sglang_alike"][1]


# --- B1: the cap ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "concurrencies", "status", "said"),
    [
        ([], [1, 100], "fail", "48 at once, and C=100 would queue where the baseline does not"),
        ([], [1, 48], "warn", "48 at once"),
        (["--max-running-requests", "64"], [1, 100], "fail", "C=100 would queue"),
        (["--max-running-requests=100"], [1, 100], None, ""),
    ],
)
def test_the_cap_under_speculation(cap, concurrencies, status, said):
    found = check("0.5.12", cap=cap, concurrencies=concurrencies)
    assert found.get("sglang_request_cap", (None, ""))[0] == status
    assert said in found.get("sglang_request_cap", (None, ""))[1]
    if status:
        assert "one explicit --max-running-requests" in found["sglang_request_cap"][1]


def test_a_cap_for_the_speculating_alone_is_not_the_same_for_all():
    args = [*eagle(), "--max-running-requests", "128"]
    status, said = check("0.5.12", cap=[], args=args)["sglang_request_cap"]
    assert status == "warn" and "baseline: not given; eagle: 128" in said


# --- variables -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SGLANG_SIMULATE_ACC_LEN", "SGL_SIMULATE_ACC_LEN"])
@pytest.mark.parametrize("where", ["env", "shared_env"])
@pytest.mark.parametrize("version", ["0.5.12", "0.6.0", None])
def test_a_made_up_acceptance_is_refused_in_any_environment(name, where, version):
    status, said = check(version, **{where: {name: "2.5"}})["sglang_acceptance"]
    assert status == "fail" and "SGLANG_SIMULATE_ACC_LEN=2.5" in said


@pytest.mark.parametrize(("value", "warned"), [("8", False), ("32", True), ("1", True)])
def test_a_variable_that_sglang_overwrites(value, warned):
    found = check("0.5.12", shared_env={"CUDA_DEVICE_MAX_CONNECTIONS": value})
    assert ("sglang_variables" in found) == warned
    if warned:
        assert "has no effect: SGLang sets 8 itself" in found["sglang_variables"][1]
        assert found["sglang_variables"][1].startswith("baseline, eagle: ")


def test_variables_that_sglang_sets_where_unset_are_known():
    checks = check_releases(params(), "0.5.12", read_model(KIMI), read_model(LLAMA_DRAFT))
    (said,) = [c.found for c in checks if c.name == "sglang_variables"]
    assert "NCCL_CUMEM_ENABLE=0" in said and "NCCL_NVLS_ENABLE=0" in said
    assert "CUDA_DEVICE_MAX_CONNECTIONS=8" in said
    assert check("0.5.12", shared_env={"NCCL_CUMEM_ENABLE": "1"}) == {}


def test_an_old_prefix_counts_under_its_new_name_and_warns():
    env = {"SGL_ENABLE_SPEC_V2": "True"}
    found = check("0.5.10", env=env)
    assert found["sglang_worker"][0] == "fail"
    assert "write SGLANG_ENABLE_SPEC_V2" in found["sglang_variables"][1]
    both = check("0.5.10", env={**env, SPEC_V2: "False"})
    assert "is set as well" in both["sglang_variables"][1]
    assert "sglang_worker" not in both


@pytest.mark.parametrize(
    ("value", "warned"), [("4", True), ("SYS", False), ("LOC", False), ("sys", True), ("", False)]
)
def test_a_level_of_nccl_by_its_name(value, warned):
    assert bool(check("0.5.12", shared_env={"NCCL_P2P_LEVEL": value})) == warned


def test_a_switch_that_is_no_truth_value():
    assert "no truth value" in check("0.5.12", env={SPEC_V2: "maybe"})["sglang_variables"][1]


def test_every_fault_says_what_to_do():
    how = {"name": "a-v1", "env": {SPEC_V2: "x", "SGL_A": "1"}}
    for version in (*READ, "0.6.0"):
        checks = check_releases(params(cap=[], **how), version, read_model(KIMI))
        assert all(c.fix for c in checks if c.status in ("fail", "warn"))


def test_the_production_file_passes_on_its_releases_alone():
    production = load(PRODUCTION)
    for version in READ:
        pins = dict(pin.split("==") for pin in find_release(version).pins)
        models = read_model(KIMI), read_model(LLAMA_DRAFT)
        checks = check_releases(production, version, *models, Seen(pins))
        assert ({c.status for c in checks} == {"pass"}) == (
            version in ("0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1")
        ), version


def test_the_names_of_all_checks_are_known():
    checks = check_releases(params(), "0.5.12", read_model(KIMI), read_model(MLA_DRAFT))
    checks += check_releases(load(PRODUCTION), "0.5.12")
    assert {c.name for c in checks} == set(STACK_CHECKS)


def test_the_document_tells_of_every_row():
    text = (Path(__file__).parents[3] / "docs" / "sglang.md").read_text()
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| 0.5")]
    assert rows == [str(row) for row in RELEASES]


# --- PCIe alone ----------------------------------------------------------------------------


def pcie(version, words=(), env=None):
    loaded = load(PRODUCTION)
    server = loaded.server
    changed = {"args": [*server.args, *words], "env": {**server.env, **(env or {})}}
    loaded = loaded.model_copy(update={"server": server.model_copy(update=changed)})
    return [c for c in check_releases(loaded, version) if c.name == "sglang_pcie"]


def test_without_nvlink_what_applies_is_listed_with_where_it_was_read():
    (told,) = pcie("0.5.12")
    assert told.status == "pass"
    applies, _, looks = told.found.partition(". Only looks as if: ")
    assert "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE" in applies and "0.5.21 to 0.5.23" in applies
    assert "--enable-nccl-nvls" in looks and "--flashinfer-allreduce-fusion-backend" in looks


@pytest.mark.parametrize(
    ("version", "words", "env", "found"),
    [
        ("0.5.23", ["--enable-torch-symm-mem"], {}, "its help names SM90 and SM100 only"),
        ("0.5.12", [], {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"}, "does nothing on SGLang 0.5.12"),
    ],
)
def test_what_does_nothing_there_warns(version, words, env, found):
    told, offers = pcie(version, words, env)
    assert offers.status == "pass"
    assert told.status == "warn"
    assert found in told.found


def test_what_applies_and_what_is_switched_off_is_no_warning():
    name = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"
    assert [c.status for c in pcie("0.5.23", env={name: "1"})] == ["pass"]
    assert [c.status for c in pcie("0.5.12", env={name: "0"})] == ["pass"]


def test_of_a_release_that_was_not_read_nothing_is_claimed():
    (told,) = pcie("0.6.0", [], {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"})
    assert told.status == "pass"


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (
            "--enable-pcie-oneshot-allreduce",
            {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        ),
        ("--enable-pcie-oneshot-allreduce", {"PYTORCH_ALLOC_CONF": "a:1,expandable_segments:true"}),
        ("--enable-deterministic-inference", {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"}),
    ],
)
def test_two_that_must_not_stand_together_warn(words, env):
    told, offers = pcie("0.5.23", [words], env)
    assert (told.status, offers.status) == ("warn", "pass")
    assert all(name in told.found for name in (words, *env))
    off = {
        name: "0" if value == "1" else "expandable_segments:False" for name, value in env.items()
    }
    assert [one.status for one in (*pcie("0.5.23", [words], off), *pcie("0.5.23", [], env))] == [
        "pass",
        "pass",
    ]
