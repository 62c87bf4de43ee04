"""Control calls to an OpenAI-compatible server, and the ladder it climbs until it is ready.

Only what servers share lies here. Connections are not kept alive: a server may close one after a
long stream, and the next call would fail on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from runbook.bounded import parse_json
from runbook.errors import NotHere, ServerFailed

_POLL_S = 0.1
_CALL_TIMEOUT_S = 30.0
_PROBE_TOKENS = 4
_NEEDED_TOKENS = 2
_PROBE_PROMPT = "Count from one to ten in words."


class _NotYet(Exception):
    """A rung that does not hold yet; says in words what was seen."""


class _TimeIsUp(_NotYet):
    """The time ended in the middle of a rung."""


@dataclass(frozen=True)
class Endpoint:
    """A server's base URL and, where it asks for one, the file that holds its API key."""

    url: str
    key_file: str | None = None

    def client(self, timeout_s: float = _CALL_TIMEOUT_S) -> httpx.Client:
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

    def get(self, path: str) -> httpx.Response:
        """One GET, whatever its status but 401 and 403. Raises ``ServerFailed``."""
        return self._ask("GET", path)

    def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """One POST of JSON, as ``get``."""
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            with self.client() as client:
                response = client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ServerFailed(
                f"{self.url}{path} does not answer: {_in_words(error)}",
                "a server that runs",
                "read the end of its log",
            ) from None
        _refuse_auth(response, self.url + path)
        return response

    def get_json(self, path: str) -> Any | None:
        """The JSON behind ``path``, ``None`` where the server has no such page (404, 501).

        Raises ``ServerFailed`` for any other answer.
        """
        response = self.get(path)
        if response.status_code in (404, 501):
            return None
        try:
            if response.status_code == 200:
                return response.json()
        except ValueError:
            pass
        raise ServerFailed(
            f"{self.url}{path} answered {response.status_code}: {response.text[:200]!r}",
            "200 with JSON",
            "see what runs at this port, and its log",
        )


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
    return key


def wait_ready(endpoint: Endpoint, alive: Callable[[], bool], timeout_s: float) -> float:
    """Wait until health, model list and a streamed completion hold in this order; seconds taken.

    A server that is loading (503) or not listening yet is waited for. Raises ``ServerFailed`` at
    once when ``alive()`` turns false or the key is refused, and at the end of ``timeout_s``.
    """
    started = time.monotonic()
    deadline = started + timeout_s
    seen = ""
    while True:
        if not alive():
            after = time.monotonic() - started
            raise ServerFailed(
                f"the server ended {after:.1f} s after its start, before it was ready"
                + (f" ({seen})" if seen else ""),
                "a server that stays",
                "read the end of its log",
            )
        if (left_s := deadline - time.monotonic()) <= 0:
            raise ServerFailed(
                f"{endpoint.url} was not ready after {timeout_s:g} s: {seen}",
                f"a streamed completion of {_NEEDED_TOKENS} tokens or more",
                "read its log; a slow start needs a larger server.timeouts.start_s",
            )
        try:
            _climb(endpoint, deadline, left_s)
            if alive():
                return time.monotonic() - started
        except (_TimeIsUp, httpx.TimeoutException) as error:
            seen = f"{seen}; at last: {_in_words(error)}" if seen else _in_words(error)
        except (_NotYet, httpx.HTTPError) as error:
            seen = _in_words(error)
        time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))


def _climb(endpoint: Endpoint, deadline: float, left_s: float) -> None:
    """Every rung once. Raises ``_NotYet`` or ``httpx.HTTPError`` at the first that fails."""
    with endpoint.client(left_s) as client:
        _expect_ok(client.get("/health"), "health")
        listing = client.get("/v1/models")
        _expect_ok(listing, "the model list")
        model = first_model(listing.json() if _is_json(listing) else None)
        if model is None:
            raise _NotYet("the model list is empty")
        tokens = _completion_tokens(client, model, deadline)
    if tokens < _NEEDED_TOKENS:
        raise _NotYet(f"the completion held {tokens} tokens")


def first_model(listing: Any) -> str | None:
    """The id of the first model in the answer to ``/v1/models``, ``None`` without one."""
    models = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        return None
    model_id = models[0].get("id")
    return model_id if isinstance(model_id, str) and model_id else None


def _completion_tokens(
    client: httpx.Client,
    model: str,
    deadline: float,
    tokens: int = _PROBE_TOKENS,
    begun: Callable[[], None] = lambda: None,
) -> int:
    """Output tokens of one streamed completion: of usage, else events that carried text."""
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": _PROBE_PROMPT}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with client.stream("POST", "/v1/chat/completions", json=asked) as response:
        if response.status_code != 200:
            response.read()
        _expect_ok(response, "the completion")
        counted, in_usage = 0, None
        for event in _events(response, deadline):
            if event.get("error"):
                raise _NotYet(f"the completion failed: {str(event['error'])[:200]}")
            if _carries_text(event):
                counted += 1
                begun()
            usage = event.get("usage")
            if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
                in_usage = usage["completion_tokens"]
    return counted if in_usage is None else in_usage


def stream(
    endpoint: Endpoint,
    model: str,
    tokens: int,
    timeout_s: float,
    begun: Callable[[], None] = lambda: None,
) -> int:
    """One streamed completion to its end; ``begun`` is called at its first token. Its tokens.

    Raises ``ServerFailed`` when it does not come to its end.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with endpoint.client(timeout_s) as client:
            return _completion_tokens(client, model, deadline, tokens, begun)
    except (_NotYet, httpx.HTTPError) as error:
        raise ServerFailed(
            f"a completion of {endpoint.url} was broken off: {_in_words(error)}",
            "an answer to its end",
            "read the server's log",
        ) from None


def wait_idle(running: Callable[[], int | None], timeout_s: float) -> str:
    """Wait until no request is running; see ``Engine.end_requests``. ``None`` is not told."""
    deadline = time.monotonic() + timeout_s
    while (number := running()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return f"{number} requests still run {timeout_s:g} s after that" if number else ""


def _events(response: httpx.Response, deadline: float) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream up to ``[DONE]``."""
    for line in response.iter_lines():
        if time.monotonic() > deadline:
            raise _TimeIsUp("the completion did not end in time")
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        try:
            event = parse_json(data)
        except ValueError:
            raise _NotYet(f"the completion holds no JSON: {data[:100]!r}") from None
        if isinstance(event, dict):
            yield event
    raise _NotYet("the completion was cut before [DONE]")


def _carries_text(event: dict[str, Any]) -> bool:
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    delta = choice.get("delta") if isinstance(choice, dict) else None
    if not isinstance(delta, dict):
        return False
    return any(delta.get(key) for key in ("content", "reasoning_content", "reasoning"))


def _expect_ok(response: httpx.Response, what: str) -> None:
    _refuse_auth(response, what)
    if response.status_code != 200:
        said = " ".join(response.text.split())[:200]
        raise _NotYet(f"{what} answered {response.status_code} {said}".rstrip())


def _refuse_auth(response: httpx.Response, what: str) -> None:
    if response.status_code in (401, 403):
        raise ServerFailed(
            f"{what} answered {response.status_code}: the server does not take this API key",
            "the key that the server was started with",
            "see server.api_key in the parameters",
        )


def _is_json(response: httpx.Response) -> bool:
    try:
        response.json()
    except ValueError:
        return False
    return True


def _in_words(error: Exception) -> str:
    return str(error) or type(error).__name__
