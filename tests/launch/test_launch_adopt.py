"""A launch by hand, read back: everything of it but its secrets and its login session."""

import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.errors import BadInput, NotHere
from runbook.launch.adopt import (
    Seen,
    adopt_launch,
    carry_attributes,
    container_in,
    find_program,
    find_server,
    group_limits,
    refuse_container,
    see,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has these rights")

SECRET = "s3cret-Value-77"
LIMITS = {"Max open files": "4096", "Max locked memory": "unlimited"}


def seen(*words, **more):
    fields = {"environ": {}, "cwd": "/work", "program": "/v/bin/python", "user": "root"}
    return Seen(7, ("python", *words), **{**fields, "limits": LIMITS, **more})


def test_the_whole_launch_comes_back():
    found = adopt_launch(
        seen("-m", "x", "--n", "-1", environ={"NCCL_P2P_LEVEL": "SYS", "TERM": "xterm"}, user="llm")
    )
    assert found.spec.argv == ("/v/bin/python", "-m", "x", "--n", "-1")
    assert found.spec.env == {"NCCL_P2P_LEVEL": "SYS"}
    assert (found.spec.cwd, found.spec.user) == ("/work", "llm")
    assert (found.spec.nofile, found.spec.memlock) == (4096, None)
    assert found.session == ("TERM",)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("words", "environ", "named"),
    [
        (["--api-key", SECRET], {}, ["--api-key"]),
        ([f"--api-key={SECRET}", "--tp", "8"], {}, ["--api-key"]),
        (["--admin-api-key", SECRET], {}, ["--admin-api-key"]),
        (["--ssl-keyfile-password", SECRET], {}, ["--ssl-keyfile-password"]),
        ([], {"HF_TOKEN": SECRET}, ["HF_TOKEN"]),
        ([], {"HTTPS_PROXY": f"http://me:{SECRET}@proxy:1"}, ["HTTPS_PROXY"]),
        ([], {"ANY": "hf_abcdefgh12"}, ["ANY"]),
        (["--api-key", SECRET, "--note", f"x{SECRET}"], {}, ["--api-key", "--note"]),
        ([], {"API_KEY": SECRET, "HARMLESS": f"a{SECRET}b"}, ["API_KEY", "HARMLESS"]),
        (["--api-key", SECRET, SECRET], {}, ["--api-key", "an argument"]),
    ],
)
def test_secrets_are_named_and_never_kept(words, environ, named):
    found = adopt_launch(seen("-m", "x", *words, environ=environ))
    assert list(found.secrets) == named
    assert SECRET not in repr(found)
    assert "hf_abc" not in repr(found)


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (["--skip-tokenizer-init", "--max-total-tokens", "9"], {}),
        (["--tokenizer-path", "/t"], {"TOKENIZERS_PARALLELISM": "false"}),
        (["--api-key-credential", "api-key"], {"KEY_OF_MAP": "x", "NO_PROXY": "http://a:80"}),
    ],
)
def test_what_only_sounds_like_a_secret_is_kept(words, environ):
    found = adopt_launch(seen(*words, environ=environ))
    assert found.secrets == ()
    assert found.spec.argv[1:] == tuple(words)
    assert found.spec.env == environ


def test_what_cannot_be_read_or_carried_is_noted():
    found = adopt_launch(seen("-m", "x", environ=None, cwd=None, limits={}))
    assert len(found.notes) == 4
    assert "environment cannot be read" in " ".join(found.notes)
    found = adopt_launch(seen(environ={"A": "1\n2", "BASH_FUNC_x%%": "()"}))
    assert found.spec.env == {}
    assert len(found.notes) == 2


