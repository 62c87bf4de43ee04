import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.errors import BadInput
from runbook.load.prompts import KINDS, builtin_prompts, parse_prompts, read_prompts
from runbook.load.records import Prompt

GOOD = {"id": "a", "kind": "edit", "messages": [{"role": "user", "content": "hello"}]}


def text_of(prompt: Prompt) -> str:
    return "\n".join(message["content"] for message in prompt.messages)


def test_builtin_prompts_are_enough_and_each_is_its_own():
    prompts = builtin_prompts()
    kinds = Counter(prompt.kind for prompt in prompts)
    assert set(kinds) == set(KINDS)
    assert kinds["edit"] >= 24 and kinds["generate"] >= 15 and kinds["agent"] >= 15
    assert len({prompt.id for prompt in prompts}) == len(prompts) >= 60
    assert len({text_of(prompt) for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        assert prompt.id.startswith(f"{prompt.kind}-")
        assert prompt.messages[-1]["role"] == "user"


def test_builtin_lengths_are_short_and_long():
    lengths = {
        kind: sorted(len(text_of(p)) for p in builtin_prompts() if p.kind == kind) for kind in KINDS
    }
    assert lengths["edit"][0] >= 200 and lengths["edit"][-1] <= 600
    for kind in ("generate", "agent"):
        assert lengths[kind][0] < 450 and lengths[kind][-1] > 700


def test_edit_prompts_hold_code_longer_than_an_answer_of_64_tokens():
    for prompt in builtin_prompts():
        if prompt.kind == "edit":
            code = text_of(prompt).split("```")
            body = code[1] if len(code) >= 3 else text_of(prompt).split("\n\n", 1)[1]
            assert len(body) >= 180, prompt.id
            assert body.count("\n") >= 5, prompt.id


def test_agent_prompts_bring_a_system_message():
    for prompt in builtin_prompts():
        if prompt.kind == "agent":
            assert prompt.messages[0]["role"] == "system"


def test_file_with_blank_lines_and_byte_order_mark(tmp_path):
    path = tmp_path / "prompts.jsonl"
    second = GOOD | {"id": "b"}
    path.write_bytes(b"\xef\xbb\xbf" + f"\n{json.dumps(GOOD)}\r\n\n{json.dumps(second)}".encode())
    prompts = read_prompts(path)
    assert [prompt.id for prompt in prompts] == ["a", "b"]
    assert prompts[0].messages == ({"role": "user", "content": "hello"},)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "no JSON"),
        ("[" * 100000, "no JSON"),
        ("[]", "list instead of an object"),
        (json.dumps(GOOD | {"id": 7}), "id is missing"),
        (json.dumps(GOOD | {"kind": ""}), "kind is missing"),
        (json.dumps(GOOD | {"prompt": "x"}), "unknown key 'prompt'"),
        (json.dumps(GOOD | {"messages": []}), "messages is missing"),
        (json.dumps(GOOD | {"messages": [{"role": "user"}]}), "other keys"),
        (json.dumps(GOOD | {"messages": [{"role": "boss", "content": "x"}]}), "the role 'boss'"),
        (json.dumps(GOOD | {"messages": [{"role": ["x"], "content": "x"}]}), "the role ['x']"),
        (json.dumps(GOOD | {"messages": [{"role": "user", "content": None}]}), "no text"),
        (json.dumps(GOOD | {"messages": [{"role": "user", "content": "\ud800"}]}), "surrogate"),
        (json.dumps(GOOD), "the id a stands in line 1 already"),
    ],
)
def test_errors_name_file_and_line(tmp_path, line, fault):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(GOOD) + "\n\n" + line + "\n")
    with pytest.raises(BadInput) as caught:
        read_prompts(path)
    assert str(caught.value).startswith(f"{path}: line 3: ")
    assert fault in str(caught.value)


def test_no_utf8_names_the_line(tmp_path):
    path = tmp_path / "latin.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n\n\xe9\n")
    with pytest.raises(BadInput, match="line 3: bytes that are no UTF-8"):
        read_prompts(path)


def test_absent_folder_and_empty_files_are_bad_input(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n \n")
    for name, fault in (
        ("gone.jsonl", "No such file"),
        (".", "directory"),
        ("empty.jsonl", "no prompt"),
    ):
        with pytest.raises(BadInput, match=fault):
            read_prompts(tmp_path / name)


@given(
    st.lists(
        st.builds(
            lambda kind, contents: {
                "kind": kind,
                "messages": [{"role": "user", "content": content} for content in contents],
            },
            st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip),
            st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_was_written_is_read(rows):
    rows = [row | {"id": f"p{number}"} for number, row in enumerate(rows)]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    assert [
        {"kind": p.kind, "messages": list(p.messages), "id": p.id} for p in parse_prompts(text, "x")
    ] == rows


@given(st.text())
def test_any_text_is_prompts_or_bad_input(text):
    try:
        parse_prompts(text, "x")
    except BadInput as error:
        assert str(error).startswith("x: ")
