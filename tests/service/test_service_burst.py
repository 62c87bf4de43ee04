"""The burst against servers that answer each request in time and say nothing in it."""

import json

import pytest
from hostile import hostile, whole
from standin_service import StandIn, make_params

from runbook.install_service import Service
from runbook.install_service.observe import prove_burst

SAID = "one two three four five six seven eight"


def serving(answers):
    """A server whose completions are ``answers`` in turn: (pieces, tokens that usage counts)."""
    asked = iter(range(1_000_000))

    def answer(request):
        if b"/v1/models" in request.split(b"\r\n", 1)[0]:
            yield whole(b'{"data": [{"id": "m"}]}')
            return
        pieces, tokens = answers[next(asked) % len(answers)]
        events = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
        events.append({"choices": [{"delta": {}, "finish_reason": "length"}]})
        events.append({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}})
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        yield whole("".join(lines).encode() + b"data: [DONE]\n\n")

    return hostile(answer)


def burst(server):
    params = make_params(int(server.url.rpartition(":")[2]), burst=20)
    return prove_burst(Service(None, params, None, StandIn()))


GOOD = (SAID.split(" "), 8)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([(["!"] * 16, 16)], "20 of 20 hold no sense: the completion of 16 tokens only repeats"),
        ([(["!!!!"] * 4, 16)], "20 of 20 hold no sense"),
        ([([" la"] * 16, 16)], "20 of 20 hold no sense"),
        ([([], 16)], "20 of 20 hold no sense: the completion counts 16 tokens and holds no text"),
        ([([""] * 16, 16)], "20 of 20 hold no sense"),
        ([*[GOOD] * 9, (["0"] * 16, 16)], "2 of 20 hold no sense"),
    ],
    ids=["!", "!!!!", "la", "nothing", "empty pieces", "one of ten"],
)
def test_a_burst_of_answers_without_sense_is_refuted(answers, said):
    with serving(answers) as server:
        proof = burst(server)
    assert proof.status == "refuted"
    assert said in proof.evidence


def test_a_burst_of_short_answers_is_proved():
    with serving([GOOD, (["Hi"], 2), (["1, 2, 3, 4, 5, 6"], 16)]) as server:
        proof = burst(server)
    assert (proof.status, "20 streamed completions" in proof.evidence) == ("proved", True)
