"""Control calls to an OpenAI-compatible server, whose answers nobody trusts.

Every answer is bounded in bytes, in depth and in whole time, and every secret that was sent is
taken out of it here, before anybody else sees it. Connections are not kept alive: a server may
close one after a long stream, and the next call would fail on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from runbook.bounded import parse_json
from runbook.errors import NotHere, ServerFailed
from runbook.redaction import redact, redact_json, remember

CALL_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Answer:
    """What a server said to a control call, without the secrets that were sent to it."""

    status_code: int
    text: str

    def json(self) -> Any:
        """Its JSON. Raises ``ValueError`` where it is none."""
        return redact_json(parse_json(self.text))


@dataclass(frozen=True)
class Endpoint:
    """A server's base URL and, where it asks for one, the file that holds its API key."""

    url: str
    key_file: str | None = None

    def client(self, timeout_s: float = CALL_TIMEOUT_S) -> httpx.Client:
        """A client for this server alone: no proxy, no redirects, no connection kept.

        Reads the key now. Raises ``NotHere`` when its file cannot be read.
        """
        return httpx.Client(
            base_url=self.url,
            headers=_key_header(self.key_file),
            timeout=timeout_s,
            limits=httpx.Limits(max_keepalive_connections=0),
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
            with self.client() as client:
                response = client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ServerFailed(
                f"{self.url}{path} does not answer: {in_words(error)}",
                "a server that runs",
                "read the end of its log",
            ) from None
        refuse_auth(response.status_code, self.url + path)
        return read_answer(response)

    def get_json(self, path: str) -> Any | None:
        """The JSON behind ``path``, ``None`` where the server has no such page (404, 501).

        Raises ``ServerFailed`` for any other answer.
        """
        answer = self.get(path)
        if answer.status_code in (404, 501):
            return None
        try:
            if answer.status_code == 200:
                return answer.json()
        except ValueError:
            pass
        raise ServerFailed(
            f"{self.url}{path} answered {answer.status_code}: {answer.text[:200]!r}",
            "200 with JSON",
            "see what runs at this port, and its log",
        )


def read_answer(response: httpx.Response) -> Answer:
    """The whole of a response."""
    return Answer(response.status_code, redact(response.text))


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
    return redact(str(error)) or type(error).__name__


def _key_header(key_file: str | None) -> dict[str, str]:
    return {} if key_file is None else {"Authorization": f"Bearer {read_key(key_file)}"}


def read_key(key_file: str) -> str:
    """The API key in a file. Raises ``NotHere`` where there is none that can be used."""
    try:
        key = Path(key_file).read_text("ascii").strip()
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
