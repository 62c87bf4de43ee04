"""What the checks before a start make of what was seen of the host."""

from pathlib import Path

import pytest

from runbook.engines import Seen, engine_for
from runbook.engines.sglang.checks import check_releases
from runbook.engines.sglang.options import further_ports, read_options
from runbook.params import load

PRODUCTION = Path(__file__).parents[3] / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml"
PARAMS = load(PRODUCTION)
NAMES = [one.name for one in PARAMS.configurations]
SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"
#: As the metadata of 0.5.10.post1 has it.
REQUIRES = ["flashinfer_python==0.6.7.post3", "sglang-kernel==0.4.1", "torch==2.9.1"]
REQUIRES += ["transformers==5.3.0", 'torch==2.9.1; extra == "all"', "not a requirement ="]
INSTALLED = {
    "sglang": "0.5.10.post1",
    "torch": "2.9.1+cu130",
    "sglang-kernel": "0.4.1",
    "sgl-kernel": None,
    "flashinfer-python": "0.6.7.post3",
    "transformers": "5.3.0",
}


def check(name, seen, params=PARAMS):
    engine = engine_for(params.server)
    found = [one for one in engine.check_stack(params, seen) if one.name == name]
    assert all(one.found and (one.status == "pass" or (one.wanted and one.fix)) for one in found)
    return found


def told(**facts):
    return dict.fromkeys(NAMES, facts)


def configured(*words, **stack):
    """The production parameters with further arguments, and another stack."""
    server = PARAMS.server.model_copy(update={"args": [*PARAMS.server.args, *words]})
    update = {"server": server, "stack": PARAMS.stack.model_copy(update=stack)}
    return PARAMS.model_copy(update=update)


# --- the models, as the host tells them -----------------------------------------------------


def models(target, draft):
    paths = (PARAMS.server.model, PARAMS.server.draft)
    configs = [one and {"config": {"quantized": False, **one}} for one in (target, draft)]
    return told(models=dict(zip(paths, configs, strict=True)))


KIMI = {"architectures": ["KimiK25ForConditionalGeneration"], "kv_lora_rank": 512}
LLAMA_DRAFT = {"architectures": ["LlamaForCausalLMEagle3"], "kv_lora_rank": None}


@pytest.mark.parametrize(
    ("version", "target", "draft", "status", "said"),
    [
        ("0.5.10", KIMI, LLAMA_DRAFT, "pass", "knows target and draft"),
        ("0.5.9", KIMI, LLAMA_DRAFT, "fail", "no EAGLE-3 hooks"),
        ("0.5.10", KIMI, {**LLAMA_DRAFT, "kv_lora_rank": 512}, "fail", "lacks the draft's class"),
        ("0.5.12", KIMI, {**LLAMA_DRAFT, "kv_lora_rank": 512}, "pass", "knows target and draft"),
        ("0.5.10", None, LLAMA_DRAFT, "unknown", "config.json could not be read"),
    ],
)
def test_models_are_judged_as_the_host_tells_them(version, target, draft, status, said):
    (found,) = check("sglang_model", Seen({"sglang": version}, models(target, draft)))
    assert found.status == status and said in found.found


def test_a_host_that_was_asked_and_told_nothing_is_not_replaced_by_this_machine(tmp_path):
    for folder in ("target", "draft"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    places = {"model": str(tmp_path / "target"), "draft": str(tmp_path / "draft")}
    params = PARAMS.model_copy(update={"server": PARAMS.server.model_copy(update=places)})
    (here,) = check("sglang_model", Seen({"sglang": "0.5.10"}), params)
    (there,) = check("sglang_model", Seen({"sglang": "0.5.10"}, told(packages={})), params)
    assert (here.status, there.status) == ("pass", "unknown")
    far = params.host.model_copy(update={"kind": "ssh", "address": "root@far"})
    far = params.model_copy(update={"host": far})
    (unasked,) = check("sglang_model", Seen({"sglang": "0.5.10"}), far)
    assert unasked.status == "unknown"


# --- variables that the start of Python sets ------------------------------------------------


def environment(name, value, kind="set"):
    changed = {"set": {}, "changed": {}, "removed": []}
    return told(environment={**changed, kind: {name: value}})


@pytest.mark.parametrize("name", ["SGLANG_SIMULATE_ACC_LEN", "SGL_SIMULATE_ACC_LEN"])
@pytest.mark.parametrize("kind", ["set", "changed"])
def test_acceptance_made_up_at_the_start_of_python_is_refused(name, kind):
    (found,) = check("sglang_acceptance", Seen({}, environment(name, "4", kind)))
    assert found.status == "fail"
    assert "SGLANG_SIMULATE_ACC_LEN=4 makes the acceptance up" in found.found
    assert "set at the start of Python" in found.found and "sitecustomize.py" in found.fix


def test_a_switch_set_at_the_start_of_python_decides_the_worker():
    seen = Seen({"sglang": "0.5.10"}, environment(SPEC_V2, "True", "changed"))
    (found,) = check("sglang_worker", seen)
    assert found.status == "fail" and "refuses to start" in found.found


# --- what the release requires --------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({}, "pass", "torch 2.9.1+cu130, sglang-kernel 0.4.1"),
        ({"torch": "2.11.0+cu130"}, "fail", "torch 2.11.0+cu130"),
        ({"torch": "odd"}, "fail", "torch odd"),
        ({"sglang-kernel": "0.4.2"}, "fail", "sglang-kernel 0.4.2"),
        ({"sglang-kernel": None}, "fail", "neither sglang-kernel nor sgl-kernel"),
        ({"sglang-kernel": None, "sgl-kernel": "0.3.21"}, "fail", "sglang-kernel is not installed"),
        ({"transformers": "5.2.0"}, "warn", "transformers 5.2.0"),
    ],
)
def test_packages_are_what_the_release_itself_requires(changed, status, said):
    (found,) = check("sglang_packages", Seen({**INSTALLED, **changed}, told(requires=REQUIRES)))
    assert found.status == status and said in found.found
    assert "==" in found.wanted