@pytest.mark.parametrize("argv", [None, ("python", "\udcff")])
def test_a_command_line_that_is_overwritten_or_no_text_is_refused(argv):
    with pytest.raises(BadInput):
        adopt_launch(Seen(7, argv, {}, "/", "/p", "root", LIMITS))


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@given(st.lists(words), st.dictionaries(words, words))
def test_any_words_and_variables_are_taken_or_named(argv, environ):
    found = adopt_launch(seen(*argv, "--api-key", SECRET, environ=environ))
    assert SECRET not in repr(found)
    assert "--api-key" in found.secrets
    plain = [name for name in environ if name in found.spec.env]
    assert all(found.spec.env[name] == environ[name] for name in plain)


def test_the_program_is_the_one_that_was_called_not_the_one_behind_the_link(tmp_path):
    link = tmp_path / "bin" / "python"
    link.parent.mkdir()
    real = find_program((sys.executable,), {}, "/", sys.executable)[0]
    link.symlink_to("/usr/bin/env")
    env = str(link.resolve())
    assert find_program(("python",), {"PATH": f"/x:{link.parent}"}, "/", env) == (str(link), ())
    assert find_program(("bin/python",), {}, str(tmp_path), env) == (str(link), ())
    program, notes = find_program(("gone",), {"PATH": "/usr/bin"}, "/", env)
    assert (program, len(notes)) == (env, 1)
    assert real == sys.executable
    with pytest.raises(NotHere):
        find_program(("x",), {}, "/", None)


@pytest.fixture
def wrapped():
    """A shell that waits for a Python below it, as a start script does."""
    script = f"cd /usr; X=1 {sys.executable} -c 'import time; print(flush=1); time.sleep(60)' me; :"
    shell = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, env={"PATH": "/bin"})
    shell.stdout.readline()
    yield shell.pid
    child = find_server(shell.pid, lambda argv: "me" in argv)
    for pid in (child.pid, shell.pid):
        subprocess.run(["kill", "-9", str(pid)], check=False)
    shell.wait()


def test_the_server_below_a_wrapper_is_found_with_its_own_environment(wrapped):
    found = find_server(wrapped, lambda argv: "me" in argv)
    assert found.pid != wrapped
    assert found.argv[-1] == "me"
    assert found.environ["X"] == "1"
    assert found.cwd == "/usr"
    assert found.program == sys.executable
    with pytest.raises(BadInput, match="no server that the runbook knows"):
        find_server(wrapped, lambda argv: False)


def test_a_program_and_a_folder_that_are_gone_since_are_said(tmp_path):
    program, folder = tmp_path / "sleep", tmp_path / "work"
    shutil.copy("/bin/sleep", program)
    folder.mkdir()
    process = subprocess.Popen([program, "60"], cwd=folder)
    folder.rmdir()
    program.unlink()
    try:
        found = see(process.pid)
    finally:
        process.kill()
        process.wait()
    assert (found.program, found.cwd) == (str(program), str(folder))
    said = " ".join(found.notes)
    assert f"its working directory {folder} was removed since" in said
    assert f"its program {program} was replaced since" in said


def test_a_process_that_is_gone():
    with pytest.raises(NotHere, match="no process"):
        see(2**22 - 1)


PLAIN = {
    **{"cpus": "0-127", "mems": "0-1", "umask": "0000", "nice": 0, "cpu_policy": "other"},
    **{"numa_policy": "default", "numa_nodes": "", "io_class": "none", "io_priority": None},
    **{"oom_score_adjust": 0, "cpu_priority": None, "limits": {}},
}
BY_HAND = {**PLAIN, "umask": "0022"}


