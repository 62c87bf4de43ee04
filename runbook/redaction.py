"""Takes secrets out of text, before anything of it is kept, shown or raised.

Two questions. Of what was *sent* to a server (its API key) the value is known: ``redact`` takes it
out of whatever the server says, also where it comes back encoded. Of what somebody *wrote* (an
environment, arguments, a page of settings) the name tells: ``names_secret`` holds the only list of
such names. Standard library alone, Python 3.8 or newer: probes and the guard bring it along.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

#: What stands in the place of a secret.
REMOVED = "<removed>"
#: A larger file holds no API key.
MAX_KEY_BYTES = 1 << 16

_KEY_OF = (
    "access account admin api auth client deploy encryption hmac license master private secret "
    "service session signing ssh ssl tls watermark"
)
_SECRET_WORD = (
    rf"(?:(?:{_KEY_OF.replace(' ', '|')})_?keys?|secrets?|passwords?|passwds?|passphrases?"
    r"|credentials?|authorization|bearer)"
)
#: A name that is, or ends with, such words: HF_TOKEN, api-key, authToken, PASSWORD_2.
_SECRET_NAME = re.compile(rf"(?:^|_)(?:{_SECRET_WORD}|token|[a-z0-9]+_keys?)(?:_(?:[a-z]|\d+))?$")
#: One that has them within: API_KEY_PROD.
_SECRET_WITHIN = re.compile(rf"(?:^|_){_SECRET_WORD}_")
#: One that only says where the secret lies, or how long it is.
_NO_SECRET = re.compile(
    rf"(?:^|_)(?:{_SECRET_WORD}|token)(?:_[a-z0-9]+)*"
    r"_(?:file|path|dir|name|id|credential|source|command|url|length|bytes)$"
)
_SECRET_VALUE = re.compile(r"://[^/\s:@]*:[^/\s@]+@|^(?:hf_|sk-|ghp_|github_pat_)\w{8}", re.ASCII)
_OPTION = re.compile(r"""(--?[A-Za-z][\w.-]*)(=|\s+)('[^']*'|"[^"]*"|\S+)""")

#: Shorter secrets are looked for as they are and as words of their own.
_LEAST_ENCODED = 8
#: What may stand between two characters of a secret that came in pieces.
_BETWEEN = r"(?:\\[nrt]|[^!-~]|[\"',+\[\]\\]){0,6}"
#: The least of a secret, in characters, that is taken out where a text was cut in its middle.
_LEAST_PIECE = 4

_sent: set[str] = set()


def remember(secret: str) -> None:
    """Note a secret that this process is going to send: ``redact`` knows it from now on."""
    if secret:
        _sent.add(secret)


def redact(text: str, secrets: Collection[str] | None = None, cut: bool = False) -> str:
    """``text`` with ``<removed>`` in the place of each of ``secrets`` (those that this process has
    sent): as it is, in pieces, in base64, in hexadecimal digits, escaped for a URL, JSON or HTML.

    ``cut``: text may begin or end in the middle of one; such a piece of four characters or more
    goes too.
    """
    for secret in sorted(_sent if secrets is None else secrets, key=len, reverse=True):
        if not secret:
            continue
        text = _pattern_of(secret).sub(REMOVED, text)
        if cut:
            text = _without_pieces(text, secret)
    return text


@functools.lru_cache(maxsize=64)
def _pattern_of(secret: str) -> Any:
    if len(secret) < _LEAST_ENCODED:
        return re.compile(rf"(?<![\w.-]){re.escape(secret)}(?![\w.-])")
    forms = [_BETWEEN.join(map(_character, secret)), *map(re.escape, _encoded(secret))]
    return re.compile("|".join(forms))


def _character(one: str) -> str:
    """One character of a secret in all the ways that texts escape it, in either case."""
    code = f"{ord(one):02x}"
    digits = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in code)
    plain = f"[{one.lower()}{one.upper()}]" if one.isalpha() else re.escape(one)
    named = {"&": "|&amp;", "<": "|&lt;", ">": "|&gt;", '"': "|&quot;", "'": "|&apos;"}
    return (
        rf"(?:{plain}|%(?:25)*{digits}|\\+u00{digits}|\\+x{digits}|&\#0*{ord(one)};"
        rf"|&\#[xX]0*{digits};{named.get(one, '')})"
    )


def _encoded(secret: str) -> Iterator[str]:
    """A secret in base64 at each of the three places that it can begin at, and in hexadecimal."""
    data = secret.encode("utf-8")
    for before in range(3):
        whole = base64.b64encode(bytes(before) + data + bytes(2)).decode("ascii")
        sure = whole[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        yield sure
        yield sure.replace("+", "-").replace("/", "_")
    yield data.hex()
    yield data.hex().upper()


def _without_pieces(text: str, secret: str) -> str:
    """Without the beginning of a secret at its end, and the end of one at its beginning."""
    encoded = _encoded(secret) if len(secret) >= _LEAST_ENCODED else ()
    for form in (secret, *encoded):
        for length in range(min(len(form) - 1, len(text)), _LEAST_PIECE - 1, -1):
            if text.endswith(form[:length]):
                text = text[:-length] + REMOVED
            if text.startswith(form[-length:]):
                text = REMOVED + text[length:]
    return text


def names_secret(name: str) -> bool:
    """Whether a variable, an option or a field of this name holds a secret; rather once too
    often. ``API_KEY_FILE`` only says where one lies."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).strip("-")
    plain = re.sub(r"[-.\s]+", "_", parts).lower()
    if _NO_SECRET.search(plain):
        return False
    return bool(_SECRET_NAME.search(plain) or _SECRET_WITHIN.search(plain))


def is_secret(name: str, value: str) -> bool:
    """Whether a variable or an option looks like a secret, by its name or by its value."""
    return bool(names_secret(name) and value) or bool(_SECRET_VALUE.search(value))


def without_secrets(value: Any) -> Any:
    """A copy of a JSON value: whatever has a secret's name is ``<removed>``, at any depth, and so
    is a secret behind its option in a command. Numbers, ``None`` and empty text stay."""
    if isinstance(value, Mapping):
        return {
            name: _hidden(item) if names_secret(str(name)) else without_secrets(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [
            REMOVED if _follows_option(value, place) else without_secrets(item)
            for place, item in enumerate(value)
        ]
    return _OPTION.sub(_without_value, value) if isinstance(value, str) else value


def _without_value(option: Any) -> str:
    name, between, _ = option.groups()
    return f"{name}{between}{REMOVED}" if names_secret(name) else str(option[0])


def _hidden(item: Any) -> Any:
    return item if item is None or isinstance(item, (int, float)) or item == "" else REMOVED


def _follows_option(words: list[Any], place: int) -> bool:
    before = words[place - 1] if place else None
    return isinstance(before, str) and before.startswith("-") and names_secret(before)
