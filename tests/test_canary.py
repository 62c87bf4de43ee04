"""A key that a server echoes on every page is nowhere in what is said, raised or kept."""

import contextlib
import json

import orjson
import pytest
from hostile import hostile, whole

from runbook.engines.endpoint import Endpoint
from runbook.engines.ladder import stream, wait_ready
from runbook.engines.llamacpp import LlamaCpp
from runbook.engines.sglang.engine import SGLang
from runbook.errors import RunbookError
from runbook.launch.process import redact_log
from runbook.load import LoadPlan, Prompt, run_load
from runbook.probe import gate
from runbook.verbs.benching import find_model

KEY = "sk-Kanarie.7f3A-91c2"
DONE = b"data: [DONE]\n\n"


def event(**fields):
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


PIECES = event(choices=[{"delta": {"content": f"it is {KEY[:9]}"}}])
PIECES += event(choices=[{"delta": {"content": KEY[9:]}, "finish_reason": KEY}])
ECHOES = {
    "body": whole(KEY.encode(), b"500 Bad"),
    "reason": whole(b"", b"500 " + KEY.encode()),
    "header": whole(b"{}", head=b"Location: " + KEY.encode() + b"\r\n"),
    "encoding": whole(b"{}", head=b"Content-Encoding: " + KEY.encode() + b"\r\n"),
    "error": whole(json.dumps({"error": {"message": f"Bearer {KEY}"}}).encode(), b"400 Bad"),
    "cut": whole(b"x" * 195 + KEY.encode(), b"500 Bad"),
    "models": whole(json.dumps({"data": [{"id": KEY}, {"id": f"m-{KEY}"}]}).encode()),
    "no-http": KEY.encode() + b"\r\n\r\n",
    "pieces": whole(PIECES + DONE),
    "stream-error": whole(event(error={"message": KEY}) + DONE),
    "no-json": whole(b"data: {" + KEY.encode() + b"\n\n" + DONE),
    "metrics": whole(f'a{{key="{KEY}"}} 1\n'.encode()),
}


@pytest.mark.parametrize("echo", ECHOES)
def test_no_path_lets_a_key_through(echo, tmp_path, capsys):
    file = tmp_path / "key"
    file.write_text(KEY)
    said = []
    with hostile(lambda _: iter([ECHOES[echo]])) as server:
        endpoint = Endpoint(server.url, str(file))
        for ask in (
            lambda: endpoint.get_json("/v1/models"),
            lambda: endpoint.get("/metrics"),
            lambda: endpoint.post("/abort_request", {}),
            lambda: find_model(server.url, str(file)),
            lambda: wait_ready(endpoint, lambda: True, 0.3),
            lambda: stream(endpoint, "m", 8, 5),
            lambda: LlamaCpp(str(file)).info(server.url),
            lambda: LlamaCpp(str(file)).counters(server.url),
            lambda: SGLang(str(file)).info(server.url),
        ):
            try:
                said.append(repr(ask()))
            except RunbookError as error:
                said += [str(error), repr(error), repr(error.args)]
        prompt = Prompt("p", "k", ({"role": "user", "content": "Hi"},))
        plan = LoadPlan(server.url, "m", (prompt,), 2, 1, 8, 10.0, api_key_file=str(file))
        said += [orjson.dumps(one).decode() for one in run_load(plan).records]
        gate.wait(gate.Ladder(server.url, "", 2, 0, KEY), 0, 0.5)
    said.append(capsys.readouterr().out)
    log = tmp_path / "server.log"
    log.write_text(f"started with {KEY}\n")
    redact_log(log)
    said.append(log.read_text())
    assert all(KEY not in one and KEY[:12] not in one for one in said)
    with contextlib.suppress(OSError):
        file.unlink()
