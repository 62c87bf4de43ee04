"""Repetition and equality of answers, over texts like those that servers give."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.benchmark.measurements import key_of
from runbook.benchmark.texts import (
    answers_from_json,
    answers_of,
    compare_answers,
    judge_texts,
    repeats,
)
from runbook.cells import Cell
from runbook.load import Record
from runbook.load.prompts import builtin_prompts

CODE = builtin_prompts()[0].messages[-1]["content"]
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven")


def prose(count: int, seed: int = 1) -> str:
    chance = random.Random(seed)
    return " ".join(f"{chance.choice(WORDS)}{chance.randrange(40)}" for _ in range(count))


def record(prompt: str, text: str, **fields) -> Record:
    return replace(Record(prompt, 0.0, text=text, finish_reason="length"), **fields)


def cell(config: str, block: int = 1, concurrency: int = 8, **fields) -> Cell:
    made = Cell(config, block, block, concurrency, requests=8, output_tok_s=10.0)
    return replace(made, **fields)


def answers(cells: dict[Cell, dict[str, str]]) -> dict:
    return {
        key_of(one): answers_of([record(prompt, text) for prompt, text in texts.items()])
        for one, texts in cells.items()
    }


@pytest.mark.parametrize(
    "text",
    [
        " word" * 64,
        " a b" * 40,
        "aaaa" * 100,
        "重复的句子。" * 60,
        "I will now check the file again. " * 12,
        prose(100) + " so it is" * 40,
        "\n".join(["- one", "- two"] * 30),
        prose(50) + "\n" + (prose(48, 2) + "\n") * 5,
    ],
)
def test_loops_are_seen(text: str) -> None:
    assert repeats(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "no no no no no no",
        prose(64),
        prose(2000),
        CODE,
        json.dumps([{"id": n, "name": f"item {n}", "price": n * 7 % 13} for n in range(12)]),
        "\n".join(f"| {n} | {n * n} | {'even' if n % 2 == 0 else 'odd'} |" for n in range(25)),
        *(prompt.messages[-1]["content"] for prompt in builtin_prompts()),
    ],
)
def test_work_that_repeats_by_nature_is_no_loop(text: str) -> None:
    assert not repeats(text)


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    assert repeats(text) in (True, False)


def test_repetition_voids_only_where_the_baseline_lacks_it() -> None:
    base, looping, alike = cell("baseline"), cell("looping"), cell("alike")
    texts = {f"p{n}": prose(64, n) for n in range(7)} | {"zeros": "0, " * 80}
    said = answers({base: texts, looping: texts | {"p3": " ha" * 64}, alike: texts})
    judged = {one.config: one for one in judge_texts([base, looping, alike], said, "baseline")}
    assert judged["baseline"].status == judged["alike"].status == "ok"
    assert judged["looping"].status == "void"
    assert "1 of 7 answers repeat themselves where the baseline's do not (p3)" in (
        judged["looping"].note
    )


def test_a_repetition_of_any_baseline_life_excuses_the_prompt() -> None:
    base, other, own = cell("baseline"), cell("baseline", 2), cell("lean")
    said = answers({base: {"p": prose(64)}, other: {"p": "x " * 64}, own: {"p": "x " * 64}})
    assert {one.status for one in judge_texts([base, other, own], said, "baseline")} == {"ok"}


def test_few_in_many_do_not_void_and_prompts_of_no_baseline_say_nothing() -> None:
    base, own = cell("baseline"), cell("lean")
    many = {f"p{n}": prose(40, n) for n in range(100)}
    said = answers({base: many, own: many | {"p1": "x " * 64, "p2": "x " * 64}})
    assert judge_texts([base, own], said, "baseline") == (base, own)
    said = answers({base: many, own: many | {f"p{n}": "x " * 64 for n in range(3)}})
    assert judge_texts([base, own], said, "baseline")[1].status == "void"
    said = answers({base: {}, own: {"p": "x " * 64}})
    assert judge_texts([base, own], said, "baseline") == (base, own)


def test_what_was_found_before_is_judged_afresh() -> None:
    base, own = cell("baseline"), cell("lean", note="draft used: warn")
    calm = answers({base: {"p": prose(64)}, own: {"p": "x " * 64}})
    found = judge_texts([base, own], calm, "baseline")
    assert found[1].status == "void" and found[1].note.endswith("; draft used: warn")
    assert judge_texts(found, calm, "baseline") == found
    excused = answers({base: {"p": "x " * 64}, own: {"p": "x " * 64}})
    assert judge_texts(found, excused, "baseline") == (base, own)


def test_other_reasons_for_a_void_stay() -> None:
    base, own = cell("baseline"), cell("lean", status="void", note="queue-limited")
    said = answers({base: {"p": prose(64)}, own: {"p": "x " * 64}})
    assert judge_texts([base, own], said, "baseline") == (base, own)


def test_equality_is_told_with_the_baseline_as_its_own_control() -> None:
    texts = {f"p{n}": prose(20, n) for n in range(8)}
    other = texts | {"p0": "another", "p1": "yet another"}
    cells = [cell(name, block) for name in ("baseline", "lean", "odd") for block in (1, 2)]
    said = answers({one: other if one.config == "odd" else texts for one in cells})
    assert list(compare_answers(cells, said, "baseline")) == [
        "C=8: answers of lean equal to those of baseline: 32 of 32 (100%); "
        "baseline with itself: 8 of 8 (100%)",
        "C=8: answers of odd equal to those of baseline: 24 of 32 (75%); "
        "baseline with itself: 8 of 8 (100%): speculation, or what else differs, changes what is "
        "answered",
    ]


def test_a_baseline_that_differs_from_itself_accuses_nobody() -> None:
    cells = [cell(name, block) for name in ("baseline", "lean") for block in (1, 2)]
    said = answers({one: {"p": f"{one.config} {one.block}"} for one in cells})
    (sentence,) = compare_answers(cells, said, "baseline")
    assert "0 of 4 (0%)" in sentence and "0 of 1 (0%)" in sentence
    assert "changes what" not in sentence


def test_one_block_has_no_control_and_no_common_prompt_no_sentence() -> None:
    cells = [cell("baseline"), cell("lean"), cell("lean", concurrency=1)]
    said = answers({cells[0]: {"p": "a"}, cells[1]: {"p": "a"}, cells[2]: {"p": "a"}})
    (sentence,) = compare_answers(cells, said, "baseline")
    assert sentence.startswith("C=8") and "nothing to control it by" in sentence


def test_answers_are_those_that_came_and_survive_as_json() -> None:
    records = [
        record("p", "one"),
        record("p", "two"),
        record("q", "three", error_kind="cut", error="cut"),
        record("r", "", reasoning="hm " * 64),
    ]
    found = answers_of(records)
    assert list(found) == ["p/0", "p/1", "r/0"]
    assert found["p/0"][0] != found["p/1"][0]
    assert [repeating for _, repeating in found.values()] == [False, False, True]
    assert answers_from_json(json.loads(json.dumps({"cell": found}))) == {"cell": found}
    assert answers_from_json(None) == {}
