"""The launcher as a process: how it starts, refuses and ends."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from server_lives import EDIT, free_port

from runbook.engines.llamacpp import LlamaCpp
from runbook.rehearsal import serve_llamacpp
from runbook.rehearsal.serve_llamacpp import parse_arguments

LAUNCHER = serve_llamacpp.__file__
ENGINE = LlamaCpp()


def run(*arguments, env=None):
    """Run the launcher to its end: exit code, stderr lines of its own."""
    done = subprocess.run(
        [sys.executable, LAUNCHER, *map(str, arguments)],
        env=env or {},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()


@pytest.fixture
def spec(rehearsal):
    return ENGINE.launch_spec(rehearsal, rehearsal.configuration("baseline"))


@pytest.fixture
def model(spec):
    return spec.argv[spec.argv.index("--model") + 1]


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "a model: with blanks.gguf"
    path.write_text("no GGUF")
    return path


def test_bad_arguments_are_one_line_and_code_2():
    code, lines = run("--model", "/m", "--alias", "a", "--port", "eighty")
    assert code == 2
    assert len(lines) == 1
    assert "--port" in lines[0]
    assert "eighty" in lines[0]


def test_a_missing_model_is_named(tmp_path):
    missing = tmp_path / "no.gguf"
    code, lines = run("--model", missing, "--alias", "a", "--port", free_port())
    assert (code, len(lines)) == (1, 1)
    assert f"the model {missing} cannot be read: No such file" in lines[0]


def test_a_file_that_is_no_model_is_named(text_file):
    code, lines = run("--model", text_file, "--alias", "a", "--port", free_port())
    assert (code, len(lines)) == (1, 1)
    assert f"{text_file} is not a GGUF file" in lines[0]


def test_a_model_that_is_cut_is_refused_in_one_last_line(model, tmp_path):
    cut = tmp_path / "cut.gguf"
    with Path(model).open("rb") as whole:
        cut.write_bytes(whole.read(4 * 2**20))
    code, lines = run("--model", cut, "--alias", "a", "--port", free_port())
    assert code == 1
    assert lines[-1].startswith("serve_llamacpp: cannot serve:")
    assert str(cut) in lines[-1]


def test_a_busy_port_is_named_and_left_alone(model):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, lines = run("--model", model, "--alias", "a", "--port", port)
        assert (code, len(lines)) == (1, 1)
        assert f"port {port} on 127.0.0.1 cannot be taken: Address already in use" in lines[0]


def test_an_address_of_another_machine_is_named(model):
    code, lines = run(
        *("--model", model, "--alias", "a", "--port", free_port(), "--host", "192.0.2.1")
    )
    assert (code, len(lines)) == (1, 1)
    assert "192.0.2.1" in lines[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), ("\n", "is empty"), ("no folder", "CREDENTIALS_DIRECTORY")],
)
def test_a_key_that_is_not_there_is_said(model, tmp_path, content, said):
    env = {} if content == "no folder" else {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    if content == "\n":
        (tmp_path / "api-key").write_text(content)
    arguments = ["--model", model, "--alias", "a", "--port", free_port()]
    code, lines = run(*arguments, "--api-key-credential", "api-key", env=env)
    assert (code, len(lines)) == (1, 1)
    assert said in lines[0]


def test_nothing_of_the_package_is_imported():
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{LAUNCHER!r}, '--bad']\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit: pass\n"
        "sys.exit(any(name.split('.')[0] in ('runbook', 'xllamacpp') for name in sys.modules))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd="/", timeout=60).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_and_frees_its_port(spec, start, number):
    life = start(spec)
    ENGINE.wait_ready(life.url, life.alive, 60)
    code, _ = life.terminate(number)
    assert code == 0
    assert f"STOPPED by {number.name}" in life.log.read_text()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{life.url}/health", trust_env=False)


def test_a_signal_ends_a_server_that_is_busy(spec, start):
    """Its clients do not hang up by themselves: each answer takes longer than the stop may."""
    life = start(spec)
    ENGINE.wait_ready(life.url, life.alive, 60)
    ends = []

    def ask(stream):
        asked = {"messages": [{"role": "user", "content": EDIT * 4}], "stream": stream}
        asked |= {"max_tokens": 2000, "ignore_eos": True}
        try:
            httpx.post(f"{life.url}/v1/chat/completions", json=asked, timeout=120, trust_env=False)
            ends.append("a whole answer")
        except httpx.TransportError as error:
            ends.append(type(error).__name__)

    clients = [threading.Thread(target=ask, args=(number % 2 == 0,)) for number in range(10)]
    for client in clients:
        client.start()
    _wait_for(lambda: life.log.read_text().count("processing task") > 8)
    code, _ = life.terminate()
    for client in clients:
        client.join(30)
    assert code == 0
    assert len(ends) == 10
    assert "a whole answer" not in ends


def test_a_signal_while_the_model_loads_ends_it_with_0(spec, start):
    life = start(spec)
    _wait_for(lambda: "loading model" in life.log.read_text())
    code, _ = life.terminate()
    assert code == 0
    assert "STOPPED by SIGTERM" in life.log.read_text()


def test_it_starts_again_at_the_same_port_at_once(spec, start):
    for _ in range(2):
        life = start(spec)
        ENGINE.wait_ready(life.url, life.alive, 60)
        assert re.search(r"READY smollm2-135m-instruct-f32 after \d", life.log.read_text())
        assert life.terminate()[0] == 0


def _wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- arguments -----------------------------------------------------------------------------

LEAST = ["--port", "1", "--model", "/m", "--alias", "a"]


def test_what_is_not_said_has_a_default():
    parsed = parse_arguments(LEAST)
    assert (parsed.host, parsed.threads, parsed.parallel) == ("127.0.0.1", 1, 8)
    assert (parsed.ctx_per_slot, parsed.spec_type) == (2048, "none")
    assert parsed.ngram_n is parsed.ngram_m is parsed.draft is parsed.api_key_credential is None


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [*LEAST, "--threads", "0"],
        [*LEAST, "--threads", "-1"],
        [*LEAST, "--threads", "1.0"],
        [*LEAST, "--parallel", "²"],
        [*LEAST, "--thread", "1"],
        [*LEAST, "--ngram-m", "8"],
        [*LEAST, "--spec-type", "draft-simple", "--ngram-m", "8"],
        [*LEAST, "--spec-type", "NONE"],
        [*LEAST, "left over"],
        [*LEAST, "--help"],
    ],
)
def test_arguments_that_cannot_be_used_raise_one_sentence(arguments):
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        parse_arguments(arguments)
