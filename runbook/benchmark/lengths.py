"""Prompts of a declared length, as a server counts its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runbook.load import Prompt, Record
from runbook.load.context import CHARACTERS_PER_TOKEN, learn_characters_per_token, lengthen

_SAMPLE_CHARACTERS = 8000


@dataclass
class Lengths:
    """``texts``: what is put before prompts."""

    texts: Sequence[str] = ()
    characters_per_token: float | None = None

    def of(
        self, context: int | None, prompts: tuple[Prompt, ...], first: int
    ) -> tuple[Prompt, ...]:
        """``prompts`` as long as ``context`` tokens; as they are at ``None`` and 0. ``first``: as
        for ``lengthen``, 1 or more (0 is the sample's)."""
        return lengthen(prompts, self.texts, context, self._ratio(), first) if context else prompts

    def sample(self, tokens: int) -> Prompt:
        """A text that is surely shorter than ``tokens``, to learn from."""
        length = min(_SAMPLE_CHARACTERS, 2 * tokens)
        (prompt,) = lengthen((_question("length-sample"),), self.texts, length, 1.0)
        return prompt

    def learn(self, prompt: Prompt, record: Record) -> None:
        """Take what the server counted; what it does not tell stays unknown."""
        self.characters_per_token = learn_characters_per_token(prompt, record)

    def _ratio(self) -> float:
        return self.characters_per_token or CHARACTERS_PER_TOKEN


def _question(name: str) -> Prompt:
    text = "What is said above, in one sentence?"
    return Prompt(name, "length", ({"role": "user", "content": text},))
