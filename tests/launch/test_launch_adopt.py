"""A launch by hand, read back: everything of it but its secrets and its login session."""

import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.errors import BadInput, NotHere
from runbook.launch.adopt import Seen, adopt_launch, find_program, find_server, see

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
