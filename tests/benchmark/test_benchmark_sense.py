"""Answers are judged by themselves: what is no answer, and what only looks like a loop."""

from __future__ import annotations

import base64
import csv
import io
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.benchmark.sense import (
    NO_TEXT,
    SOME_WITHOUT_SENSE,
    VOID_WITHOUT_SENSE,
    fault_of,
    judge_answers,
)
from runbook.load import Record
from runbook.load.prompts import builtin_prompts

NOUNS = ["harbour", "ledger", "signal", "copper", "meadow", "engine", "violin", "orbit"]


def story(count: int, seed: int = 1) -> str:
    chance = random.Random(seed)
    return " ".join(f"{chance.choice(NOUNS)}{chance.randrange(50)}" for _ in range(count))


def table_of(rows: int) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(
        [f"2031-04-{n % 28 + 1:02}", n * 17 % 101, 0, 0, ""] for n in range(rows)
    )
    return out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "?" * 8,
        "\ufffd" * 200,
        "<unk>" * 30,
        " of" * 64,
        "0" * 64,
        "qx" * 40,
        " left right" * 16,
        "\n\t" * 4 + "yes\n" * 20,
        "We look at the ledger once more then. " * 5,
        "今天天气很好。" * 12,
        "The harbour is open.\n" + "#!" * 60,
        story(30) + " and then the copper engine of the meadow" * 12,
        "```python\n" + "x = x\n" * 40,
        "-" * 300,
        "Total: " + "." * 200,
        story(3000) + "!" * 9000,
    ],
)
def test_one_thing_again_and_again_up_to_the_end_is_no_answer(text: str) -> None:
    assert fault_of(text).startswith("a loop of ")


@pytest.mark.parametrize("text", ["", " ", "\n" * 64, "\u3000\t "])
def test_nothing_but_blanks_is_no_answer(text: str) -> None:
    assert fault_of(text) == NO_TEXT


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "Ha ha ha!",
        "no no no no no no",
        "........",
        "10000000",
        table_of(40),
        ", ".join(map(str, range(200))),
        "\n".join(f"{n}. item" for n in range(60)),
        json.dumps([0] * 80),
        json.dumps([[0] * 8] * 8),
        json.dumps([{"key": n, "seen": False, "tags": []} for n in range(30)], indent=1),
        json.dumps([{"id": n, "note": None} for n in range(90)])[:-9],
        "| port | state |\n|" + "-" * 70 + "|" + "-" * 70,
        "| a | b | c | d |\n|" + " --- |" * 4 + "\n| 1 | 2 | 3 | 4 |",
        "Chapter one " + "." * 60 + " 7\nChapter two " + "." * 60 + " 19",
        base64.b64encode(bytes(90) + bytes(range(256))).decode(),
        base64.b64encode(random.Random(4).randbytes(600)).decode(),
        "for (;;) {\n" + "    step();\n" * 6 + "    check(here);\n}\n",
        "\n".join(f"    self.assertEqual(double({n}), {2 * n})" for n in range(30)),
        "def one():\n    return None\n\n\ndef two():\n    return None\n\n\n" * 3,
        "<ul>\n" + "<li></li>\n" * 20 + "</ul>",
        "".join(random.Random(5).choices("01", k=300)),
        story(200) + "\n" + "=" * 80,
        story(80) + "!" * 40,
        *(prompt.messages[-1]["content"] for prompt in builtin_prompts()),
    ],
)
def test_what_repeats_by_nature_is_an_answer(text: str) -> None:
    assert fault_of(text) == ""


@given(
    st.text(min_size=1, max_size=12).filter(str.strip), st.integers(24, 60), st.text(max_size=20)
)
def test_any_unit_that_is_nearly_all_of_a_text_is_a_loop(
    unit: str, times: int, before: str
) -> None:
    assert fault_of(before + unit * times) or len(before) > len(unit) * times / 9


@given(st.text(max_size=400))
def test_any_text_is_judged_and_blanks_around_it_change_nothing(text: str) -> None:
    assert fault_of(f"\n {text} \n") == fault_of(text.strip())


@given(st.lists(st.integers(0, 10**6), min_size=20, max_size=60, unique=True))
def test_numbers_that_differ_are_no_loop(numbers: list[int]) -> None:
    assert fault_of("\n".join(f"{number},0,ok" for number in numbers)) == ""


def answer(text: str = "an answer", **fields) -> Record:
    return replace(Record("p", 0.0, tokens_out=8, text=text, finish_reason="stop"), **fields)


@pytest.mark.parametrize(
    ("bad", "good", "reason"),
    [
        ([answer("!" * 64)] * 8, 0, "8 of 8 (a loop of '!': p ...)"),
        ([answer("")] * 8, 8, "8 of 16 (no text: p ...)"),
        ([answer("", tokens_out=0)], 15, "1 of 16 (no text: p)"),
        ([answer("", reasoning=" hm" * 40)], 15, "1 of 16 (a loop of ' hm': p)"),
        ([answer("fine", reasoning=" hm" * 40)], 15, "1 of 16"),
        ([answer("", calls="\nlook " + '{"a": "' + "!" * 60)], 15, "1 of 16 (a loop of '!': p)"),
        ([answer(" up down" * 9), answer("?" * 64), answer(" \n")], 13, "3 of 16 (a loop of "),
    ],
)
def test_answers_without_sense_void_a_cell(bad: list[Record], good: int, reason: str) -> None:
    judged = judge_answers([*bad, *[answer()] * good], 0.005)
    (found,) = judged.reasons
    assert found.startswith(VOID_WITHOUT_SENSE) and reason in found and judged.remarks == ()


def test_thoughts_and_calls_are_answers_and_failures_are_none() -> None:
    found = [
        answer("", reasoning="let me see"),
        answer("", calls='\nlook {"at": 1}'),
        answer("", error_kind="timeout"),
    ]
    assert judge_answers([*found, answer()], 0.0).reasons == ()


@pytest.mark.parametrize(
    ("bad", "good", "void"),
    [("", 199, False), ("", 198, True), ("!" * 64, 49, False), ("!" * 64, 48, True)],
)
def test_few_are_told_and_more_than_the_limit_void(bad: str, good: int, void: bool) -> None:
    """A failure in 200, a loop in 50."""
    judged = judge_answers([answer(bad), *[answer()] * good], 0.005)
    assert bool(judged.reasons) == void
    assert not void or judged.remarks == ()
    assert void or judged.remarks[0].startswith(SOME_WITHOUT_SENSE)


def test_usage_that_cannot_be_voids_by_one_answer() -> None:
    doubted = answer(doubt="usage counts 900 output tokens, 8 were asked for", tokens_out=None)
    judged = judge_answers([doubted, *[answer()] * 999], 0.005)
    assert judged.reasons == (
        "usage that cannot be, 1 of 1000 answers: usage counts 900 output tokens, 8 were asked for",
    )
