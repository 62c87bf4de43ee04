"""The production deployment on facts of a right host, and what is changed in them."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from runbook import params, verify_stack
from runbook.engines import engine_for
from runbook.params import Stack
from runbook.probe.ask import ServingFacts
from runbook.verify_stack.captured import read_folder
from runbook.verify_stack.facts import Reading, StackFacts

CLONE = Path(__file__).parents[2]
HOSTS = CLONE / "tests" / "cases" / "hosts"
WANTED = params.load(CLONE / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml")
ENGINE = engine_for(WANTED.server)
SPECS = {one.name: ENGINE.launch_spec(WANTED, one) for one in WANTED.configurations}
LIBNCCL = "/opt/sglang/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"
JIT_CACHE = "flashinfer-jit-cache"


def link(index, gen=5):
    words = {"pcie.link.gen.current": str(gen), "pcie.link.width.current": "16"}
    return {"index": str(index), **words}


CONFIG = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "hidden_size": 7168,
    "target_hidden_size": None,
    "vocab_size": 163840,
    "draft_vocab_size": None,
    "max_position_embeddings": 262144,
    "quantized": True,
}
TARGET, DRAFT = WANTED.server.model, WANTED.server.draft
MODEL = {"config": CONFIG, "shards": 64, "index_sha256": ["ab" * 32], "faults": []}
FOLDER = {"kind": "folder", "files": 70, "size_bytes": 1 << 39, "listing_sha256": "cd" * 32}


def wrong(rank, elements, at, sender):
    found = {"rank": rank, "elements": elements, "at": at, "sender": sender}
    return {**found, "found": 1, "wanted": 2}


FACTS = {
    "torch": {
        "version": "2.9.1+cu130",
        "cuda": "13.0",
        "arch_list": ["sm_90", "sm_120"],
        "nccl": "2.28.9",
        "nccl_loaded": [LIBNCCL],
    },
    "nccl": {"packages": {"nvidia-nccl-cu13": "2.28.9"}, "libraries": [LIBNCCL], "preload": ""},
    "collective": {
        "us": {"32768": 26.0, "33554432": 1400.0},
        "said": "",
        "links": [link(index) for index in range(8)],
        "busy_after": [],
        "compared": 272,
        "wrong": [],
    },
    "nccl_conf": {},
    "nccl_graph": {"path": ""},
    "models": {
        TARGET: MODEL,
        DRAFT: {**MODEL, "config": {**CONFIG, "max_position_embeddings": 4096}, "shards": 1},
    },
    "files": {TARGET: FOLDER, DRAFT: FOLDER},
    "packages": {"sglang": "0.5.10", "flashinfer-python": "0.6.2", "flashinfer-cubin": "0.6.2"},
}


def facts(host: str = "eight-cards", **serving) -> StackFacts:
    told = ServingFacts(copy.deepcopy({**FACTS, **serving}), {}, otherwise="not told")
    return StackFacts(read_folder(HOSTS / host, (), ()).host, dict.fromkeys(SPECS, told))


def check(name, found=None, specs=SPECS, **stack):
    wanted = WANTED.model_copy(update={"stack": WANTED.stack.model_copy(update=stack)})
    report = verify_stack.judge(wanted, found or facts(), specs, ENGINE)
    return next(one for one in report.checks if one.name == name)


def with_env(**env):
    return {name: replace(spec, env={**spec.env, **env}) for name, spec in SPECS.items()}


def changed(name, **values):
    return {name: {**FACTS[name], **values}}


@pytest.mark.parametrize(
    ("name", "serving", "status", "said"),
    [
        ("torch", {}, "pass", "sm_120"),
        ("torch", changed("torch", arch_list=["sm_90", "sm_100"]), "fail", "sm_100"),
        ("torch", changed("torch", arch_list=["sm_120a"]), "pass", "sm_120a"),
        ("torch", changed("torch", cuda="12.8"), "warn", "CUDA 12.8"),
        ("torch", changed("torch", cuda="14.0"), "pass", "CUDA 14.0"),
        ("torch", changed("torch", cuda=None), "fail", "CUDA none"),
        ("torch", {"torch": None}, "unknown", "not told"),
        ("nvcc", changed("torch", cuda="13.3"), "warn", "torch is built for 13.3"),
        ("nccl", {}, "pass", f"2.28.9 from {LIBNCCL}"),
        ("nccl", changed("torch", nccl="2.30.4"), "fail", "2.30.4"),
        ("nccl", changed("nccl", libraries=[LIBNCCL, "/usr/lib64/libnccl.so.2"]), "warn", "lib64"),
        ("nccl", changed("nccl", preload="/x/libnccl.so"), "warn", "LD_PRELOAD=/x/libnccl.so"),
        ("nccl", changed("nccl", packages={"nvidia-nccl-cu12": "2.27.5"}), "warn", "2.27.5"),
        ("kernels", {}, "pass", "flashinfer-python 0.6.2"),
        (
            "kernels",
            changed("packages", **{"flashinfer-jit-cache": "0.6.1+cu130"}),
            "fail",
            "0.6.1",
        ),
        (
            "kernels",
            changed("packages", **{"flashinfer-jit-cache": "0.6.2+cu130"}),
            "pass",
            "cu130",
        ),
        (
            "kernels",
            changed("packages", **{"sgl-kernel": "0.3.21", "sglang-kernel": "0.4.1"}),
            "warn",
            "sgl-kernel 0.3.21",
        ),
        ("nccl_conf", {}, "pass", "none"),
        (
            "nccl_conf",
            {"nccl_conf": {"/etc/nccl.conf": {"lines": ["NCCL_PROTO=LL"]}}},
            "warn",
            "LL",
        ),
        ("nccl_graph", {}, "skipped", "not set"),
        ("nccl_graph", {"nccl_graph": {"path": "/g", "why": "gone"}}, "fail", "/g: gone"),
        ("nccl_graph", {"nccl_graph": {"path": "/g", "sha256": "ab", "gpus": 0}}, "fail", "0 GPUs"),
        ("nccl_graph", {"nccl_graph": {"path": "/g", "sha256": "ab", "gpus": 4}}, "pass", "4 GPUs"),
        ("collective", {}, "pass", "32 KiB 26 us, 32768 KiB 1400 us"),
        ("collective", changed("collective", us={}), "fail", "NCCL hangs"),
        (
            "collective",
            changed("collective", us={}, said="NCCL error", busy_after=["0", "3"]),
            "fail",
            "NCCL error; at work afterwards: GPU 0, 3",
        ),
        (
            "collective",
            changed("collective", wrong=[wrong(5, 1023, 77, None)]),
            "fail",
            "the sum is not what was sent: rank 5, 8184 bytes, first wrong element 77: 1, not 2",
        ),
        (
            "collective",
            changed("collective", us={}, wrong=[wrong(1, 1, 0, 0), wrong(0, 1, 0, None)]),
            "fail",
            "the sum is not what was sent: rank 0, 8 bytes, first wrong element 0: 1, not 2; "
            "also rank 1 from rank 0, 8 bytes",
        ),
        (
            "collective",
            changed("collective", wrong=[wrong(6, 65537, 0, 7)]),
            "fail",
            "what arrived is not what was sent: rank 6 from rank 7, 524296 bytes",
        ),
        ("collective", changed("collective", compared=0), "warn", "was not compared"),
        ("loaded_link", {}, "pass", "GPU 7: generation 5 x16"),
        (
            "loaded_link",
            changed("collective", links=[link(3, gen=4)]),
            "fail",
            "GPU 3: generation 4",
        ),
        ("loaded_link", changed("collective", links=[link(3, gen="[N/A]")]), "unknown", "no link"),
        ("loaded_link", changed("collective", links=[]), "unknown", "no link"),
        ("loaded_link", changed("collective", links=[link(3)]), "unknown", "1 of 8 GPUs"),
        ("model", {}, "pass", "64 shards"),
        (
            "model",
            {"models": {TARGET: {**MODEL, "faults": ["x.safetensors is missing"]}, DRAFT: MODEL}},
            "fail",
            "x.safetensors is missing",
        ),
        ("draft_fits", {}, "warn", "4096 positions"),
    ],
)
def test_one_fact_changed_gives_its_status(name, serving, status, said):
    found = check(name, facts(**serving))
    assert (found.status, said in found.found) == (status, True), found
    assert bool(found.fix) == (status in ("fail", "warn", "unknown"))


@pytest.mark.parametrize(
    ("config", "stack", "status", "said"),
    [
        ({"hidden_size": 4096}, {}, "fail", "draft 4096, target 7168"),
        ({"hidden_size": 4096, "target_hidden_size": 7168}, {}, "pass", "7168"),
        ({"vocab_size": 32000}, {}, "fail", "vocabulary: draft 32000"),
        ({"hidden_size": None}, {}, "unknown", "unknown"),
        ({"max_position_embeddings": 4096}, {"context_tokens": 65536}, "warn", "4096 positions"),
        ({"max_position_embeddings": None}, {"context_tokens": 65536}, "unknown", "unknown"),
    ],
)
def test_a_draft_fits_its_target(config, stack, status, said):
    models = {TARGET: MODEL, DRAFT: {**MODEL, "config": {**CONFIG, **config}}}
    found = check("draft_fits", facts(models=models), **stack)
    assert (found.status, said in found.found) == (status, True), found


@pytest.mark.parametrize(
    ("name", "host", "on", "off"),
    [
        ("acs", "acs-on", "fail", "warn"),
        ("iommu", "strict-iommu", "fail", "warn"),
        ("p2p", "no-peer-access", "fail", "warn"),
        ("bar1", "small-bar", "fail", "warn"),
    ],
)
def test_what_stands_between_cards_only_warns_without_p2p(name, host, on, off):
    assert check(name, facts(host)).status == on
    assert check(name, facts(host), with_env(NCCL_P2P_DISABLE="0")).status == on
    assert check(name, facts(host), with_env(NCCL_P2P_DISABLE="1")).status == off
    assert check(name, facts(host), with_env(NCCL_P2P_LEVEL="LOC")).status == off


def test_p2p_that_only_one_configuration_forbids_is_on():
    one = {**SPECS, "baseline": with_env(NCCL_P2P_DISABLE="1")["baseline"]}
    assert check("acs", facts("acs-on"), one).status == "fail"


def test_variables_that_sitecustomize_sets_count():
    environment = {"set": {"NCCL_P2P_DISABLE": "1"}, "changed": {}, "removed": []}
    assert check("acs", facts("acs-on", environment=environment)).status == "warn"


def test_root_that_reads_other_settings_than_the_service_fails():
    found = facts()
    settings = found.host["settings"].value
    settings["/root/.nccl.conf"] = ["# by hand", "NCCL_PROTO=LL"]
    said = check("nccl_conf", found)
    assert said.status == "fail" and "root reads NCCL_PROTO=LL" in said.found


@pytest.mark.parametrize(
    ("wanted", "host", "status"),
    [
        ("system", "eight-cards", "pass"),
        ("node", "eight-cards", "fail"),
        ("all-system", "nps4", "pass"),
        ("nvlink", "nvlink", "pass"),
        ("system", "nvlink", "fail"),
    ],
)
def test_the_class_of_topology_that_is_asked_for(wanted, host, status):
    assert check("topology", facts(host), topology=wanted).status == status


def test_nodes_that_cut_a_socket_are_said():
    assert "8 NUMA nodes on 2 sockets" in check("topology", facts("nps4")).found


def test_affinity_that_is_not_that_of_the_node_warns():
    found = facts()
    found.host["lscpu"].value["nodes"]["node1"] = "64-127,192-238"
    said = check("numa", found)
    assert said.status == "warn" and "GPU4: 64-127,192-255, but node 1 has 64-127" in said.found


def test_an_old_driver_for_the_cuda_of_torch_fails():
    assert check("torch", facts("old-compiler"), driver_version="").status == "fail"


def test_an_all_reduce_slower_than_recorded_warns():
    assert check("collective", collective_us={"32768": 21.0}).status == "pass"
    said = check("collective", collective_us={"32768": 19.0})
    assert (said.status, said.wanted) == ("warn", "at most 1.3 times as recorded: 32 KiB 19 us")
    recorded = {"32768": 19.0}
    said = check("collective", collective_us=recorded, collective_slower=1.4)
    assert (said.status, said.wanted) == ("pass", "at most 1.4 times as recorded: 32 KiB 19 us")


@pytest.mark.parametrize(
    ("size", "named"),
    [("262144", "256 KiB"), ("1000", "1000 bytes"), ("32k", "'32k'"), ("67108864", "65536 KiB")],
)
def test_a_recorded_size_that_was_not_measured_warns(size, named):
    said = check("collective", collective_us={"32768": 26.0, size: 100.0})
    assert (said.status, f"{named} not measured" in said.found) == ("warn", True)
    assert f"{named} 100 us" in said.wanted and "32768, 33554432" in said.fix


def test_a_size_that_is_slow_is_told_before_one_that_was_not_measured():
    said = check("collective", collective_us={"32768": 1.0, "262144": 100.0})
    assert (said.status, "NCCL's variables" in said.fix) == ("warn", True)


@pytest.mark.parametrize(
    ("name", "host", "stack", "status"),
    [
        ("idle", "wedged", {}, "fail"),
        ("bar1", "small-bar", {"small_bar_mib": 255.0}, "warn"),
    ],
)
def test_other_thresholds_are_parameters(name, host, stack, status):
    assert check(name, facts(host), **stack).status == status


def test_from_which_use_on_a_card_is_at_work_is_a_parameter():
    found = facts("wedged")
    for state in found.host["gpu_states"].value:
        state["utilization.gpu"] = "90"
    assert check("idle", found).status == "pass"
    assert check("idle", found, busy_percent=90.0).status == "fail"


def test_a_target_that_does_not_reach_as_far_as_the_prompts_warns():
    short = {**MODEL, "config": {**CONFIG, "max_position_embeddings": 65536}}
    said = check("model", facts(models={TARGET: short, DRAFT: MODEL}))
    assert (said.status, said.wanted) == ("warn", "131072 positions")
    assert "65536 positions" in said.found


def test_ports_that_the_server_opens_besides_are_looked_at():
    found = facts()
    others = [{"port": 30236, "use": "rpc_port", "holder": "pid 7 (old), unit old.service"}]
    found.host["port"] = Reading({"port": 30000, "holder": None, "others": others})
    said = check("port", found)
    assert said.status == "fail" and said.wanted == "port 30000 free, and 30236"
    assert said.found == "port 30236 (rpc_port) held by pid 7 (old), unit old.service"
    others[0]["holder"] = None
    assert check("port", found).status == "pass"


def test_memory_below_what_is_wanted_only_warns():
    memory = {"total_bytes": 1 << 40, "available_bytes": 100 << 30}
    assert check("memory", facts(memory=memory)).status == "warn"
    assert check("memory", facts(memory=memory), min_memory_gib=200.0).status == "fail"


def test_fingerprints_know_the_cards_the_links_and_the_models():
    def of(found):
        return dict(verify_stack.judge(WANTED, found, SPECS, ENGINE).fingerprints)

    right = of(facts())
    assert None not in right.values() and set(right) == {"host", "topology", "model", "draft"}
    assert right == of(facts("carriage-returns"))
    renumbered = facts()
    renumbered.host["gpus"].value["gpus"].reverse()
    assert right == of(renumbered)
    assert of(facts("nps4"))["topology"] != right["topology"]
    assert of(facts("update-not-loaded")) == right  # another driver is no other host
    another = facts()
    another.host["gpus"].value["gpus"][3]["uuid"] = "GPU-of-another"
    assert of(another) == {**right, "host": of(another)["host"]} != right
    other = facts(files={TARGET: {**FOLDER, "listing_sha256": "ef" * 32}, DRAFT: FOLDER})
    assert of(other) == {**right, "model": of(other)["model"]} != right
    trained = {TARGET: FOLDER, DRAFT: {**FOLDER, "sha256": "ab" * 32}}
    again = facts(files={**trained, DRAFT: {**FOLDER, "sha256": "cd" * 32}})
    first, second = of(facts(files=trained)), of(again)  # of the same sizes under the same names
    assert first["model"] == second["model"] and first["draft"] != second["draft"]
    assert of(facts("only-the-cards")) == {**right, "host": None, "topology": None}


@pytest.mark.parametrize(
    ("cap", "built", "status"),
    [
        ("12.0", ["sm_120"], "pass"),
        ("12.0", ["sm_120f"], "pass"),
        ("12.0", ["sm_90", "sm_121"], "fail"),
        ("12.1", ["sm_120"], "pass"),  # kernels of a generation run on its newer cards
        ("12.1", ["sm_120a"], "fail"),  # but not those with features of one card alone
        ("8.9", ["sm_80", "sm_86", "sm_90"], "pass"),
        ("8.9", ["sm_90"], "fail"),
    ],
)
def test_kernels_run_on_cards_of_their_generation(cap, built, status):
    found = facts(**changed("torch", arch_list=built))
    assert check("torch", found, compute_cap=cap).status == status


@pytest.mark.parametrize(("value", "status"), [("1", "warn"), ("0", "warn"), ("", "pass")])
def test_any_text_switches_flashinfers_own_check_off(value, status):
    specs = with_env(FLASHINFER_DISABLE_VERSION_CHECK=value)
    assert check("kernels", specs=specs).status == status


def test_cards_are_recorded_as_the_device_tells_them():
    said = verify_stack.judge(WANTED, facts("mixed-power"), SPECS, ENGINE).to_json()["facts"]
    assert "Blackwell Max-Q Workstation Edition, driver 580.126.20, 300 W" in said["GPUs"]
    assert "Server Edition, driver 580.126.20, 450 W" in said["GPUs"]


def test_thresholds_are_described():
    assert all(field.description or name == "checks" for name, field in Stack.model_fields.items())
