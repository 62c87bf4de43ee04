"""Prompts of the tests, as many as asked for."""

from __future__ import annotations

from runbook.load import Prompt


def prompts(count: int) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(f"p{number}", "edit", ({"role": "user", "content": f"prompt {number}"},))
        for number in range(count)
    )
