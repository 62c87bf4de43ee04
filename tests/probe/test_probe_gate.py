import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runbook import probe
from runbook.probe import gate
from runbook.probe.look import sockets_on

SERVER = Path(__file__).parents[1] / "service" / "standin_server.py"


GATE = [sys.executable, "-IS", "-c", probe.guard_program(), "ready"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def start():
    started = []

    def start(*arguments):
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, SERVER, str(port), *arguments], stdout=subprocess.DEVNULL
        )
        started.append(process)
        return process, port

    yield start
    for process in started:
        process.kill()
        process.wait()


def run_gate(port, *arguments, main=None, deadline=20, key=None, tmp_path=None):
    env = {"MAINPID": str(main)} if main else {}
    if key:
        (tmp_path / "api-key").write_text(key)
        env["CREDENTIALS_DIRECTORY"] = str(tmp_path)
    url = f"http://127.0.0.1:{port}"
    command = [*GATE, "--url", url, "--deadline", str(deadline)]
    done = subprocess.run(
        [*command, *arguments], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_it_ends_when_a_completion_was_served_and_not_before(start):
    server, port = start("--load", "3")
    code, said = run_gate(port, main=server.pid)
    assert code == 0
    assert "standin served a completion of 16 tokens" in said
    assert "waiting for" in said


def test_it_ends_at_once_when_the_main_process_is_gone(start):
    server, port = start("--load", "60", "--die-after", "1")
    began = time.monotonic()
    code, said = run_gate(port, main=server.pid, deadline=50)
    assert code == gate.GONE
    assert time.monotonic() - began < 20
    assert f"main process {server.pid} is gone" in said


def test_it_ends_when_the_workers_of_a_server_are_dead():
    program = (
        "import subprocess as s, time; dead = s.Popen(['/bin/sh', '-c', 'exit 7']); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as server:
        try:
            code, said = run_gate(free_port(), main=server.pid, deadline=50)
        finally:
            server.kill()
    assert code == gate.GONE
    assert "will not become ready: its worker processes have ended" in said
    assert "sh: exit 7" in said


def test_a_main_process_that_is_gone_before_it_looks_is_gone(start):
    server, port = start("--exit", "1")
    server.wait()
    assert run_gate(port, main=server.pid)[0] == gate.GONE


def test_out_of_time_says_what_it_waited_for(start):
    server, port = start("--load", "60")
    code, said = run_gate(port, main=server.pid, deadline=1.5)
    assert code == gate.LATE
    assert "gave up" in said
    assert "health (it says 503)" in said


def test_healthy_outside_and_dead_inside_is_not_ready(start):
    server, port = start("--hang-after", "0")
    code, said = run_gate(port, main=server.pid, deadline=2)
    assert code == gate.LATE
    assert "waiting for a completion of standin" in said


def test_one_token_is_not_a_served_completion(start):
    server, port = start("--one-token")
    code, said = run_gate(port, main=server.pid, deadline=2)
    assert code == gate.LATE
    assert "it gave 1" in said


def test_a_server_without_health_is_judged_by_its_completion(start):
    server, port = start("--no-health")
    assert run_gate(port, main=server.pid)[0] == 0


@pytest.mark.parametrize("strange", ["null", "[]", '{"data": null}', '{"data": [{}]}'])
def test_an_answer_of_another_form_is_asked_for_again(start, monkeypatch, strange):
    server, port = start()
    ladder = gate.Ladder(f"http://127.0.0.1:{port}", "", 2, server.pid, None)
    ask, answers = ladder.get, [(200, strange.encode())]

    def get(path):
        return answers.pop() if path == "/v1/models" and answers else ask(path)

    monkeypatch.setattr(ladder, "get", get)
    assert gate.wait(ladder, server.pid, 10) == 0
    assert not answers


def test_another_model_is_refused_at_once(start):
    server, port = start("--model", "other")
    code, said = run_gate(port, "--model", "wanted", main=server.pid)
    assert code == gate.REFUSED
    assert "models 'other', not wanted" in said


def test_a_key_comes_from_the_credentials(start, tmp_path, monkeypatch):
    (tmp_path / "api-key").write_text("k1\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    server, port = start()
    assert run_gate(port, main=server.pid, key="k1", tmp_path=tmp_path)[0] == 0
    code, said = run_gate(port, main=server.pid)
    assert code == gate.REFUSED
    assert "API key" in said


def test_a_key_that_no_request_can_carry_is_not_waited_for(tmp_path):
    for key in ("kéy", "two\nlines", "tab\tin"):
        code, said = run_gate(1, key=key, tmp_path=tmp_path)
        assert (code, "not one line of ASCII" in said) == (gate.WRONGLY_ASKED, True)


def test_codes_avoid_those_that_systemd_names():
    codes = {gate.GONE, gate.LATE, gate.REFUSED, gate.WRONGLY_ASKED}
    assert not codes & {*range(1, 8), *range(64, 79)}


def test_usage_errors_have_their_own_code():
    command = [*GATE, "--url", "http://127.0.0.1:1", "--deadline", "soon"]
    assert subprocess.run(command, capture_output=True).returncode == gate.WRONGLY_ASKED


def test_a_key_that_cannot_be_read_is_said_in_one_line(tmp_path):
    (tmp_path / "api-key").mkdir()
    command = [*GATE, "--url", "http://127.0.0.1:1", "--deadline", "1"]
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (gate.WRONGLY_ASKED, "")
    assert "api-key" in done.stdout


def test_the_port_of_another_process_is_not_the_units():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert gate.unit_holds_port(port, os.getpid()) is True
        assert sockets_on(port)
    assert gate.unit_holds_port(port, os.getpid()) is False
