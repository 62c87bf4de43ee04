"""A running server becomes a file that loads, and whose launch is the one that was found."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from server_lives import free_port

from runbook import params, strict_yaml
from runbook.engines import engine_for
from runbook.engines.sglang import options as sglang_options
from runbook.errors import BadInput
from runbook.launch.adopt import Adopted, Seen, adopt_launch
from runbook.launch.spec import LaunchSpec
from runbook.probe.ask import ServingFacts
from runbook.rehearsal import serve_llamacpp
from runbook.verbs import adopting
from runbook.verbs.adopting import Unit

SECRET = "s3cret-Value-77"
NONE = Unit()
FACTS = ServingFacts({"packages": {"sglang": "0.5.10", "xllamacpp": None}}, {})
SGLANG = [
    *("-m", "sglang.launch_server", "--model", "/m/Kimi-K2.5", "--port=31000", "--tp", "8"),
    *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/d/4"),
    *("--speculative-num-steps", "3", "--enable-metrics"),
]


def loaded(text):
    return params.from_values(strict_yaml.parse(text, "test"), "test")


def adopted(*words, env=None, **more):
    argv = ("/opt/sglang/bin/python3", *words)
    return Adopted(LaunchSpec(argv, env or {}, "/root", nofile=4096, **more))


def test_a_speculating_sglang_becomes_a_baseline_and_what_was_found():
    env = {"SGLANG_ENABLE_SPEC_V2": "True", "NCCL_P2P_LEVEL": "SYS"}
    text = adopting.render(adopted(*SGLANG, env=env), FACTS, NONE, "process 7")
    made = loaded(text)
    assert made.name == "kimi-k2.5"
    assert made.server.model_dump(include={"model", "draft", "port", "interpreter"}) == {
        "model": "/m/Kimi-K2.5",
        "draft": "/d/4",
        "port": 31000,
        "interpreter": "/opt/sglang/bin/python3",
    }
    assert made.server.args == ["--tp", "8", "--enable-metrics"]
    assert made.server.env == {"NCCL_P2P_LEVEL": "SYS"}
    baseline, found = made.configurations
    assert (baseline.name, baseline.args) == ("baseline", [])
    assert found.args == ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3"]
    assert found.env == {"SGLANG_ENABLE_SPEC_V2": "True"}
    assert made.choose.expected == "adopted"
    assert made.stack.engine_version == "==0.5.10"
    assert (made.service.unit, made.service.nofile) == ("sglang-kimi-k2.5.service", 4096)
    spec = engine_for(made.server).launch_spec(made, found)
    for word in ("/m/Kimi-K2.5", "31000", "/d/4", "8", "EAGLE3", "3", "--enable-metrics"):
        assert word in spec.argv


def test_without_speculation_it_is_the_baseline():
    made = loaded(
        adopting.render(adopted("-m", "sglang.launch_server", "--model", "/m"), FACTS, NONE, "")
    )
    assert [one.name for one in made.configurations] == ["baseline"]
    assert (made.choose.expected, made.server.port) == (None, 30000)


def test_a_server_of_the_rehearsal_keeps_its_launch():
    given = params.load(Path(__file__).parents[2] / "params" / "rehearsal.yaml")
    lean = given.configuration("ngram-lean")
    spec = engine_for(given.server).launch_spec(given, lean)
    made = loaded(adopting.render(Adopted(spec), ServingFacts({}, {}), Unit("llm.service"), ""))
    again = engine_for(made.server).launch_spec(made, made.configuration("adopted"))
    assert set(again.argv[2:]) == set(spec.argv[2:])
    assert again.argv[1].endswith(f"-{Path(spec.argv[1]).name}")  # it goes along to a real host
    assert (again.env, again.cwd, again.nofile) == (spec.env, spec.cwd, spec.nofile)


def test_the_comments_say_what_was_left_out_and_never_a_secret():
    argv = (
        "python",
        *SGLANG,
        "--api-key",
        SECRET,
        "--config",
        "/c.yaml",
        "--admin-api-key",
        SECRET,
    )
    environ = {"HF_TOKEN": SECRET, "TERM": "xterm", "X\ny": "z"}
    seen = Seen(7, argv, environ, "/", "/v/bin/python", "root")
    text = adopting.render(adopt_launch(seen), FACTS, Unit("x.service"), "process 7")
    head = [line for line in text.splitlines() if line.startswith("#")]
    for said in (
        "HF_TOKEN",
        "--api-key",
        "TERM",
        "--config /c.yaml is left out",
        "x.service",
        "nofile",
    ):
        assert said in " ".join(head)
    assert SECRET not in text
    assert loaded(text).service.unit == "sglang-kimi-k2.5.service"


@pytest.mark.parametrize(
    ("runs_in", "unit", "replaces", "said"),
    [
        (Unit(), "sglang-kimi-k2.5.service", [], "in no unit: end it yourself"),
        (Unit("session-3.scope"), "sglang-kimi-k2.5.service", [], "a login session: end it"),
        (Unit("user@0.service"), "sglang-kimi-k2.5.service", [], "a login session: end it"),
        (Unit("llm.service"), "sglang-kimi-k2.5.service", ["llm.service"], "gives way"),
        (Unit("llm@8000.service"), "sglang-kimi-k2.5.service", ["llm@8000.service"], "gives way"),
        (
            Unit("sglang-kimi-k2.5.service"),
            "sglang-kimi-k2.5-runbook.service",
            ["sglang-kimi-k2.5.service"],
            "never overwritten",
        ),
        (Unit("llm.service", ours=True), "llm.service", [], "process 7"),
    ],
)
def test_what_runs_now_gives_way_to_a_unit_of_its_own(runs_in, unit, replaces, said):
    text = adopting.render(adopted(*SGLANG), FACTS, runs_in, "process 7")
    service = loaded(text).service
    assert (service.unit, service.replaces) == (unit, replaces)
    assert said in text
    assert "it had none of these, which every launch here has: PATH, HOME" in text


@pytest.mark.parametrize(
    "argv",
    [
        ("/opt/bin/python3", "-u", "-m", "sglang.launch_server", "--port", "1"),
        ("/opt/bin/python3", "/opt/lib/sglang/launch_server.py", "--port", "1"),
        ("/opt/bin/python3", "/opt/bin/sglang", "serve", "--port", "1"),
        ("/opt/bin/python3", "/x/runbook/engines/sglang/serve_sglang.py", "--port", "1"),
    ],
)
def test_every_way_to_start_sglang_is_known(argv):
    kind, words = adopting.split_command(argv)
    assert (kind.engine, words) == ("sglang", ["--port", "1"])


@pytest.mark.parametrize(
    "argv",
    [
        ("sglang::scheduler_TP0", "-m", "sglang.launch_server"),
        ("/usr/bin/python3", "-m", "http.server"),
        ("/usr/bin/python3",),
        ("/usr/bin/llama-server", "--port", "1"),
        ("bash", "run.sh"),
    ],
)
def test_workers_and_other_programs_are_none(argv):
    assert adopting.split_command(argv) is None


@pytest.fixture
def running(tmp_path):
    """A process that looks like SGLang's launcher."""
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text("import time; print(flush=True); time.sleep(60)")
    process = subprocess.Popen(
        [sys.executable, *SGLANG, "--api-key", SECRET],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": "/root", "OPENAI_API_KEY": SECRET, "SHLVL": "1"},
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.wait()


def test_a_process_is_adopted_into_a_file_of_its_owner_alone(running, tmp_path):
    file = tmp_path / "adopted.yaml"
    assert str(file) in adopting.adopt(running, None, file)
    made = params.load(file)
    assert made.server.cwd == str(tmp_path)
    assert made.server.interpreter == sys.executable
    assert SECRET not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(BadInput, match="exists already"):
        adopting.adopt(running, None, file)


@pytest.mark.parametrize(("pid", "unit"), [(None, None), (1, "x.service")])
def test_one_server_must_be_named(pid, unit):
    with pytest.raises(BadInput, match="needs one server"):
        adopting.adopt(pid, unit, None)


def test_what_is_no_server_is_refused():
    with pytest.raises(BadInput, match="no server that the runbook knows"):
        adopting.adopt(os.getpid(), None, None)


def test_the_launcher_of_the_rehearsal_is_told_by_its_file():
    argv = (sys.executable, str(Path(serve_llamacpp.__file__)), "--port", "1")
    assert adopting.split_command(argv)[0].engine == "llamacpp"


CONFIG = """\
model-path: /m/Kimi-K2.5
tensor-parallel-size: 8
speculative-algorithm: EAGLE3
speculative_draft_model_path: /d/4
speculative-num-steps: 3
trust-remote-code: true
enable-metrics: false
cuda-graph-bs: [1, 2, 4]
json-model-override-args: {"a": 1}
api-key: s3cret-Value-77
"""


def from_file(tmp_path, text=CONFIG, *more, started=None, name="kimi.yaml", words=None):
    (tmp_path / name).write_text(text)
    argv = ("python", "-m", "sglang.launch_server", *(words or ("--config", name)), *more)
    seen = Seen(7, argv, {}, str(tmp_path), "/v/bin/python", "root", started=started)
    return adopting.with_config_file(seen)


def test_the_options_of_a_file_stand_in_its_place(tmp_path):
    seen = from_file(tmp_path, CONFIG, "--port", "31979", "--tensor-parallel-size", "4")
    text = adopting.render(adopt_launch(seen), FACTS, NONE, "process 7")
    made = loaded(text)
    assert (made.server.model, made.server.draft, made.server.port) == (
        "/m/Kimi-K2.5",
        "/d/4",
        31979,
    )
    assert made.server.args == [
        *("--tensor-parallel-size", "8", "--trust-remote-code", "--cuda-graph-bs", "1", "2", "4"),
        *("--json-model-override-args", '{"a": 1}', "--tensor-parallel-size", "4"),
    ]  # the command line comes later, and wins
    assert made.configurations[1].args == [
        *("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")
    ]
    assert SECRET not in text and "--api-key" in text
    assert "--enable-metrics: false in" in text
    assert sglang_options.read_options(made.server.args).text("--tensor-parallel-size") == "4"


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("a: [1, 2", None, "kimi.yaml, which --config names"),
        ("- a\n- b", None, "no options by name"),
        ("1: 2", None, "no options by name"),
        ("a: &x 1\nb: *x", None, "aliases"),
        ("a: 1", ("--config", "gone.yaml"), "gone.yaml: No such file"),
        ("a: 1", ("--config",), "does not name one file"),
        ("a: 1", ("--config", "kimi.yaml", "--config", "kimi.yaml"), "does not name one file"),
        ("a: \x01", None, "kimi.yaml, which --config names"),
    ],
)
def test_a_file_that_is_none_is_refused_with_the_reason(tmp_path, text, words, said):
    with pytest.raises(BadInput) as refused:
        from_file(tmp_path, text, words=words)
    assert said in refused.value.found and refused.value.do


