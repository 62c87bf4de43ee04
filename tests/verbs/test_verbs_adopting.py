"""A running server becomes a file that loads, and whose launch is the one that was found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runbook import params, strict_yaml
from runbook.engines import engine_for
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
