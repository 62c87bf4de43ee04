"""The exact launches of the production parameters, and the launcher that hands the key over."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.engines import Seen, engine_for, engine_named
from runbook.engines.assemble import KEY_CREDENTIAL
from runbook.engines.sglang import serve_sglang
from runbook.engines.sglang.engine import SGLang
from runbook.errors import BadInput, NotHere
from runbook.params import Host, load

PRODUCTION = Path(__file__).parents[3] / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml"
LAUNCHER = Path(serve_sglang.__file__)
KEY = "s3cret-k3y"
SHARED = (
    "--trust-remote-code --tensor-parallel-size 8 --max-running-requests 128 "
    "--mem-fraction-static 0.90 --attention-backend triton --enable-metrics"
)
EAGLE = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk"
COMMANDS = {
    "baseline": f"{SHARED}",
    "eagle3-topk4-v1": "--speculative-draft-model-path /data/eagle3/output_100k_sglang/4 "
    f"{SHARED} {EAGLE} 4 --speculative-num-draft-tokens 16 "
    "--speculative-draft-model-quantization unquant",
    "eagle3-topk1-spec-v2": "--speculative-draft-model-path /data/eagle3/output_100k_sglang/4 "
    f"{SHARED} {EAGLE} 1 --speculative-num-draft-tokens 4 "
    "--speculative-draft-model-quantization unquant",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_of_each_production_configuration(name):
    params = load(PRODUCTION)
    spec = engine_for(params.server).launch_spec(params, params.configuration(name))
    assert " ".join(spec.argv) == (
        "/opt/sglang/bin/python3 -m sglang.launch_server --model-path /shared/kimi-k2.5-int4 "
        f"--host 127.0.0.1 --port 30000 {COMMANDS[name]}"
    )
    switch = {"eagle3-topk4-v1": "False", "eagle3-topk1-spec-v2": "True"}.get(name)
    assert spec.env.get("SGLANG_ENABLE_SPEC_V2") == switch
    assert "/usr/local/cuda/bin" in spec.env["PATH"].split(":")
    assert spec.env["NCCL_P2P_LEVEL"] == "SYS"
    assert (spec.cwd, spec.user, spec.credentials) == ("/root", "", {})


def test_the_production_parameters_are_those_of_the_story():
    params = load(PRODUCTION)
    assert [c.name for c in params.configurations] == list(COMMANDS)
    assert (params.service.unit, params.host.kind) == ("sglang-kimi.service", "local")
    assert (params.record.document, params.record.plan) == (
        "/root/production_v2.md",
        "eagle-fast-verify.md",
    )
    assert {1, 30, 100} <= set(params.benchmark.concurrencies)
    assert {m.concurrency: m.share for m in params.choose.mix} == {1: 0.15, 30: 0.6, 100: 0.25}
    assert params.choose.limits.max_regress == {"1": 0.1}
    assert params.choose.expected == "eagle3-topk1-spec-v2"
    assert params.workload.output_tokens == 200
    assert set(params.workload.mix) == {"edit", "generate", "agent"}


def with_args(*words, configuration=(), **server):
    overrides = [f"server.args={json.dumps(list(words))}"]
    overrides += [f"configurations[name=baseline].args={json.dumps(list(configuration))}"]
    for name, value in server.items():
        overrides.append(f"server.{name}={value if isinstance(value, str) else json.dumps(value)}")
    return load(PRODUCTION, overrides)


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        (["--model-path", "/m"], "server.model"),
        (["--model=/m"], "server.model"),
        (["--host", "0.0.0.0"], "server.address"),
        (["--port=1"], "server.port"),
        (["--speculative-draft-model-path", "/d"], "server.draft"),
        (["--speculative-draft", "/d"], "server.draft"),
        (["--api-key", "x"], "server.api_key"),
        (["--api=x"], "server.api_key"),
        (["--por", "1"], "server.port"),
        (["--admin-api-key=x"], "leave it out"),
        (["--config", "x.yaml"], "server.args"),
    ],
)
@pytest.mark.parametrize("of_configuration", [True, False])
def test_options_with_a_parameter_of_their_own_are_refused(words, parameter, of_configuration):
    params = with_args(configuration=words) if of_configuration else with_args(*words)
    with pytest.raises(BadInput) as caught:
        SGLang().launch_spec(params, params.configuration("baseline"))
    assert parameter in caught.value.do
    where = "configurations[name=baseline].args" if of_configuration else "server.args"
    assert caught.value.found.startswith(f"{where}: {words[0].partition('=')[0]}")


def test_a_served_name_may_be_given():
    params = with_args("--served-model-name", "kimi")
    spec = SGLang().launch_spec(params, params.configuration("baseline"))
    assert spec.argv[-2:] == ("--served-model-name", "kimi")


def test_an_n_gram_drafter_gets_no_draft():
    params = with_args(configuration=["--speculative-algorithm", "NGRAM"])
    spec = SGLang().launch_spec(params, params.configuration("baseline"))
    assert "--speculative-draft-model-path" not in spec.argv


def test_the_rehearsals_embedded_model_is_not_for_sglang():
    params = with_args(model="embedded:smollm2-135m-instruct-f32")
    with pytest.raises(BadInput, match="llamacpp"):
        SGLang().launch_spec(params, params.configuration("baseline"))


def test_where_no_interpreter_is_named_the_runbooks_own_must_have_sglang():
    SGLang().prepare(with_args(interpreter=sys.executable), print)
    with pytest.raises(NotHere, match="not installed"):
        SGLang().prepare(with_args(interpreter=""), print)


def test_an_engine_that_is_not_built_in():
    with pytest.raises(BadInput, match="llamacpp or sglang"):
        engine_named("vllm")


def test_the_stack_is_checked_with_the_configuration_files_of_the_models(tmp_path):
    for name, architecture in (("t", "KimiK25ForConditionalGeneration"), ("d", "XEagle3MLA")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    params = load(PRODUCTION, [f"server.model={tmp_path / 't'}", f"server.draft={tmp_path / 'd'}"])

    def faults(version):
        checks = engine_for(params.server).check_stack(params, Seen({"sglang": version}))
        untold = ("sglang_arguments", "sglang_packages")  # asked on a host alone
        return {c.name: c.status for c in checks if c.status != "pass" and c.name not in untold}

    assert faults("0.5.12.post1") == {}
    assert faults("0.5.10") == {"sglang_model": "fail"}
    assert faults("0.5.23")["sglang_worker"] == "fail"
    assert faults(None)["sglang_release"] == "unknown"


# --- the key -------------------------------------------------------------------------------


def keyed(tmp_path, **api_key):
    (tmp_path / "key").write_text(KEY + "\n")
    return with_args(api_key={"file": str(tmp_path / "key"), **api_key})


def test_the_key_never_stands_in_the_launch(tmp_path):
    params = keyed(tmp_path)
    spec = SGLang().launch_spec(params, params.configuration("baseline"))
    assert Path(spec.argv[1]).name.endswith(LAUNCHER.name)
    assert spec.credentials == {KEY_CREDENTIAL: str(tmp_path / "key")}
    assert KEY not in spec.shell_command()
    assert serve_sglang.CREDENTIAL == KEY_CREDENTIAL


@pytest.mark.parametrize("host", [Host(), Host(kind="ssh", address="root@gpu")])
def test_the_launcher_goes_along_named_by_its_content(tmp_path, host):
    """A service that ran the clone's would run another one after a ``git pull``."""
    params = keyed(tmp_path).model_copy(update={"host": host})
    spec = SGLang().launch_spec(params, params.configuration("baseline"))
    [(path, text)] = spec.files.items()
    assert spec.argv[1] == path
    assert text == LAUNCHER.read_text()
    assert path.startswith(f"/var/lib/golive-runbook/{params.service.unit}/launcher-")
    assert KEY not in repr(spec)


