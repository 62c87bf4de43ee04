"""The engine against captured answers over real sockets, and what it makes of them."""

import json

import pytest
from sglang_answers import answering, case, pages

from runbook.engines import Counters, ServerInfo, engine_for
from runbook.engines.sglang.engine import SGLang, read_counters
from runbook.errors import ServerFailed
from runbook.params import Configuration, Server

EAGLE = [
    *("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3"),
    *("--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "16"),
]
CHAIN = [
    word.replace("16", "4") if word == "16" else "1" if word == "4" else word for word in EAGLE
]
BASELINE = Configuration(name="baseline")
TREE = Configuration(name="eagle3-topk4", args=EAGLE)


def engine(args=(), **server):
    return SGLang(server=Server(engine="sglang", port=1, model="/m", args=list(args), **server))


def statuses(checks):
    return {check.name: check.status for check in checks}


# --- over sockets --------------------------------------------------------------------------


def test_ready_is_a_completion_and_then_the_server_info():
    loading = [(503, b""), (503, b""), (200, b"")]
    busy = [(503, b""), (200, case("server_info-baseline.json"))]
    with answering(pages(**{"/health": loading, "/server_info": busy})) as (url, asked):
        assert SGLang().wait_ready(url, lambda: True, 30) > 0.5
    assert [path for path, _ in asked] == [
        *["/health"] * 3,
        "/v1/models",
        "/v1/chat/completions",
        "/server_info",
        "/server_info",
    ]


def test_a_server_whose_info_hangs_or_fails_is_not_ready():
    with (
        answering(pages(**{"/server_info": (500, b"no scheduler")})) as (url, _),
        pytest.raises(ServerFailed, match="completes, but does not say what it runs"),
    ):
        SGLang().wait_ready(url, lambda: True, 0.7)


def test_a_server_that_dies_before_its_info_ends_the_wait():
    lives = iter([True, True, False])
    with (
        answering(pages(**{"/server_info": (500, b"")})) as (url, _),
        pytest.raises(ServerFailed),
    ):
        SGLang().wait_ready(url, lambda: next(lives, False), 60)


def test_a_health_page_that_lies_is_not_enough():
    empty = b'data: {"choices":[],"usage":{"completion_tokens":0}}\n\ndata: [DONE]\n\n'
    with (
        answering(pages(**{"/v1/chat/completions": (200, empty)})) as (url, _),
        pytest.raises(ServerFailed, match="held 0 tokens"),
    ):
        SGLang().wait_ready(url, lambda: True, 0.4)


def test_what_a_client_gave_up_is_ended_and_waited_for():
    name = 'sglang:num_{}_reqs{{tp_rank="0"}} {}.0\n'
    at_work, queued, idle = (
        (200, (name.format("running", n) + name.format("queue", m)).encode())
        for n, m in ((2, 0), (0, 1), (0, 0))
    )
    answers = {"/abort_request": (200, b""), "/metrics": [at_work, queued, idle]}
    with answering(pages(**answers)) as (url, asked):
        assert SGLang().end_requests(url, 30) == ""
    assert [path for path, _ in asked] == ["/abort_request", *["/metrics"] * 3]
    with answering(pages(**answers | {"/metrics": at_work})) as (url, _):
        assert SGLang().end_requests(url, 0.2) == "2 requests still run 0.2 s after that"
    with answering(pages(**answers | {"/metrics": None})) as (url, _):
        assert SGLang().end_requests(url, 30) == ""  # nobody tells


def test_the_predecessor_of_server_info_is_asked_where_there_is_none():
    old = case("server_info-baseline.json")
    with answering(pages(**{"/server_info": None, "/get_server_info": (200, old)})) as (url, asked):
        assert SGLang().info(url).model_id == "m/target"
    assert [path for path, _ in asked] == ["/server_info", "/get_server_info"]


@pytest.mark.parametrize("answer", [None, (200, {"hello": "world"}), (200, []), (200, b"<html>")])
def test_what_is_no_sglang_is_said(answer):
    with answering(pages(**{"/server_info": answer})) as (url, _), pytest.raises(ServerFailed):
        SGLang().info(url)


def test_the_key_is_sent_and_nothing_of_it_comes_back(tmp_path):
    key = tmp_path / "key"
    key.write_text("s3cret-k3y\n")
    server = Server(engine="sglang", port=1, model="/m", api_key={"file": str(key)})
    told = case("server_info-baseline.json")
    told |= {"api_key": "s3cret-k3y", "launch_command": "--port 1 --api-key s3cret-k3y --tp 8"}
    with answering(pages(**{"/server_info": (200, told)})) as (url, asked):
        info = engine_for(server).info(url)
    assert asked[0][1]["Authorization"] == "Bearer s3cret-k3y"
    assert "s3cret" not in json.dumps([info.model_id, dict(info.settings)])
    assert info.settings["launch_command"] == "--port 1 --api-key <removed> --tp 8"


def test_metrics_that_are_not_enabled_are_none():
    with answering(pages(**{"/metrics": None})) as (url, _):
        assert SGLang().counters(url) is None
    with answering(pages("eagle3-topk4")) as (url, _):
        assert SGLang().counters(url) == Counters(predicted=32, verify_steps=31, requests=1)


# --- counters and acceptance ---------------------------------------------------------------


def test_counters_as_captured():
    assert read_counters(case("metrics-baseline.txt")) == Counters(predicted=24, requests=2)
    assert read_counters("# nothing\nvllm:generation_tokens_total 3\n") is None


def test_acceptance_is_of_the_cell_and_leaves_the_prefills_token_out():
    cell = Counters(predicted=1032, verify_steps=331, requests=9) - read_counters(
        case("metrics-eagle3-topk4.txt")
    )
    assert cell == Counters(predicted=1000, verify_steps=300, requests=8)
    assert SGLang().acceptance_length(cell) == pytest.approx(992 / 300)
    assert SGLang().acceptance_length(Counters(predicted=32, verify_steps=31, requests=1)) == 1.0


@pytest.mark.parametrize(
    "cell",
    [
        Counters(),
        Counters(predicted=9, requests=1),
        Counters(predicted=9, verify_steps=0, requests=1),
        Counters(predicted=9, verify_steps=3),
    ],
)
def test_an_acceptance_that_is_not_known_is_none(cell):
    assert SGLang().acceptance_length(cell) is None


def test_where_steps_are_not_counted_the_log_of_the_cell_tells():
    """A line is of the steps since the last one; the average since the start is never taken."""
    line = "[x TP0] Decode batch, #running-req: {}, #token: 9, accept len: {}, #queue-req: 0"
    log = "\n".join([line.format(1, "2.00"), "a request", line.format(3, "4.00"), "avg=9.9"])
    assert SGLang().acceptance_in_log(log) == 3.5
    assert SGLang().acceptance_in_log("Decode batch, #running-req: 1, #queue-req: 0") is None
    cell = Counters(100, requests=2, accept_length=3.5)
    assert SGLang().acceptance_length(cell) == 3.5
    assert SGLang().acceptance_length(Counters(9, verify_steps=3, requests=0, accept_length=1)) == 3
    for length, status in ((3.5, "pass"), (1.0, "warn"), (3.9, "warn")):
        (check,) = engine().check_cell(Counters(100, requests=2, accept_length=length), TREE)
        assert check.status == status


@pytest.mark.parametrize(
    ("configuration", "cell", "status"),
    [
        (BASELINE, Counters(24, requests=2), "pass"),
        (BASELINE, Counters(24, verify_steps=9, requests=2), "fail"),
        (TREE, Counters(100, verify_steps=40, requests=2), "pass"),
        (TREE, Counters(100, verify_steps=98, requests=2), "warn"),
        (TREE, Counters(10002, verify_steps=9980, requests=2), "warn"),
        (TREE, Counters(100, verify_steps=0, requests=2), "fail"),
        (TREE, Counters(100, verify_steps=25, requests=2), "warn"),
        (TREE, Counters(100, requests=2), "unknown"),
        (TREE, Counters(100, verify_steps=40), "unknown"),
    ],
)
def test_the_draft_is_used_exactly_where_it_was_asked_for(configuration, cell, status):
    (check,) = engine().check_cell(cell, configuration)
    assert check.status == status
    assert bool(check.fix) == (status != "pass")


def test_a_length_of_one_with_an_algorithm_that_does_not_fit_the_draft_fails(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"]}')
    cell = Counters(100, verify_steps=98, requests=2)
    args = [word.replace("EAGLE3", "EAGLE") for word in EAGLE]
    configuration = Configuration(name="eagle", args=args)
    (check,) = engine(draft=str(tmp_path)).check_cell(cell, configuration)
    assert check.status == "fail" and "EAGLE3" in check.fix
    (check,) = engine(draft=str(tmp_path)).check_cell(cell, TREE)
    assert check.status == "warn"
    far = {"architectures": ["LlamaForCausalLM"]}  # as the host tells it, whatever lies here
    told = {"models": {str(tmp_path): {"config": far}}}
    (check,) = engine(draft=str(tmp_path)).check_cell(cell, configuration, told)
    assert check.status == "warn"
    told = {"models": {"/far/draft": {"config": {"architectures": ["LlamaForCausalLMEagle3"]}}}}
    (check,) = engine(draft="/far/draft").check_cell(cell, configuration, told)
    assert check.status == "fail"


# --- the configuration ---------------------------------------------------------------------


def observed(**settings):
    """A server of the tree configuration on 0.5.10 as its info would read."""
    base = {
        "version": "0.5.10",
        "worker": "v1",
        "speculative_eagle_topk": 4,
        "speculative_num_steps": 3,
        "speculative_num_draft_tokens": 16,
        "ranks_differ": [],
        "attention_backend": "triton",
        "prefill_attention_backend": None,
        "decode_attention_backend": None,
    }
    cap = settings.pop("cap", 128)
    return ServerInfo("m", settings.pop("algorithm", "EAGLE3"), cap, {**base, **settings})


def test_the_captured_servers_are_what_was_asked():
    from runbook.engines.sglang.info import read_info

    tree = read_info(case("server_info-eagle3-topk4.json"))
    found = statuses(engine().check_configuration(tree, TREE))
    assert found.pop("request cap") == "warn"
    assert set(found.values()) == {"pass"}
    plain = read_info(case("server_info-baseline.json"))
    assert statuses(engine().check_configuration(plain, BASELINE)) == {
        "speculation": "pass",
        "request cap": "pass",
        "attention backend": "pass",
    }
    assert statuses(engine().check_configuration(tree, BASELINE))["speculation"] == "fail"
    assert statuses(engine().check_configuration(plain, TREE))["speculation"] == "fail"


@pytest.mark.parametrize(
    ("name", "env", "args", "worker", "status"),
    [
        ("eagle3-topk1-spec-v2", {}, [], "v2 overlap", "pass"),
        ("eagle3-topk1-spec-v2", {}, [], "v1", "fail"),
        ("eagle3-topk1-spec-v2", {}, [], "v2", "fail"),
        ("eagle3-topk1-spec-v2", {}, [], "no overlap", "fail"),
        ("eagle3-topk1-spec-v2", {}, ["--disable-overlap-schedule"], "v2", "pass"),
        ("eagle3-topk1-spec-v2", {}, [], "unknown", "unknown"),
        ("eagle3-topk4-v1", {}, [], "v1", "pass"),
        ("eagle3-topk4-v1", {}, [], "v2", "fail"),
        ("eagle3-topk4-v1", {}, [], "v2 overlap", "fail"),
        ("eagle3-topk4-v1", {}, [], "no overlap", "unknown"),
        ("a", {"SGLANG_ENABLE_SPEC_V2": "True"}, [], "v1", "fail"),
        ("a", {"SGLANG_ENABLE_SPEC_V2": "False"}, [], "v2 overlap", "fail"),
        ("a", {}, [], "v1", "pass"),
    ],
)
def test_the_worker_that_runs_is_the_one_meant(name, env, args, worker, status):
    configuration = Configuration(name=name, args=[*EAGLE, *args], env=env)
    checks = engine().check_configuration(observed(worker=worker), configuration)
    assert statuses(checks)["worker"] == status


def test_a_variable_means_nothing_where_the_release_ignores_it():
    configuration = Configuration(name="a", args=EAGLE, env={"SGLANG_ENABLE_SPEC_V2": "False"})
    info = observed(version="0.5.23", worker="v2 overlap")
    assert statuses(engine().check_configuration(info, configuration))["worker"] == "pass"


def test_sizes_effective_and_asked():
    asked = Configuration(name="c", args=[word if word != "4" else "8" for word in CHAIN])
    chain = {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}
    checks = {c.name: c for c in engine().check_configuration(observed(**chain), asked)}
    assert checks["draft tokens"].status == "warn"
    assert checks["draft tokens"].found.startswith("effective 4, asked 8")
    wrong = observed(speculative_eagle_topk=2, speculative_num_draft_tokens=None)
    found = statuses(engine().check_configuration(wrong, TREE))
    assert (found["topk"], found["steps"], found["draft tokens"]) == ("fail", "pass", "unknown")


@pytest.mark.parametrize(
    ("args", "cap", "status"),
    [
        (["--max-running-requests", "128"], 128, "pass"),
        (["--max-running-requests", "128"], 2048, "pass"),
        (["--max-running-requests", "128"], 96, "warn"),
        ([], 48, "warn"),
        ([], None, "unknown"),
    ],
)
def test_the_cap_that_runs(args, cap, status):
    checks = engine(args).check_configuration(observed(cap=cap), TREE)
    assert statuses(checks)["request cap"] == status


@pytest.mark.parametrize(
    ("args", "status"),
    [
        ([], "pass"),
        (["--attention-backend", "triton"], "pass"),
        (["--attention-backend", "flashinfer"], "warn"),
        (["--decode-attention-backend=triton"], "unknown"),
        (["--attention-backend=fa3", "--decode-attention-backend=triton"], "warn"),
    ],
)
def test_the_attention_backends_that_run(args, status):
    checks = engine(args).check_configuration(observed(), TREE)
    (check,) = (check for check in checks if check.name == "attention backend")
    assert (check.status, check.found) == (status, "triton")
    assert bool(check.fix) == (status != "pass")


def test_arguments_of_the_server_count_for_every_configuration():
    shared = engine(EAGLE)
    assert (
        statuses(shared.check_configuration(observed(), Configuration(name="a")))["speculation"]
        == "pass"
    )


def test_ranks_that_differ_warn():
    info = observed(ranks_differ=["speculative_eagle_topk: 1, 4"])
    assert statuses(engine().check_configuration(info, TREE))["ranks"] == "warn"