@pytest.mark.parametrize(
    ("changed", "carried"),
    [
        ({}, {}),
        ({"cpus": "64-127"}, {"cpus": "64-127"}),
        ({"cpus": "0-63,64-127"}, {}),  # the same ones, written otherwise
        ({"nice": -5}, {"nice": -5}),
        ({"cpu_policy": "batch"}, {"cpu_policy": "batch"}),
        ({"cpu_policy": "rr", "cpu_priority": 9}, {"cpu_policy": "rr", "cpu_priority": 9}),
        ({"io_class": "idle"}, {"io_class": "idle"}),
        ({"io_class": "best-effort", "io_priority": 1}, {"io_class": "best-effort"}),
        ({"io_class": "best-effort", "io_priority": 4}, {}),  # what nice 0 makes of none
        ({"oom_score_adjust": 300}, {"oom_score_adjust": 300}),
        ({"umask": "0002"}, {"umask": "0002"}),
        ({"numa_policy": "bind", "numa_nodes": "1"}, {"numa_policy": "bind", "numa_nodes": "1"}),
        ({"numa_policy": "local"}, {"numa_policy": "local"}),
        ({"mems": "1"}, {"numa_policy": "bind", "numa_nodes": "1"}),
    ],
)
def test_what_is_not_as_in_any_service_is_carried(changed, carried):
    found, notes = carry_attributes({**BY_HAND, **changed}, PLAIN)
    assert found.items() >= carried.items()
    assert set(found) - set(carried) <= {"io_priority"}
    assert len(notes) == ("mems" in changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cpu_policy": "number 6"}, "scheduling policy (number 6)"),
        ({"numa_policy": "weighted"}, "memory policy (weighted)"),
        ({"numa_policy": "preferred", "numa_nodes": ""}, "memory policy (preferred)"),
        ({"numa_policy": None}, "numactl"),
        ({"nice": None, "io_class": None}, "could not be seen, and is as in any service: nice"),
    ],
)
def test_what_no_unit_can_carry_or_nobody_sees_is_said(changed, said):
    found, notes = carry_attributes({**BY_HAND, **changed}, PLAIN)
    assert found == {}
    assert said in " ".join(notes)


def test_on_one_node_there_is_no_memory_policy_to_miss():
    alone = {**PLAIN, "mems": "0"}
    assert carry_attributes({**BY_HAND, "mems": "0", "numa_policy": None}, alone) == ({}, [])


def test_limits_that_are_not_those_of_a_service_are_carried():
    usual = {"Max core file size": "unlimited", "Max stack size": "8388608"}
    usual["Max processes"] = "96365"
    own = {**LIMITS, **usual, "Max core file size": "0", "Max stack size": "unlimited"}
    found = adopt_launch(seen("-m", "x", limits=own, plain={**PLAIN, "limits": usual}))
    assert found.spec.limits == {"core": 0, "stack": None}
    assert (found.spec.nofile, found.spec.memlock) == (4096, None)


@pytest.mark.parametrize(
    ("cgroups", "container"),
    [
        (f"0::/system.slice/docker-{'3f' * 32}.scope", ("docker", "3f" * 32)),
        (f"12:cpuset:/docker/{'ab' * 32}\n0::/", ("docker", "ab" * 32)),
        (f"0::/machine.slice/libpod-{'0c' * 32}.scope/container", ("podman", "0c" * 32)),
        (
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a_2b.slice/"
            f"cri-containerd-{'9d' * 32}.scope",
            ("kubernetes", "9d" * 32),
        ),
        (f"11:cpu:/kubepods/besteffort/pod7-8/{'e1' * 32}", ("kubernetes", "e1" * 32)),
        ("0::/lxc.payload.llm/system.slice/x.service", ("lxc", "llm")),
        ("0::/machine.slice/systemd-nspawn@gpu.service/payload", ("systemd-nspawn", "gpu")),
        (f"0::/default/{'5a' * 32}", ("containerd", "5a" * 32)),
        ("0::/system.slice/docker.service", None),
        ("0::/system.slice/sglang-kimi.service", None),
        ("0::/user.slice/user-0.slice/session-3.scope", None),
        ("", None),
    ],
)
def test_a_container_is_known_by_its_control_group(cgroups, container):
    assert container_in(cgroups) == container


