"""Takes secrets out of what a server says of itself, before anything of it is kept or shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

REMOVED = "<removed>"

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:(?:api|watermark|secret|private|access|auth)_?keys?|secrets?|passw(?:or)?d|passphrase"
    r"|credentials?|(?:auth|access|bearer|hf|api)_token|token)(?:_[a-z])?$",
    re.IGNORECASE,
)
_OPTION = r"--[a-z-]*(?:api-key|password|secret|auth-token)"
_IN_COMMAND = re.compile(rf"""({_OPTION})(=|\s+)('[^']*'|"[^"]*"|\S+)""", re.IGNORECASE)
_OPTION_ALONE = re.compile(_OPTION, re.IGNORECASE)


_ANY_OPTION = re.compile(r"--?(?:[a-z-]+-)?(?:api-key|password|passwd|secret|token)", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"://[^/\s:@]*:[^/\s@]+@|^(?:hf_|sk-|ghp_|github_pat_)\w{8}", re.ASCII)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable or an option looks like a secret, by its name or by its value; rather
    once too often."""
    named = _SECRET_NAME.search(name) or _ANY_OPTION.fullmatch(name)
    return bool(named and value) or bool(_SECRET_VALUE.search(value))


def without_secrets(value: Any) -> Any:
    """A copy of a JSON value: whatever has a secret's name is ``<removed>``, at any depth, and so
    is a secret behind its option in a command. Numbers, ``None`` and empty text stay."""
    if isinstance(value, Mapping):
        return {
            name: _hidden(item) if _SECRET_NAME.search(str(name)) else without_secrets(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [
            REMOVED if _follows_option(value, place) else without_secrets(item)
            for place, item in enumerate(value)
        ]
    if isinstance(value, str):
        return _IN_COMMAND.sub(rf"\1\2{REMOVED}", value)
    return value


def _hidden(item: Any) -> Any:
    return item if item is None or isinstance(item, int | float) or item == "" else REMOVED


def _follows_option(words: list[Any], place: int) -> bool:
    before = words[place - 1] if place else None
    return isinstance(before, str) and bool(_OPTION_ALONE.fullmatch(before))