def test_without_its_metadata_the_releases_that_were_read_tell():
    (right,) = check("sglang_packages", Seen(INSTALLED))
    assert right.status == "pass" and "torch==2.9.1" in right.wanted
    newer = {**INSTALLED, "sglang": "0.5.12", "torch": "2.11.0"}
    (found,) = check("sglang_packages", Seen(newer))
    assert (found.status, found.wanted) == ("fail", "sglang-kernel==0.4.2 (sglang 0.5.12)")
    (unread,) = check("sglang_packages", Seen({**INSTALLED, "sglang": "0.6.0"}))
    assert unread.status == "unknown" and "sglang-kernel 0.4.1" in unread.found
    (nobody,) = check("sglang_packages", Seen({"sglang": "0.5.10"}))
    assert nobody.status == "unknown"


def test_where_no_gpu_is_asked_for_kernels_of_gpus_are_not():
    params = configured(gpus=0)
    assert check("sglang_packages", Seen({"sglang": "0.5.23"}), params) == []
    assert check("sglang_cards", Seen({}), params) == []


# --- cards ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "gpus", "graph", "status", "said"),
    [
        ((), 8, None, "pass", "8 ranks on 8 GPUs"),
        ((), 4, None, "fail", "8 ranks on 4 GPUs"),
        (("--tp", "4", "--pp-size", "2"), 8, None, "pass", "8 ranks"),
        (("--dp", "2"), 8, None, "fail", "16 ranks on 8 GPUs"),
        (("--dp", "2", "--enable-dp-attention"), 8, None, "pass", "8 ranks"),
        ((), 8, 8, "pass", "8 ranks"),
        ((), 8, 4, "fail", "is of 4 GPUs"),
        (("--tp=4",), 8, 4, "pass", "4 ranks"),
        (("--tp=4",), 8, 8, "fail", "is of 8 GPUs"),
    ],
)
def test_ranks_have_their_cards_and_a_graph_of_as_many(words, gpus, graph, status, said):
    seen = Seen({}, told(nccl_graph={"path": "/g", "gpus": graph} if graph else {"path": ""}))
    (found,) = check("sglang_cards", seen, configured(*words, gpus=gpus))
    assert found.status == status and said in found.found


@pytest.mark.parametrize("asked", [(), ("--enable-torch-symm-mem",)])
def test_a_host_with_nvlink_is_not_the_one_the_list_is_for(asked):
    (found,) = check("sglang_pcie", Seen({}, {}, "nvlink"), configured(*asked))
    assert found.status == "warn"
    assert "this is not the PCIe-only host described" in found.found
    assert "applies" not in found.found and "stack.topology: nvlink" in found.fix
    assert check("sglang_pcie", Seen({}, {}, "nvlink"), configured(topology="nvlink")) == []
    assert "applies: " in check("sglang_pcie", Seen({}, {}, "system"))[0].found


# --- ports ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "ports"),
    [
        ([], {}),
        (["--nccl-port", "31000", "--grpc-port=31001"], {31000: "NCCL", 31001: "gRPC"}),
        (["--dist-init-addr", "[::1]:31002"], {31002: "dist_init_port"}),
        (["--disaggregation-mode", "prefill"], {8998: "bootstrap of prefill"}),
        (["--disaggregation-mode", "decode"], {}),
        (["--nccl-port", "0"], {}),
    ],
)
def test_ports_besides_its_own(words, ports):
    assert further_ports(read_options(words), 30000) == ports


@pytest.mark.parametrize(("port", "first"), [(11000, 11233), (30000, 30233), (65400, 65167)])
def test_with_dp_attention_ports_are_derived_from_its_own(port, first):
    found = further_ports(read_options(["--enable-dp-attention"]), port)
    parts = ["dist_init_port", "tokenizer", "detokenizer", "rpc_port", "metrics_port"]
    assert found == {
        first + place: part for place, part in enumerate([*parts, "scheduler", "load collector"])
    }


def test_the_ports_of_all_configurations_are_looked_at():
    params = configured("--enable-dp-attention")
    assert list(engine_for(params.server).ports(params)) == [*range(30233, 30240)]
    assert check_releases(params, None)[0].status == "unknown"