@pytest.mark.parametrize(
    ("apart", "cgroups", "same", "said"),
    [
        (
            ["mnt", "pid", "net"],
            f"0::/system.slice/docker-{'3f' * 32}.scope",
            True,
            "docker inspect",
        ),
        (["mnt", "root"], f"0::/machine.slice/libpod-{'0c' * 32}.scope", None, "podman inspect"),
        (["pid"], "0::/lxc.payload.llm", True, "lxc exec llm"),
        (["mnt"], "0::/user.slice", False, "nsenter --target 7 --all"),
        (["user", "mnt"], "", True, "nsenter --target 7 --all"),
        (["net"], "0::/system.slice/x.service", True, "apart in net"),
    ],
)
def test_a_process_of_a_container_is_refused_with_the_next_step(apart, cgroups, same, said):
    with pytest.raises(BadInput) as refused:
        refuse_container(7, apart, cgroups, same)
    assert said in f"{refused.value.found} {refused.value.do}"


def test_a_unit_with_mounts_of_its_own_is_no_container():
    refuse_container(7, ["mnt", "ipc", "cgroup"], "0::/system.slice/x.service", True)
    refuse_container(7, ["mnt"], "0::/system.slice/x.service", None)
    refuse_container(7, [], f"0::/docker/{'ab' * 32}", True)  # this runs in it too


@needs_root
@pytest.mark.parametrize("words", [["--mount", "--pid", "--fork"], ["--net"], ["--user"]])
def test_a_real_process_in_namespaces_of_its_own_is_refused(words):
    argv = ["unshare", *words, "--kill-child", sys.executable, "-c"]
    argv = [one for one in argv if "--fork" in words or one != "--kill-child"]
    program = "import time; print(flush=1); time.sleep(60)"
    with subprocess.Popen([*argv, program, "me"], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            with pytest.raises(BadInput, match="namespaces of its own"):
                find_server(process.pid, lambda argv: "me" in argv and "unshare" not in argv)
        finally:
            process.kill()


@needs_root
def test_the_binding_of_a_real_process_is_carried():
    cpu = str(max(os.sched_getaffinity(0)))
    argv = ["taskset", "-c", cpu, "nice", "-n", "5", "chrt", "--idle", "0", "ionice", "-c", "3"]
    program = "import time; print(flush=1); time.sleep(60)"
    words = ["prlimit", "--core=4096", sys.executable, "-c", program]
    with subprocess.Popen([*argv, *words], stdout=subprocess.PIPE, umask=0o027) as process:
        process.stdout.readline()
        try:
            spec = adopt_launch(see(process.pid)).spec
        finally:
            process.kill()
    assert spec.process == {
        **{
            "cpus": cpu,
            "nice": min(19, os.nice(0) + 5),
            "cpu_policy": "idle",
            "io_class": "idle",
            "umask": "0027",
        },
    }
    assert spec.limits["core"] == 4096


@pytest.mark.parametrize("client", ["docker", "/usr/bin/podman", "kubectl"])
def test_a_client_of_a_container_is_told_apart_from_a_server(client, tmp_path):
    program = tmp_path / client.rpartition("/")[2]
    program.write_text("#!/bin/sh\necho\nread end\n")
    program.chmod(0o755)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([program, "run", "sglang"], **pipes) as process:
        process.stdout.readline()
        with pytest.raises(BadInput, match="only talks to a container"):
            find_server(process.pid, lambda argv: False)
        process.communicate(b"\n")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"cpu.max": "max 100000\n", "memory.max": "max\n", "cpu.weight": "100\n"}, []),
        ({"cpu.max": "200000 100000\n"}, ["cpu.max 200000 100000"]),
        ({"memory.high": "64424509440\n", "memory.max": "max\n"}, ["memory.high 64424509440"]),
        ({"io.max": "259:0 rbps=1048576\n", "cpu.weight": "20\n"}, None),
        ({}, []),
    ],
)
def test_what_a_control_group_limits_is_said(tmp_path, files, said):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    wanted = ["cpu.weight 20", "io.max 259:0 rbps=1048576"] if said is None else said
    assert sorted(group_limits(tmp_path)) == wanted
