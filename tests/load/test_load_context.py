"""Prompts as long as a context wants them."""

from __future__ import annotations

import pytest

from runbook.load.context import (
    again,
    learn_characters_per_token,
    lengthen,
    remark_on_length,
    texts_of,
)
from runbook.load.records import Prompt, Record


def said(text: str, key: str = "a", conversation: str = "") -> Prompt:
    return Prompt(key, "edit", ({"role": "user", "content": text},), conversation=conversation)


def length(prompt: Prompt) -> int:
    return sum(len(message["content"]) for message in prompt.messages)


def test_prompts_become_as_long_as_asked_and_end_as_they_were() -> None:
    own = [said(f"question {n}", f"p{n}") for n in range(3)]
    texts = texts_of([said(f"text number {n} of the workload") for n in range(5)])
    longer = lengthen(own, texts, 100, 4.0)
    assert [prompt.id for prompt in longer] == ["p0", "p1", "p2"]
    for before, after in zip(own, longer, strict=True):
        assert abs(length(after) - 400) <= 2
        assert after.messages[0]["content"].endswith("\n\n" + before.messages[0]["content"])
    begins = {prompt.messages[0]["content"][:40] for prompt in longer}
    assert len(begins) == 3  # or one would answer for the next out of the prefix cache


def test_what_is_long_already_stays_and_turns_of_a_conversation_begin_alike() -> None:
    long = said("x" * 500)
    assert lengthen([long], ["text"], 100, 4.0) == (long,)
    first = Prompt("c#1", "edit", ({"role": "user", "content": "one"},), conversation="c")
    answer = {"role": "assistant", "content": "fine"}
    last = {"role": "user", "content": "two"}
    second = Prompt("c#2", "edit", (*first.messages, answer, last), conversation="c")
    one, two = lengthen([first, second], ["a text of the workload"], 50, 4.0)
    assert two.messages[0]["content"][:150] == one.messages[0]["content"][:150]
    assert two.messages[1:] == second.messages[1:]


def test_a_prompt_that_comes_again_begins_otherwise_and_a_shared_prefix_stays() -> None:
    assert again(said("one"), 1) == said("one")
    system = {"role": "system", "content": "terse"}
    talk = Prompt("c#1", "edit", (system, *said("one").messages), conversation="c")
    second = again(talk, 2, "warm-up")
    assert (second.id, second.conversation) == ("c#1~warm-up 2", "c~warm-up 2")
    assert second.messages == (system, {"role": "user", "content": "(warm-up 2)\n\none"})


def test_images_keep_their_place_behind_the_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    prompt = Prompt("i", "edit", ({"role": "user", "content": [image]},))
    (longer,) = lengthen([prompt], ["a text"], 10, 4.0)
    text, kept = longer.messages[0]["content"]
    assert text["type"] == "text" and kept == image


def test_what_a_server_counts_is_learned_and_a_wrong_length_told() -> None:
    prompt = said("x" * 300)
    assert learn_characters_per_token(prompt, Record("a", 0.0, tokens_in=100)) == 3.0
    assert learn_characters_per_token(prompt, Record("a", 0.0)) is None
    assert remark_on_length([Record("a", 0.0, tokens_in=1009)], 1000) == ""
    assert "1030" in remark_on_length([Record("a", 0.0, tokens_in=1030)], 1000)
    assert "unknown" in remark_on_length([Record("a", 0.0)], 1000)


@pytest.mark.parametrize("texts", [(), ("",)])
def test_without_texts_a_prompt_stays_as_it_is(texts: tuple[str, ...]) -> None:
    assert texts_of([said(text) for text in texts]) == ()
    assert lengthen([said("one")], texts_of([]), 100, 4.0) == (said("one"),)
