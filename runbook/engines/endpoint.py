"""Control calls to an OpenAI-compatible server, whose answers nobody trusts.

Every answer is bounded in bytes, in depth and in whole time, and every secret that was sent is
taken out of it here, before anybody else sees it. Connections are not kept alive: a server may
close one after a long stream, and the next call would fail on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from runbook.engines.wire import Bound, Transport
from runbook.errors import NotHere, ServerFailed
from runbook.probe.completion import MOST_BYTES, parse_answer
from runbook.redaction import MAX_KEY_BYTES, redact, remember

CALL_TIMEOUT_S = 30.0
#: The longest text of an answer that is kept, in characters.
_MOST_TEXT = 4096
_STRANGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class Answer:
    """What a server said to a control call, without the secrets that were sent to it."""

    status_code: int
    text: str

    def json(self) -> Any:
        """Its JSON. Raises ``ValueError`` where it is none."""
        return _clean_json(parse_answer(self.text))


@dataclass(frozen=True)
class Endpoint:
    """A server's base URL and, where it asks for one, the file that holds its API key."""

    url: str
    key_file: str | None = None

    def client(self, whole_s: float) -> httpx.Client:
        """A client for this server alone: no proxy, no redirects, no connection kept, nothing
        compressed, all it is used for within ``whole_s`` seconds and ``MOST_BYTES`` bytes.

        Reads the key now. Raises ``NotHere`` when its file cannot be read.
        """
        return httpx.Client(
            base_url=self.url,
            headers={"Accept-Encoding": "identity", **_key_header(self.key_file)},
            timeout=whole_s,
            transport=Transport(Bound(whole_s, MOST_BYTES)),
            trust_env=False,
        )

    def get(self, path: str) -> Answer:
        """One GET, whatever its status but 401 and 403. Raises ``ServerFailed``."""
        return self._ask("GET", path)

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """One POST of JSON, as ``get``."""
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        try:
            with self.client(CALL_TIMEOUT_S) as client:
                answer = ask(client, method, path, body)
        except httpx.HTTPError as error:
            raise ServerFailed(
                f"{self.url}{path} does not answer: {in_words(error)}",
                "a server that runs",
                "read the end of its log",
            ) from None
        refuse_auth(answer.status_code, self.url + path)
        return answer

    def get_json(self, path: str) -> Any | None:
        """The JSON behind ``path``, ``None`` where the server has no such page (404, 501).

        Raises ``ServerFailed`` for any other answer.
        """
        answer = self.get(path)
        if answer.status_code in (404, 501):
            return None
        why = f"answered {answer.status_code}"
        try:
            if answer.status_code == 200:
                return answer.json()
        except ValueError as error:
            why += f", no JSON that can be read ({in_words(error)[:100]})"
        raise ServerFailed(
            f"{self.url}{path} {why}: {answer.text[:200]!r}",
            "200 with JSON",
            "see what runs at this port, and its log",
        )


def ask(
    client: httpx.Client, method: str, path: str, body: Mapping[str, Any] | None = None
) -> Answer:
    """One request and the whole of its answer. Raises ``httpx.HTTPError``."""
    with client.stream(method, path, json=body) as response:
        return read_answer(response)


def read_answer(response: httpx.Response) -> Answer:
    """The whole of a response that is not read yet. Raises ``httpx.HTTPError``."""
    refuse_encoded(response)
    data = b"".join(response.iter_raw())
    return Answer(response.status_code, clean(data.decode("utf-8", "replace")))


def refuse_encoded(response: httpx.Response) -> None:
    """Raise ``httpx.DecodingError`` for a body that was compressed though nobody asked for it:
    a small one may be endless when it is unpacked."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise httpx.DecodingError(f"its answer is encoded ({clean(encoding)[:40]!r}), unasked")


def clean(text: str) -> str:
    """Text of a server as it may be kept and shown: no secrets that were sent to it, nothing that
    a terminal obeys, nothing that is no Unicode."""
    return redact(_STRANGE.sub("\N{REPLACEMENT CHARACTER}", text))


def _clean_json(value: Any) -> Any:
    """A JSON value with clean and bounded texts and names, as nested as ``parse_answer`` lets."""
    if isinstance(value, str):
        text = clean(value)
        if len(text) <= _MOST_TEXT:
            return text
        return f"{text[:_MOST_TEXT]}... ({len(text)} characters)"
    if isinstance(value, list):
        return [_clean_json(item) for item in value]
    if isinstance(value, dict):
        return {_clean_json(name): _clean_json(item) for name, item in value.items()}
    return value


def refuse_auth(status: int, what: str) -> None:
    """Raise ``ServerFailed`` for a status that refuses the key."""
    if status in (401, 403):
        raise ServerFailed(
            f"{what} answered {status}: the server does not take this API key",
            "the key that the server was started with",
            "see server.api_key in the parameters",
        )


def in_words(error: Exception) -> str:
    """What an error says, without secrets; its kind where it says nothing."""
    return clean(str(error)) or type(error).__name__


def _key_header(key_file: str | None) -> dict[str, str]:
    return {} if key_file is None else {"Authorization": f"Bearer {read_key(key_file)}"}


def read_key(key_file: str) -> str:
    """The API key in a file. Raises ``NotHere`` where there is none that can be used."""
    try:
        with Path(key_file).open("rb") as file:
            key = file.read(MAX_KEY_BYTES).decode("ascii").strip()
        reason = "" if key.isprintable() and key else "it holds no single line of text"
    except (OSError, ValueError) as error:
        reason = (error.strerror or "") if isinstance(error, OSError) else "it is not ASCII text"
    if reason:
        raise NotHere(
            f"the API key file {key_file} cannot be used: {reason}",
            "a file with the key alone, readable by the runner",
            "correct server.api_key.file",
        )
    remember(key)
    return key
