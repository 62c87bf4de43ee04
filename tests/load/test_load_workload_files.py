"""Workload files of others, and the manifest of any."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.errors import BadInput
from runbook.load.manifest import spread
from runbook.load.prompts import builtin_workload, by_turn, read_workload, with_system
from runbook.load.workload_files import read_openai, read_sharegpt

TALK = {
    "id": "a_0",
    "conversations": [
        {"from": "human", "value": "Hello"},
        {"from": "gpt", "value": "Hi"},
        {"from": "human", "value": "Sort a list"},
        {"from": "gpt", "value": "sorted(x)"},
    ],
}
REQUEST = {
    "model": "m",
    "max_tokens": 9,
    "messages": [
        {"role": "developer", "content": "Be short."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Sort "}, {"type": "text", "text": "x"}],
        },
    ],
}
USAGE = {"prompt_tokens": 21, "completion_tokens": 5}


def written(path: Path, text: str):
    path.write_text(text)
    return read_workload(path)


def test_sharegpt_is_asked_up_to_the_last_human_turn(tmp_path):
    found = written(tmp_path / "share.json", json.dumps([TALK, {"conversations": []}]))
    (prompt,) = found.prompts
    assert (prompt.kind, [m["role"] for m in prompt.messages]) == (
        "sharegpt",
        ["user", "assistant", "user"],
    )
    manifest = found.manifest
    assert manifest.left_out == {"without a human turn": 1}
    assert (manifest.turns.p50, manifest.characters.greatest) == (3, len("HelloHiSort a list"))
    assert manifest.tokens_in is None
    assert "ShareGPT" in manifest.sentence() and "characters" in manifest.sentence()
    assert "template" in manifest.template


@pytest.mark.parametrize(
    "line",
    [
        REQUEST | {"usage": USAGE},
        {
            "custom_id": "1",
            "method": "POST",
            "body": REQUEST,
            "response": {"body": {"usage": USAGE}},
        },
        {"request": REQUEST, "response": {"usage": USAGE}},
    ],
    ids=["body", "batch", "log"],
)
def test_an_openai_log_in_its_forms(tmp_path, line):
    found = written(tmp_path / "log.jsonl", "\n" + json.dumps(line) + "\n\n" + json.dumps(line))
    (prompt,) = found.prompts
    assert prompt.kind == "openai"
    assert prompt.messages == (
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Sort x"},
    )
    manifest = found.manifest
    assert manifest.left_out == {"the same prompt again": 1}
    assert (manifest.tokens_in.p50, manifest.tokens_out.p99) == (21, 5)
    assert "21 tokens" in manifest.sentence()
    json.dumps(manifest.as_json())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tools": [{"type": "function"}]}, "with tools"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]},
            "with tool calls",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "with tool calls"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "with a role that chat does not know"),
        ({"messages": [{"role": "user", "content": ""}]}, "with an empty turn"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "surrogate"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "with images",
        ),
    ],
)
def test_what_cannot_be_sent_as_it_was_is_left_out_and_counted(change, why):
    lines = [json.dumps(REQUEST), json.dumps(REQUEST | change)]
    found = read_openai("\n".join(lines), "log.jsonl")
    assert len(found.asked) == 1
    ((said, count),) = found.left_out.items()
    assert why in said and count == 1
    with pytest.raises(BadInput, match=r"log\.jsonl: no prompt that can be sent"):
        read_openai(lines[1], "log.jsonl")


@pytest.mark.parametrize(
    ("reader", "text", "place"),
    [
        (read_openai, json.dumps(REQUEST) + "\n{", "x: line 2: no JSON"),
        (read_openai, json.dumps(REQUEST) + "\n[]", "x: line 2: list"),
        (read_openai, json.dumps(REQUEST) + '\n{"messages": []}', "x: line 2: no list of messages"),
        (read_openai, '{"messages": ["x"]}', "x: line 1: a message is str"),
        (read_openai, "[" * 100_000, "x: line 1: no JSON"),
        (read_sharegpt, "[", "x: no JSON"),
        (read_sharegpt, "{}", "x: dict"),
        (read_sharegpt, "[1]", "x: item 1: int"),
        (read_sharegpt, '[{"id": 1}]', "x: item 1: no list of conversations"),
        (read_sharegpt, '[{"conversations": [1]}]', "x: item 1: a turn is int"),
        (read_sharegpt, "[]", "x: no prompt that can be sent"),
    ],
)
def test_damaged_files_are_refused_with_their_place(reader, text, place):
    with pytest.raises(BadInput) as caught:
        reader(text, "x")
    assert str(caught.value).startswith(place)


def test_own_form_stays_own_form(tmp_path):
    own = {"id": "a", "kind": "edit", "messages": [{"role": "user", "content": "hello"}]}
    found = written(tmp_path / "own.jsonl", json.dumps(own))
    assert [(prompt.id, prompt.kind) for prompt in found.prompts] == [("a", "edit")]
    assert found.manifest.kinds == {"edit": 1}


def test_the_built_in_prompts_have_a_manifest():
    manifest = builtin_workload().manifest
    assert manifest.prompts == sum(manifest.kinds.values()) >= 60
    assert manifest.characters.p50 <= manifest.characters.p90 <= manifest.characters.greatest
    assert len(manifest.fingerprint) == 64


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_percentiles_lie_within_the_values(values):
    found = spread(values)
    assert found is not None and found.count == len(values)
    assert min(values) <= found.p50 <= found.p90 <= found.p99 <= found.greatest == max(values)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["messages", "role", "content", "body", "conversations", "from", "value"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4))
def test_any_json_is_prompts_or_bad_input(values):
    for reader, text in (
        (read_sharegpt, json.dumps(values)),
        (read_openai, "\n".join(map(json.dumps, values))),
    ):
        try:
            assert all(one.prompt.messages for one in reader(text, "x").asked)
        except BadInput as error:
            assert str(error).startswith("x: ")


def test_tools_and_images_of_a_log_are_sent_where_asked_for():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tools = [{"type": "function", "function": {"name": "f"}}]
    picture = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "u"}}]
    talk = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "done"},
    ]
    lines = "\n".join(
        json.dumps(one)
        for one in (
            {"messages": talk, "tools": tools},
            {"messages": [{"role": "user", "content": picture}]},
            {"messages": [{"role": "user", "content": "plain"}]},
        )
    )
    assert read_openai(lines, "log").left_out == {"with tools": 1, LEFT_OUT_IMAGES: 1}
    both = read_openai(lines, "log", ["tools", "images"])
    assert not both.left_out
    with_tools, image, _ = (one.prompt for one in both.asked)
    assert with_tools.tools == tuple(tools)
    assert with_tools.messages[1] == {"role": "assistant", "tool_calls": [call], "content": ""}
    assert with_tools.messages[2]["tool_call_id"] == "1"
    assert image.messages == ({"role": "user", "content": picture},)
    assert read_openai(lines, "log", ["images"]).left_out == {"with tools": 1}


LEFT_OUT_IMAGES = "with images or other parts that are no text"


def test_own_prompts_may_offer_tools_and_images(tmp_path):
    picture = [{"type": "image_url", "image_url": {"url": "u"}}]
    line = {"id": "a", "kind": "x", "messages": [{"role": "user", "content": picture}]}
    (prompt,) = written(tmp_path / "a", json.dumps(line | {"tools": [{"type": "f"}]})).prompts
    assert (prompt.messages[0]["content"], prompt.tools) == (picture, ({"type": "f"},))
    for wrong, said in (
        (line | {"tools": "f"}, "tools is no list"),
        (line | {"messages": [{"role": "user", "content": [1]}]}, "no text"),
    ):
        with pytest.raises(BadInput, match=said):
            written(tmp_path / "b", json.dumps(wrong))


def test_a_shared_system_message_stands_before_their_own(tmp_path):
    lines = [
        {"id": "a", "kind": "x", "messages": [{"role": "user", "content": "1"}]},
        {
            "id": "b",
            "kind": "x",
            "messages": [{"role": "system", "content": "own"}, {"role": "user", "content": "2"}],
        },
    ]
    found = with_system(written(tmp_path / "a", "\n".join(map(json.dumps, lines))), "all")
    assert [p.messages[0]["content"] for p in found.prompts] == ["all", "all\n\nown"]
    assert [len(p.messages) for p in found.prompts] == [2, 2]
    assert found.manifest.characters.greatest == len("all\n\nown2")


def test_every_turn_of_a_conversation(tmp_path):
    found = by_turn(written(tmp_path / "share.json", json.dumps([TALK])))
    assert [len(prompt.messages) for prompt in found.prompts] == [1, 3]
    assert len({prompt.conversation for prompt in found.prompts}) == 1
    assert found.manifest.prompts == 2 and found.manifest.source.endswith("share.json")
    single = by_turn(written(tmp_path / "one.jsonl", json.dumps(REQUEST)))
    assert [prompt.conversation for prompt in single.prompts] == [""]