def test_in_a_box_and_as_a_process_the_launcher_is_the_clones(tmp_path):
    params = keyed(tmp_path)
    benchmark = params.benchmark.model_copy(update={"launch": "process"})
    for change in ({"host": Host(kind="box")}, {"benchmark": benchmark}):
        spec = SGLang().launch_spec(
            params.model_copy(update=change), params.configuration("baseline")
        )
        assert (spec.argv[1], spec.files) == (str(LAUNCHER), {})


SERVER = """
import json, logging, multiprocessing, os, sys
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)

def child(queue):
    queue.put([sys.argv, sys.path[0]])

if __name__ == "__main__":
    class Arguments:
        def __str__(self):
            return f"Arguments({sys.argv[-1]})"
    logging.info("server_args=%s and %s %d", Arguments(), sys.argv, 7)
    logging.info(f"argv {sys.argv}")
    logging.info("%(a)s", {"a": sys.argv})
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    told = queue.get(timeout=60)
    process.join()
    command = open("/proc/self/cmdline").read()
    print(json.dumps({"argv": sys.argv, "child": told, "command": command, "path": sys.path[0],
                      "spec": __spec__.name}))
    sys.exit(3)
"""


@pytest.fixture
def package(tmp_path):
    """A stand-in for SGLang's package, in the working directory."""
    (tmp_path / "cwd" / "sglang").mkdir(parents=True)
    (tmp_path / "cwd" / "sglang" / "__init__.py").write_text("")
    (tmp_path / "cwd" / "sglang" / "launch_server.py").write_text(SERVER)
    return tmp_path / "cwd"


def launch(cwd, credentials, *words):
    env = {"PATH": "/usr/bin:/bin"}
    if credentials is not None:
        env["CREDENTIALS_DIRECTORY"] = str(credentials)
    return subprocess.run(
        [sys.executable, str(LAUNCHER), *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_launcher_runs_the_module_with_the_key_unseen(package, tmp_path):
    (tmp_path / KEY_CREDENTIAL).write_text(KEY + "\n")
    done = launch(package, tmp_path, "--model-path", "/m x", "--port", "1")
    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    assert told["argv"][1:] == ["--model-path", "/m x", "--port", "1", f"--api-key={KEY}"]
    assert told["argv"][0].endswith("/sglang/launch_server.py")
    assert told["path"] == str(package)
    assert told["spec"] == "sglang.launch_server"
    assert KEY not in told["command"]
    child_argv, child_path = told["child"]
    assert child_argv[1:] == told["argv"][1:] and child_path == str(package)
    assert KEY not in done.stderr
    assert "server_args=Arguments(--api-key=<removed>)" in done.stderr and " 7\n" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no $CREDENTIALS_DIRECTORY"),
        ("", "no single line"),
        ("a\nb", "no single line"),
        ("schlüssel", "not ASCII"),
        (False, "cannot be read"),
    ],
)
def test_without_a_key_nothing_is_served(package, tmp_path, content, said):
    if isinstance(content, str):
        (tmp_path / KEY_CREDENTIAL).write_text(content)
    done = launch(package, None if content is None else tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("serve_sglang: cannot serve: ") and said in done.stderr
    assert done.stderr.count("\n") == 1
