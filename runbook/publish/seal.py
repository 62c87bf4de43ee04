"""The last line of a document: a digest of what stands above it, so that a hand edit is noticed."""

from __future__ import annotations

import hashlib
import re

#: The last line, in Markdown and in a page.
_SEAL = re.compile(r"\n(?:<!-- )?Digest of all lines above: `?sha256:([0-9a-f]{64})`?(?: -->)?\n\Z")


def sealed(text: str, form: str = "{}") -> str:
    """``text`` with the digest as its last line; ``form``: what stands around that line."""
    line = f"Digest of all lines above: {_digest(text)}"
    return f"{text}\n{form.format(line)}\n"


def unsealed(text: str) -> str:
    """``text`` without the last line of a document."""
    return _SEAL.sub("", text)


def is_edited(text: str) -> bool:
    """Whether a document is not, to the letter, as it was written."""
    match = _SEAL.search(text)
    return match is None or match[1] not in _digest(text[: match.start()])


def _digest(text: str) -> str:
    return f"`sha256:{hashlib.sha256(text.encode()).hexdigest()}`"