def test_a_file_that_was_written_after_the_start_is_refused(tmp_path):
    with pytest.raises(BadInput, match="was written after process 7 was started"):
        from_file(tmp_path, started=time.time() - 60)
    assert from_file(tmp_path, started=time.time() + 60)


@given(st.text(max_size=80))
def test_any_text_is_options_or_refused(text):
    try:
        words, off = sglang_options.config_words(text, "x.yaml")
    except BadInput as error:
        assert error.found and error.do
    else:
        assert all(isinstance(word, str) for word in (*words, *off))


@pytest.mark.parametrize("value", ["a", "0.5", "8", "a b", "None", '{"a": [1]}', "-1", "é"])
def test_a_value_is_the_word_that_it_is_on_a_command_line(value):
    told = {"x": value, "flag": True, "n": 7, "off": False, "none": []}
    text = yaml.safe_dump(told, sort_keys=False)
    words, off = sglang_options.config_words(text, "")
    assert (words, off) == (["--x", value, "--flag", "--n", "7"], ["--off"])


def test_without_a_model_it_is_asked_for():
    nameless = adopted("-m", "sglang.launch_server", "--port", "1")
    with pytest.raises(BadInput, match="name no model") as refused:
        adopting.render(nameless, FACTS, NONE, "")
    assert "--model PATH" in refused.value.do
    made = loaded(adopting.render(nameless, FACTS, NONE, "", "/m/given"))
    assert made.server.model == "/m/given"
    named = adopting.render(adopted(*SGLANG), FACTS, NONE, "", "/m/given")
    assert loaded(named).server.model == "/m/Kimi-K2.5", "what it runs with wins"


