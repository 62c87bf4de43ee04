"""The last line of a document: a digest of what stands above it, so that a hand edit is noticed."""

from __future__ import annotations

import hashlib
import re

#: The last line, in Markdown and in a page.
_DIGEST = re.compile(
    r"\n(?:<!-- )?Digest of all lines above: `?sha256:([0-9a-f]{64})`?(?: -->)?\n\Z"
)


def digest(text: str) -> str:
    """``sha256:...`` of a document's text above its last line."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def is_edited(text: str) -> bool:
    """Whether a document is not, to the letter, as it was written."""
    match = _DIGEST.search(text)
    return match is None or digest(text[: match.start()]) != f"sha256:{match[1]}"
