"""The ladder that an OpenAI-compatible server climbs until it is ready: health, model list, a
streamed completion. Only what servers share lies here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from runbook.bounded import parse_json
from runbook.engines.endpoint import Answer, Endpoint, in_words, read_answer, refuse_auth
from runbook.errors import ServerFailed
from runbook.redaction import redact

_POLL_S = 0.1
_PROBE_TOKENS = 4
_NEEDED_TOKENS = 2
_PROBE_PROMPT = "Count from one to ten in words."


class _NotYet(Exception):
    """A rung that does not hold yet; says in words what was seen."""


class _TimeIsUp(_NotYet):
    """The time ended in the middle of a rung."""


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
            seen = f"{seen}; at last: {in_words(error)}" if seen else in_words(error)
        except (_NotYet, httpx.HTTPError) as error:
            seen = in_words(error)
        time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))


def _climb(endpoint: Endpoint, deadline: float, left_s: float) -> None:
    """Every rung once. Raises ``_NotYet`` or ``httpx.HTTPError`` at the first that fails."""
    with endpoint.client(left_s) as client:
        _expect_ok(read_answer(client.get("/health")), "health")
        listing = read_answer(client.get("/v1/models"))
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
            _expect_ok(read_answer(response), "the completion")
        counted, in_usage = 0, None
        for event in _events(response, deadline):
            if event.get("error"):
                raise _NotYet(f"the completion failed: {redact(str(event['error']))[:200]}")
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
            f"a completion of {endpoint.url} was broken off: {in_words(error)}",
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
            raise _NotYet(f"the completion holds no JSON: {redact(data)[:100]!r}") from None
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


def _expect_ok(answer: Answer, what: str) -> None:
    refuse_auth(answer.status_code, what)
    if answer.status_code != 200:
        said = " ".join(answer.text.split())[:200]
        raise _NotYet(f"{what} answered {answer.status_code} {said}".rstrip())


def _is_json(answer: Answer) -> bool:
    try:
        answer.json()
    except ValueError:
        return False
    return True