def test_what_it_is_bound_to_is_a_parameter_and_in_its_unit_again():
    process = {"cpus": "64-127", "numa_policy": "bind", "numa_nodes": "1", "nice": 5}
    text = adopting.render(adopted(*SGLANG, process=process, limits={"core": 0}), FACTS, NONE, "")
    made = loaded(text)
    assert made.server.process.given() == process
    for one in made.configurations:
        spec = engine_for(made.server).launch_spec(made, one)
        assert (spec.process, spec.limits) == (process, {"core": 0})


def test_a_limit_below_what_a_server_may_have_is_said():
    text = adopting.render(
        Adopted(LaunchSpec(("python", *SGLANG), {}, "/", nofile=64)), FACTS, NONE, ""
    )
    assert "its limit nofile is 64" in text


class Telling(BaseHTTPRequestHandler):
    told: ClassVar[dict] = {}

    def do_GET(self):
        body = json.dumps(self.told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def telling():
    """Starts a server that says this of itself; its port."""
    servers = []

    def start(**told):
        handler = type("One", (Telling,), {"told": {"model_path": "/m", **told}})
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].server_address[1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


PLAIN = ("-m", "sglang.launch_server", "--model", "/m", "--host", "127.0.0.1")
EAGLE = (*PLAIN, "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/d")


@pytest.mark.parametrize(
    ("words", "runs", "said"),
    [
        (PLAIN, None, ""),
        (EAGLE, "EAGLE3", ""),
        (EAGLE, None, "says that it speculates by none, its arguments say EAGLE3"),
    ],
)
def test_what_the_server_says_of_itself_is_compared(telling, words, runs, said):
    port = telling(speculative_algorithm=runs)
    text = adopting.render(adopted(*words, "--port", str(port)), FACTS, NONE, "")
    assert said in adopting.same_speculation(loaded(text))
    assert bool(said) == bool(adopting.same_speculation(loaded(text)))


@pytest.mark.parametrize(("words", "runs"), [(PLAIN, "EAGLE3"), (PLAIN, "NGRAM"), (EAGLE, "NGRAM")])
def test_a_server_that_speculates_is_never_a_baseline_without(telling, words, runs):
    port = telling(speculative_algorithm=runs)
    text = adopting.render(adopted(*words, "--port", str(port)), FACTS, NONE, "")
    with pytest.raises(BadInput, match=f"speculates by {runs}"):
        adopting.same_speculation(loaded(text))


def test_a_server_that_does_not_answer_is_not_compared():
    text = adopting.render(adopted(*PLAIN, "--port", str(free_port())), FACTS, NONE, "")
    assert "was not compared" in adopting.same_speculation(loaded(text))
