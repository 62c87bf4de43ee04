"""Result files of other tools, in their real forms: what is read, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import params
from runbook.errors import BadInput
from runbook.foreign import gather
from runbook.foreign.formats import read_text
from runbook.foreign.names import Named, name_by_path
from runbook.verbs.choosing import as_text, choose_from_files, split_words

CASES = Path(__file__).parents[1] / "cases" / "foreign"
PUBLISHED = {"baseline": (92.7, 689.4, 773.1), "topk1": (86.8, 759.3, 775.0)}
TOOLS = ("sglang", "vllm", "guidellm", "aiperf")
MIX = [
    params.MixShare(concurrency=concurrency, share=share)
    for concurrency, share in ((1, 0.15), (30, 0.6), (100, 0.25))
]


def text_of(name):
    return (CASES / name).read_text()


def changed(name, **fields):
    """A case with some fields of its first object replaced; ``...`` takes one away."""
    value = json.loads(text_of(name).split("\n")[0] if name.endswith("l") else text_of(name))
    for path, new in fields.items():
        place, *keys = value, *path.split("__")
        for key in keys[:-1]:
            place = place[int(key) if key.isdigit() else key]
        if new is ...:
            del place[keys[-1]]
        else:
            place[keys[-1]] = new
    return json.dumps(value)


def result_of(name, **fields):
    return read_text(changed(name, **fields), "mine.json")[0]


# --- what is read


@pytest.mark.parametrize("tool", TOOLS)
def test_a_folder_of_each_tool_gives_the_same_cells(tool):
    found = gather([CASES / tool])
    figures = {
        config: tuple(
            pytest.approx(cell.output_tok_s)
            for cell in sorted(found.cells, key=lambda cell: cell.concurrency)
            if cell.config == config
        )
        for config in ("baseline", "topk1")
    }
    assert figures == PUBLISHED
    assert {cell.concurrency for cell in found.cells} == {1, 30, 100}
    assert {cell.status for cell in found.cells} == {"ok"}
    for cell in found.cells:
        assert cell.ttft_p50_ms == pytest.approx(180 + 6 * cell.concurrency)
        assert cell.tpot_p50_ms == pytest.approx(1000 * cell.concurrency / cell.output_tok_s, 1e-3)
        assert cell.requests == max(2 * cell.concurrency, 8)
        assert (cell.life, cell.block) == (1, 1)
    assert any("defines them" in note for note in found.notes)


def test_acceptance_is_read_where_the_file_has_it_and_unknown_elsewhere():
    lengths = {
        tool: {cell.config: cell.accept_length for cell in gather([CASES / tool]).cells}
        for tool in TOOLS
    }
    for tool in ("sglang", "vllm"):
        assert lengths[tool] == {"baseline": None, "topk1": 2.61}
    for tool in ("guidellm", "aiperf"):
        assert lengths[tool] == {"baseline": None, "topk1": None}


def test_a_sweep_counts_each_run_once_and_as_one_life():
    found = gather([CASES / "vllm-sweep"])
    assert len(found.cells) == 2 * 2 * 3
    assert {(cell.config, cell.life) for cell in found.cells} == {("baseline", 1), ("topk1", 1)}
    assert any("one server life" in note for note in found.notes)
    summary = CASES / "vllm-sweep" / "SERVE--topk1-BENCH--max_concurrency=30" / "summary.json"
    alone = gather([summary])
    assert [(cell.config, cell.concurrency) for cell in alone.cells] == [("topk1", 30)] * 3


def test_the_published_figures_decide_alike_from_every_tool():
    rule = params.Choose(mix=MIX)
    for tool in TOOLS:
        decision, verdict = choose_from_files([CASES / tool], params.ChoiceTerms(rule, {}))
        assert (decision.status, decision.choice) == ("provisional", "topk1"), tool
        assert verdict.ok
        assert decision.costs == ("C=1 loses 6.4 %", "C=100 is a tie (+0.2 %)")
        assert "No interval can be given" in decision.reason
        assert "defines them" in as_text(decision)


def test_without_parameters_the_equal_weights_are_said():
    decision, _ = choose_from_files([CASES / "sglang"], None)
    assert any("every measured point weighs the same" in note for note in decision.notes)


def test_labels_and_older_forms():
    labelled = gather([CASES / "guidellm-labelled.json"]).cells
    assert [(c.config, c.concurrency, c.output_tok_s) for c in labelled] == [
        ("topk1", 30, pytest.approx(759.3))
    ]
    older = gather([CASES / "aiperf-0.2.json"]).cells
    assert [(c.config, c.concurrency, c.context_tokens) for c in older] == [("aiperf-0.2", 30, 812)]


def test_two_tools_side_by_side_are_named():
    notes = gather([CASES / "sglang" / "baseline.jsonl", CASES / "aiperf" / "topk1"]).notes
    assert any("differ by definition" in note for note in notes)
    with pytest.raises(BadInput, match=r"(?s)baseline at C=1.*baseline.jsonl.*baseline-c1.json"):
        gather([CASES / "sglang" / "baseline.jsonl", CASES / "vllm"])


def test_jsonl_of_cells_and_a_run_folder(tmp_path):
    rows = [
        {"config": config, "concurrency": 8, "output_tok_s": figure, "life": life, "note": None}
        for life in (1, 2, 3)
        for config, figure in (("baseline", 20 + life / 100), ("fast", 30 + life / 50))
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    cells = gather([path]).cells
    assert [(cell.config, cell.life, cell.block) for cell in cells[:3]] == [
        ("baseline", 1, 1),
        ("fast", 1, 1),
        ("baseline", 2, 2),
    ]
    assert choose_from_files([path], None)[0].status == "chosen"
    (tmp_path / "cells.csv").write_text("config,concurrency,output_tok_s\nbaseline,1,9\n")
    assert [cell.config for cell in gather([tmp_path]).cells] == ["baseline"]


def test_names_that_say_lives_give_independent_blocks(tmp_path):
    for life in (1, 2, 3):
        for config, factor in (("baseline", 1.0), ("topk1", 1.2)):
            line = changed(
                "sglang/baseline.jsonl", tag=None, output_throughput=90 * factor + life / 10
            )
            (tmp_path / f"{config}-life{life}-c1.jsonl").write_text(line + "\n")
    decision, _ = choose_from_files([tmp_path], None)
    assert (decision.status, decision.choice, decision.blocks) == ("chosen", "topk1", 3)


# --- what may not be compared


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("sglang/topk1.jsonl", {"request_rate": 4.0}, "open loop at 4.0"),
        ("sglang/topk1.jsonl", {"dataset_name": "random-ids"}, "random tokens"),
        ("sglang/topk1.jsonl", {"total_output_tokens_retokenized": 800}, "differ by 50%"),
        ("vllm/topk1-c30.json", {"request_rate": 4.0}, "open loop"),
        ("vllm/topk1-c30.json", {"dataset": "random"}, "random tokens"),
        ("aiperf-0.2.json", {"was_cancelled": True}, "cancelled"),
        ("aiperf-0.2.json", {"input_config__loadgen__request_rate": 3.0}, "open loop"),
    ],
)
def test_figures_that_may_not_be_compared_are_void(name, fields, said):
    result = result_of(name, **fields)
    assert any(said in why for why in result.void)
    assert result.output_tok_s is not None


def test_a_server_that_runs_fewer_at_once_is_queue_limited(tmp_path):
    lines = [json.loads(line) for line in text_of("sglang/topk1.jsonl").splitlines()]
    for line in lines:
        line["server_info"]["internal_states"][0]["effective_max_running_requests_per_dp"] = 48
    path = tmp_path / "topk1.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    status = {cell.concurrency: cell.status for cell in gather([path]).cells}
    assert status == {1: "ok", 30: "ok", 100: "void"}


def test_unmeasured_zeros_are_unknown():
    result = result_of("sglang/topk1.jsonl", median_ttft_ms=0.0, p99_ttft_ms=float("nan"))
    assert (result.ttft_p50_ms, result.ttft_p99_ms) == (None, None)
    assert result_of("sglang/topk1.jsonl", output_throughput=0.0).output_tok_s is None


def test_failed_requests_are_counted_where_the_file_tells():
    assert result_of("vllm/topk1-c30.json", failed=3).errors == 3
    assert result_of("vllm/topk1-c30.json", failed=..., completed=58).errors == 2
    assert result_of("sglang/topk1.jsonl", errors=["", "boom", ""]).errors == 1
    assert result_of("sglang/topk1.jsonl").errors is None


def test_unlike_work_and_unlike_servers_are_named(tmp_path):
    shutil.copy(CASES / "sglang" / "baseline.jsonl", tmp_path)
    (tmp_path / "topk1.jsonl").write_text(
        changed(
            "sglang/topk1.jsonl",
            total_output_tokens=1500,
            total_output_tokens_retokenized=1500,
            server_info__attention_backend="flashinfer",
        )
    )
    notes = "\n".join(choose_from_files([tmp_path], None)[0].notes)
    assert "output tokens of a request at C=1 differ: baseline 200.0, topk1 187.5" in notes
    assert "servers differ in attention_backend: baseline triton, topk1 flashinfer" in notes
    assert "api_key" not in notes


def test_a_load_without_a_concurrency_is_left_out_and_said(tmp_path):
    shutil.copy(CASES / "sglang" / "baseline.jsonl", tmp_path)
    (tmp_path / "open.jsonl").write_text(
        changed("sglang/topk1.jsonl", tag="open", max_concurrency=None, request_rate=9.5)
    )
    found = gather([tmp_path])
    assert {cell.config for cell in found.cells} == {"baseline"}
    assert any(note.startswith("left out: open") and "9.5" in note for note in found.notes)


def test_files_beside_results_are_passed_over(tmp_path):
    shutil.copytree(CASES / "aiperf", tmp_path / "aiperf")
    (tmp_path / "aiperf" / "topk1" / "other.json").write_text('{"colour": "red"}')
    found = gather([tmp_path / "aiperf"])
    assert len(found.cells) == 6
    assert any("passed over" in note and "other.json" in note for note in found.notes)


# --- what is refused, with file and place

DAMAGED = {
    "empty": "",
    "blank": " \n\n",
    "no text of ours": "hello",
    "no header": "a,b\n1,2\n",
    "cut JSON": text_of("vllm/topk1-c30.json")[:700],
    "cut second line": "\n".join(text_of("sglang/topk1.jsonl").split("\n")[:2])[:-900],
    "garbage after": text_of("vllm/topk1-c1.json") + "\n}",
    "deep": "[" * 100_000,
    "deep object": '{"a":' * 100_000,
    "null": "[null]",
    "number": "[1]",
    "empty object": "{}",
    "empty list": "[]",
    "another object": '{"data": [], "model": "x"}',
    "cells without a figure": '{"config": "a", "concurrency": 1}',
    "cells with a list": '{"config": "a", "concurrency": 1, "output_tok_s": [1]}',
    "cells with a truth": '{"config": "a", "concurrency": true, "output_tok_s": 1}',
    "text for a figure": changed("sglang/topk1.jsonl", output_throughput="86.8"),
    "truth for a figure": changed("vllm/topk1-c1.json", output_throughput=True),
    "negative": changed("vllm/topk1-c1.json", median_ttft_ms=-3),
    "half a concurrency": changed("vllm/topk1-c1.json", max_concurrency=1.5),
    "no concurrency": changed("vllm/topk1-c1.json", max_concurrency=None),
    "concurrency 0": changed("vllm/topk1-c1.json", max_concurrency=0),
    "giant number": changed("vllm/topk1-c1.json", duration=1).replace(
        '"output_throughput": 86.8', '"output_throughput": 1' + "0" * 400
    ),
    "endless number": '{"output_throughput": ' + "9" * 5000 + "}",
    "label is a list": changed("vllm/topk1-c1.json", label=["x"]),
    "label with a bell": changed("vllm/topk1-c1.json", label="a\x07b"),
    "label of half a pair": changed("vllm/topk1-c1.json", label="a\ud800b"),
    "benchmarks of text": changed("guidellm-labelled.json", benchmarks=["x"]),
    "no benchmark": changed("guidellm-labelled.json", benchmarks=[]),
    "metrics is a list": changed("guidellm-labelled.json", benchmarks__0__metrics=[1]),
    "percentile is text": changed(
        "guidellm-labelled.json",
        benchmarks__0__metrics__time_to_first_token_ms__successful__percentiles__p50="fast",
    ),
    "strategy is text": changed("guidellm-labelled.json", benchmarks__0__config__strategy="x"),
    "unknown unit": changed("aiperf-0.2.json", time_to_first_token__unit="fortnights"),
    "metric is a number": changed("aiperf-0.2.json", inter_token_latency=3),
    "phases of numbers": changed("aiperf-0.2.json", input_config__phases=[1, 2]),
    "config is text": changed("aiperf-0.2.json", input_config="x"),
    "yaml": "metadata:\n  version: 1\nbenchmarks: []\n",
    "oversized field": "config,concurrency,output_tok_s\n" + "x" * 200_000 + ",1,2\n",
    "carriage returns": "config,concurrency,output_tok_s\rbase,1,2\rtop,1,3\r",
    "cells of NUL": "config,concurrency,output_tok_s\na\x00,1\x00,2\n",
}


@pytest.mark.parametrize("shape", DAMAGED)
def test_damaged_files_are_refused_with_file_and_place(tmp_path, shape):
    path = tmp_path / "mine.json"
    path.write_text(DAMAGED[shape], encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        choose_from_files([path], None)
    assert str(path) in str(caught.value) or "mine" in str(caught.value)
    assert caught.value.exit_code == 2
    str(caught.value).encode()


def test_a_damaged_file_in_a_folder_is_not_passed_over(tmp_path):
    shutil.copy(CASES / "sglang" / "baseline.jsonl", tmp_path)
    (tmp_path / "topk1.jsonl").write_text(text_of("sglang/topk1.jsonl")[:-50])
    with pytest.raises(BadInput, match=r"topk1\.jsonl: line 3"):
        gather([tmp_path])


def test_bytes_and_folders_that_cannot_be_read(tmp_path):
    (tmp_path / "latin.json").write_bytes(b'{"a": 1}\n\xe9')
    with pytest.raises(BadInput, match="line 2: bytes that are no UTF-8"):
        gather([tmp_path / "latin.json"])
    (tmp_path / "nothing").mkdir()
    with pytest.raises(BadInput, match="no result file"):
        gather([tmp_path / "nothing"])
    with pytest.raises(BadInput, match="No such file"):
        gather([tmp_path / "absent.json"])


# --- names


@pytest.mark.parametrize(
    ("parts", "concurrency", "named"),
    [
        (["topk1-c30"], 30, Named("topk1", None)),
        (["topk1-c30"], 8, Named("topk1-c30", None)),
        (["k2.5-topk1_run2"], 8, Named("k2.5-topk1", None, "run2")),
        (["eagle3-life2-c8"], 8, Named("eagle3", 2)),
        (["profile_export_aiperf", "concurrency_8", "eagle3"], 8, Named("eagle3", None)),
        (
            ["profile_export_aiperf", "concurrency_8", "trial_0002", "profile_runs", "x"],
            8,
            Named("x", None, "trial2"),
        ),
        (["benchmarks", "block2", "eagle3"], 8, Named("eagle3", 2)),
        (["run=0", "SERVE--lean-BENCH--max_concurrency=8"], 8, Named("lean", None, "run0")),
        (["run=0", "BENCH--max_concurrency=8", "lean"], 8, Named("lean", None, "run0")),
        (["openai-infqps-concurrency8-Kimi-20261130-101010", "lean"], 8, Named("lean", None)),
        (["sglang_1130_1000_sharegpt", "lean"], 8, Named("lean", None)),
        (["benchmarks"], 8, Named("benchmarks", None)),
    ],
)
def test_names_by_path(parts, concurrency, named):
    assert name_by_path(parts, concurrency) == named


def test_the_last_word_is_params_where_it_ends_as_yaml():
    words = [Path("a.json"), Path("b"), Path("mine.yaml")]
    assert split_words(words) == (words[:2], words[2])
    assert split_words(words[:1]) == (words[:1], None)
    assert split_words(words[2:]) == (words[2:], None)


# --- any text, and any change of a real file

SOURCES = (
    "sglang/topk1.jsonl",
    "vllm/topk1-c1.json",
    "guidellm-labelled.json",
    "aiperf-0.2.json",
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@given(st.text())
def test_any_text_is_cells_or_bad_input(text):
    try:
        read_text(text, "x.json")
    except BadInput as error:
        assert str(error).startswith("x.json")


@settings(max_examples=150)
@given(st.sampled_from(SOURCES), st.data())
def test_any_field_replaced_by_anything_is_read_or_refused(name, data):
    value = json.loads(text_of(name).split("\n")[0] if name.endswith("l") else text_of(name))
    place = value
    for _ in range(data.draw(st.integers(0, 6))):
        inside = [key for key in place if isinstance(place[key], dict) and place[key]]
        if not inside:
            break
        place = place[data.draw(st.sampled_from(inside))]
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    try:
        read_text(json.dumps(value), "x.json")
    except BadInput as error:
        assert str(error).startswith("x.json")


@given(st.sampled_from(SOURCES), st.data())
def test_any_cut_is_refused(name, data):
    text = text_of(name).split("\n")[0] if name.endswith("l") else text_of(name).rstrip()
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    with pytest.raises(BadInput):
        read_text(cut, "x.json")
