"""The ladder that an OpenAI-compatible server climbs until it is ready: health, model list, a
streamed completion. Only what servers share lies here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx

from runbook.engines.endpoint import (
    Answer,
    Endpoint,
    ask,
    in_words,
    read_answer,
    refuse_auth,
    refuse_encoded,
)
from runbook.errors import ServerFailed
from runbook.probe.completion import (
    PROBE_TOKENS,
    SENSELESS_IN_TURN,
    SERVED_TOKENS,
    NotServed,
    read_completion,
    read_lines,
    why_senseless,
)

_POLL_S = 0.1
#: Of what a server said, in characters.
_MOST_SHOWN = 200
_PROBE_PROMPT = "Count from one to ten in words."


class _NotYet(Exception):
    """A rung that does not hold yet; says in words what was seen."""


class _Senseless(_NotYet):
    """A completion without text, or of mere repetition."""


def wait_ready(endpoint: Endpoint, alive: Callable[[], bool], timeout_s: float) -> float:
    """Wait until health, model list and a streamed completion hold in this order; seconds taken.

    A server that is loading (503) or not listening yet is waited for. Raises ``ServerFailed`` at
    once when ``alive()`` turns false or the key is refused, and at the end of ``timeout_s``.
    """
    started = time.monotonic()
    deadline = started + timeout_s
    seen, senseless = "", 0
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
                f"a streamed completion of {SERVED_TOKENS} tokens or more",
                "read its log; a slow start needs a larger server.timeouts.start_s",
            )
        try:
            _climb(endpoint, left_s)
            if alive():
                return time.monotonic() - started
        except httpx.TimeoutException as error:
            seen = f"{seen}; at last: {in_words(error)}" if seen else in_words(error)
        except (_NotYet, NotServed, httpx.HTTPError) as error:
            seen = in_words(error)[:_MOST_SHOWN]
            senseless = senseless + 1 if isinstance(error, _Senseless) else 0
        if senseless == SENSELESS_IN_TURN:
            raise ServerFailed(
                f"{endpoint.url} answers without sense: {seen}, {senseless} times in turn",
                "a completion that says something",
                "try the weights, the quantisation and the attention backend by themselves: "
                "garbage comes fast and must not be measured",
            )
        pause_s = _POLL_S * 10 if senseless else _POLL_S
        time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))


def _climb(endpoint: Endpoint, left_s: float) -> None:
    """Every rung once. Raises ``_NotYet``, ``NotServed`` or ``httpx.HTTPError`` at the first that
    fails."""
    with endpoint.client(left_s) as client:
        _expect_ok(ask(client, "GET", "/health"), "health")
        listing = ask(client, "GET", "/v1/models")
        _expect_ok(listing, "the model list")
        model = first_model(listing.json() if _is_json(listing) else None)
        if model is None:
            raise _NotYet("the model list is empty")
        tokens, text = _complete(client, model, PROBE_TOKENS)
    if tokens < SERVED_TOKENS:
        raise _NotYet(f"the completion held {tokens} tokens")
    if why := why_senseless(tokens, text):
        raise _Senseless(why)


def first_model(listing: Any) -> str | None:
    """The id of the first model in the answer to ``/v1/models``, ``None`` without one."""
    models = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        return None
    model_id = models[0].get("id")
    return model_id if isinstance(model_id, str) and model_id else None


def _complete(
    client: httpx.Client,
    model: str,
    tokens: int,
    begun: Callable[[], None] = lambda: None,
) -> tuple[int, str]:
    """Output tokens and text of one streamed completion."""
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
            _expect_ok(read_answer(response), "the completion")
        refuse_encoded(response)
        pieces = response.iter_raw()
        return read_completion(read_lines(lambda: next(pieces, b"")), begun)


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
    try:
        with endpoint.client(timeout_s) as client:
            return _complete(client, model, tokens, begun)[0]
    except (_NotYet, NotServed, httpx.HTTPError) as error:
        raise ServerFailed(
            f"a completion of {endpoint.url} was broken off: {in_words(error)[:_MOST_SHOWN]}",
            "an answer to its end",
            "read the server's log",
        ) from None


def wait_idle(running: Callable[[], int | None], timeout_s: float) -> str:
    """Wait until no request is running; see ``Engine.end_requests``. ``None`` is not told."""
    deadline = time.monotonic() + timeout_s
    while (number := running()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return f"{number} requests still run {timeout_s:g} s after that" if number else ""


def _expect_ok(answer: Answer, what: str) -> None:
    refuse_auth(answer.status_code, what)
    if answer.status_code != 200:
        said = " ".join(answer.text.split())[:_MOST_SHOWN]
        raise _NotYet(f"{what} answered {answer.status_code} {said}".rstrip())


def _is_json(answer: Answer) -> bool:
    try:
        answer.json()
    except ValueError:
        return False
    return True
