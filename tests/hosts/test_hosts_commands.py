"""Commands on every kind of host: their words, input, code, environment and end."""

import pytest

from runbook.errors import HostFailed

NASTY = ["a b", "$HOME", "it's", '"x"', "", "-n", "*", "\\", "ü", "a\nb", "%h", "#", ";"]


def test_a_command_gets_its_words_and_its_input(host):
    assert host.run("printf", "<%s>", *NASTY).out == "".join(f"<{word}>" for word in NASTY)
    assert host.run("cat", stdin=b"a\0\xff").out == "a\0\\xff"
    assert host.python.startswith("/")


def test_its_code_and_what_it_said_are_told(host):
    assert host.run("sh", "-c", "exit 7", check=False).code == 7
    assert host.run("no-such-command", check=False).code == 127
    with pytest.raises(HostFailed, match="ended with 3: not today") as error:
        host.run("sh", "-c", "echo not today >&2; exit 3")
    assert f"by hand on the {host.kind} host" in error.value.do


def test_nothing_of_the_callers_environment_comes_along(host, monkeypatch):
    monkeypatch.setenv("LEAK", "1")
    said = host.run("env").out
    assert not {"LEAK", "SSH_CONNECTION", "SUDO_USER"} & set(said.replace("\n", "=").split("="))
    assert "LANG=C.UTF-8" in said


def test_one_that_hangs_is_ended(host):
    with pytest.raises(HostFailed, match=r"had not ended after 0\.5 s"):
        host.run("sleep", "778", timeout_s=0.5)


def test_a_script_that_fails_says_its_reason_alone(host):
    with pytest.raises(HostFailed) as error:
        host.run_script("a look", "import sys; sys.exit(f'{sys.argv[1]}: gone')", "/x")
    assert error.value.found == f"a look on {host.kind}: /x: gone"


def test_whether_systemd_answers_is_asked_for_real(host):
    if host.kind == "local":
        assert "PID 1" in (host.why_no_systemd() or "PID 1")
    else:
        assert host.why_no_systemd() is None
