"""The probe run for real, by real interpreters."""

import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from runbook import probe
from runbook.hosts.base import Done
from runbook.hosts.local import LocalHost
from runbook.launch.spec import LaunchSpec
from runbook.probe.ask import Questions, ServingFacts, ask_serving, interpreter_words, read_answer

BASE = str(Path(sys.base_prefix) / "bin" / "python3")
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/root"}


def ask(*argv: str, env: dict[str, str] | None = None, **fields) -> ServingFacts:
    questions = fields.pop("questions", Questions())
    spec = LaunchSpec(argv or (BASE, "-m", "server"), {**ENV, **(env or {})}, "/", **fields)
    return ask_serving(LocalHost(), spec, questions)


def customize(folder: Path, text: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


def interpreters() -> list[str]:
    """Every Python 3.8 or newer that is found here."""
    pyenv = Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3")
    named = [shutil.which(f"python3.{minor}") for minor in range(8, 20)]
    found = {BASE, *filter(None, named), *map(str, pyenv)}
    return [path for path in sorted(found) if is_new_enough(path)]


def is_new_enough(path: str) -> bool:
    code = "import sys; sys.exit(sys.version_info < (3, 8))"
    return subprocess.run([path, "-I", "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize("interpreter", interpreters())
def test_every_interpreter_here_tells_all(interpreter):
    found = ask(interpreter, "-m", "server")
    assert (found.reason, found.reasons) == ("", {})
    version = subprocess.run([interpreter, "-V"], capture_output=True, text=True).stdout.split()[1]
    assert found.facts["python"]["version"] == version
    assert found.facts["cwd"] == "/"
    assert found.facts["cores"]["usable"] == len(os.sched_getaffinity(0))
    assert 0 < found.facts["memory"]["available_bytes"] < found.facts["memory"]["total_bytes"]


def test_run_by_its_path_it_prints_the_same_facts(tmp_path):
    path = tmp_path / "serving.py"
    path.write_text(probe.source("serving"))
    out = subprocess.run([BASE, str(path)], capture_output=True, text=True, env=ENV, cwd="/").stdout
    by_path = read_answer(Done((), 0, out, ""))
    by_stdin = ask()
    for name in ("python", "sys_path", "sitecustomize", "environment", "kernel", "system"):
        assert by_path.facts[name] == by_stdin.facts[name]


def test_packages_files_tools_and_disks(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"weights")
    (tmp_path / "large.bin").write_bytes(bytes(100))
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "a.safetensors").write_bytes(b"12345")
    names = ("model.bin", "large.bin", "shards", "gone")
    model, large, shards, gone = (str(tmp_path / name) for name in names)
    questions = Questions(
        packages=("pytest", "no-such-package"),
        files=(model, large, shards, gone),
        hash_up_to_bytes=50,
        disks=(str(tmp_path / "not" / "yet"),),
        tools=("sh", "no-such-tool"),
    )
    facts = ask(sys.executable, "-m", "server", questions=questions).facts
    assert facts["packages"]["pytest"] == pytest.__version__
    assert facts["packages"]["no-such-package"] is None
    assert facts["files"][model]["sha256"] == hashlib.sha256(b"weights").hexdigest()
    assert (facts["files"][large]["sha256"], facts["files"][large]["size_bytes"]) == (None, 100)
    assert (facts["files"][shards]["files"], facts["files"][shards]["size_bytes"]) == (1, 5)
    assert facts["files"][gone] == {"kind": None, "why": "No such file or directory"}
    assert facts["disks"][str(tmp_path / "not" / "yet")]["free_bytes"] > 0
    assert facts["tools"] == {"sh": "/usr/bin/sh", "no-such-tool": None}


def nvcc_of(folder: Path, release: str) -> Path:
    """A folder with an nvcc that tells this release."""
    program = folder / "bin" / "nvcc"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho Cuda compilation tools, release {release}, V{release}.1\n")
    program.chmod(0o755)
    return program


def test_the_toolkit_that_is_named_beside_the_one_on_the_path(tmp_path):
    own, other = nvcc_of(tmp_path / "own", "13.0"), nvcc_of(tmp_path / "other", "12.4")
    path = {"PATH": f"{other.parent}:/usr/bin:/bin"}
    found = ask(env={**path, "CUDA_HOME": str(tmp_path / "own")}).facts["toolkit"]
    assert found == {
        "variable": "CUDA_HOME",
        "folder": str(tmp_path / "own"),
        "nvcc": str(own),
        "release": "13.0",
        "on_path": str(other),
        "on_path_release": "12.4",
    }
    for broken in (f":{tmp_path / 'own'}", str(tmp_path), "/absent"):
        found = ask(env={**path, "CUDA_PATH": broken}).facts["toolkit"]
        assert (found["variable"], found["nvcc"], found["release"]) == ("CUDA_PATH", None, None)
    own.write_text("#!/bin/sh\nexit 1\n")
    assert ask(env={"CUDA_HOME": str(tmp_path / "own")}).facts["toolkit"]["release"] is None
    assert ask().facts["toolkit"]["variable"] == ""


def test_folders_that_the_environment_names(tmp_path):
    libraries = f"{tmp_path}:/absent/lib:"
    rows = [row.split() for row in Path("/proc/mounts").read_text().splitlines()]
    mounts = {row[1]: "noexec" in row[3].split(",") for row in rows if Path(row[1]).is_dir()}
    barred = next((path for path, is_barred in reversed(mounts.items()) if is_barred), "/")
    env = {"LD_LIBRARY_PATH": libraries, "HOME": str(tmp_path / "home"), "HF_HOME": barred}
    found = ask(env=env).facts["folders"]
    assert found["libraries"] == {str(tmp_path): True, "/absent/lib": False}
    home = {"path": str(tmp_path / "home"), "writable": True, "noexec": False}
    assert found["caches"]["HOME"] == home
    assert found["caches"]["HF_HOME"]["noexec"] is mounts.get(barred, False)
    assert found["caches"]["TMPDIR"]["path"] == "/tmp"
    (tmp_path / "file").touch()
    closed = ask(env={"TRITON_CACHE_DIR": str(tmp_path / "file")}).facts["folders"]["caches"]
    assert closed["TRITON_CACHE_DIR"]["writable"] is False


def test_what_a_distribution_itself_requires_of_the_packages_asked_for():
    asked = {"packages": ("pluggy", "no_such-package"), "requires_of": "pytest"}
    found = ask(sys.executable, "-m", "server", questions=Questions(**asked)).facts["requires"]
    assert found == [one for one in metadata.requires("pytest") if one.startswith("pluggy")] != []
    asked["requires_of"] = "no-such-package"
    found = ask(sys.executable, "-m", "server", questions=Questions(**asked))
    assert found.facts["requires"] is None and "requires" not in found.reasons


def test_sitecustomize_that_sets_changes_and_removes(tmp_path):
    text = "import os\nos.environ['NCCL_PROTO'] = 'LL'\nos.environ['A'] = '2'\n"
    text += "del os.environ['B']\nos.environ['MY_TOKEN'] = 'hush'\nprint('noise')\n"
    env = customize(tmp_path / "site", text)
    facts = ask(env={**env, "A": "1", "B": "1"}).facts
    changed = facts["environment"]
    assert changed["set"]["NCCL_PROTO"] == "LL"
    assert changed["set"]["MY_TOKEN"].startswith("sha256:")
    assert (changed["changed"], changed["removed"]) == ({"A": "2"}, ["B"])
    site = facts["sitecustomize"]
    path = str(tmp_path / "site" / "sitecustomize.py")
    assert (site["loaded"], site["raised"]) == (path, None)
    assert site["candidates"][0]["sha256"] == hashlib.sha256(text.encode()).hexdigest()


def test_sitecustomize_that_raises_is_told_although_python_goes_on(tmp_path):
    env = customize(tmp_path / "site", "raise RuntimeError('no tuning file')\n")
    site = ask(env=env).facts["sitecustomize"]
    assert site["loaded"] is None
    assert site["raised"] == "RuntimeError: no tuning file"


def test_sitecustomize_that_python_passes_over_in_silence(tmp_path):
    env = customize(tmp_path / "site", "raise ImportError(name='sitecustomize')\n")
    site = ask(env=env).facts["sitecustomize"]
    assert (site["loaded"], site["raised"], len(site["candidates"])) == (None, None, 1)


def test_sitecustomize_that_ends_python_is_a_reason(tmp_path):
    env = customize(tmp_path / "site", "raise SystemExit('not on this machine')\n")
    found = ask(env=env)
    assert found.facts == {}
    assert "not on this machine" in found.reason


def test_shadowed_sitecustomize_is_a_candidate_that_lost(tmp_path):
    first = customize(tmp_path / "first", "WHO = 1\n")["PYTHONPATH"]
    second = customize(tmp_path / "second", "WHO = 2\n")["PYTHONPATH"]
    site = ask(env={"PYTHONPATH": f"{first}:{second}"}).facts["sitecustomize"]
    assert site["loaded"] == f"{first}/sitecustomize.py"
    assert [one["path"] for one in site["candidates"]] == [
        f"{first}/sitecustomize.py",
        f"{second}/sitecustomize.py",
    ]
    assert len({one["sha256"] for one in site["candidates"]}) == 2


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_flags_of_the_launch_are_the_flags_of_the_probe(tmp_path, flag):
    env = customize(tmp_path / "site", "import os\nos.environ['SET'] = '1'\n")
    facts = ask(BASE, flag, "-m", "server", env=env).facts
    assert facts["sitecustomize"]["loaded"] is None
    assert "SET" not in facts["environment"]["set"]
    assert facts["sitecustomize"]["switched_off"] == (flag == "-S")
    on_path = str(tmp_path / "site") in facts["sys_path"]
    assert on_path == (flag == "-S")
    assert facts["sitecustomize"]["raised"] is None


def test_a_module_path_holds_nothing_of_the_probe_itself(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("")
    facts = ask(BASE, "-m", "server").facts
    assert "" not in facts["sys_path"] and "/" not in facts["sys_path"]


def test_limits_are_those_of_the_launch():
    limits = ask(nofile=777, memlock=1 << 20).facts["limits"]
    assert limits["nofile"] == {"soft": 777, "hard": 777}
    assert limits["memlock"] == {"soft": 1 << 20, "hard": 1 << 20}


def test_limits_beyond_the_possible_go_as_far_as_they_can():
    facts = ask(nofile=None).facts
    assert facts["limits"]["nofile"]["soft"] <= facts["nr_open"]
    assert facts["limits"]["nofile"]["soft"] >= 1024


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_user_is_that_of_the_launch():
    found = ask(
        shutil.which("python3", path="/usr/bin") or BASE, "-m", "server", user="nobody"
    ).facts["user"]
    assert (found["name"], found["uid"]) == ("nobody", pwd.getpwnam("nobody").pw_uid)


@pytest.mark.parametrize(
    ("argv", "cwd", "user", "said"),
    [
        ((BASE,), "/no/such/folder", "", "/no/such/folder: No such file or directory"),
        (("/no/python", "-m", "x"), "/", "", "/no/python: No such file or directory"),
        ((BASE,), "/", "no-such-user", "there is no user no-such-user here"),
        (("/bin/false",), "/", "", "ended with 1"),
    ],
)
def test_what_cannot_serve_is_a_reason(argv, cwd, user, said):
    found = ask_serving(LocalHost(), LaunchSpec(argv, ENV, cwd, user), Questions())
    assert found.facts == {}
    assert said in found.reason
    assert "Traceback" not in found.reason


def test_a_fact_that_cannot_be_read_is_null_with_a_reason():
    broken = probe.source("serving").replace("/proc/meminfo", "/proc/no-meminfo")
    out = subprocess.run([BASE, "-"], input=broken, capture_output=True, text=True).stdout
    found = read_answer(Done((), 0, out, ""))
    assert found.facts["memory"] is None
    assert "FileNotFoundError" in found.why_unknown("memory")
    assert found.facts["kernel"] is not None


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["py", "-m", "sglang.launch_server", "-x"], ["py"]),
        (["py", "server.py", "-I"], ["py"]),
        (["py", "-I", "server.py"], ["py", "-I"]),
        (
            ["py", "-X", "dev", "-W", "error", "-u", "s.py"],
            ["py", "-X", "dev", "-W", "error", "-u"],
        ),
        (["py", "-Xdev", "-c", "pass", "-E"], ["py", "-Xdev"]),
        (["py", "-s", "-"], ["py", "-s"]),
        (["py", "-mserver"], ["py"]),
        (["py", "-X"], ["py", "-X"]),
    ],
)
def test_options_of_the_interpreter_end_where_the_program_begins(argv, words):
    assert interpreter_words(argv) == words


@pytest.mark.parametrize(
    "out", ["", "{}", '{"probe": "serving"', '{"probe": "serving", "facts": 1}']
)
def test_no_answer_is_a_reason(out):
    found = read_answer(Done((), 3, out, ""))
    assert found.facts == {} and "ended with 3" in found.reason


def test_noise_around_the_answer_does_not_matter():
    answer = json.dumps({"probe": "serving", "facts": {"cwd": "/"}, "reasons": {}})
    assert read_answer(Done((), 0, f"hello\n{answer}\nbye\n", "")).facts == {"cwd": "/"}
