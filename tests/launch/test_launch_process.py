import os
import pwd
import resource
import signal
import sys
from pathlib import Path

import pytest
from boxes import children_of, is_alive, run_python, wait_for_word, wait_until
from standins import ENV, ask, standin

from runbook.errors import ServerFailed
from runbook.launch.process import ProcessLauncher
from runbook.probe.attributes import read_attributes
from runbook.probe.look import limits

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOBODY = "nobody"


@pytest.fixture
def launcher(tmp_path):
    return ProcessLauncher(tmp_path / "logs")


def test_a_server_gets_exactly_what_its_spec_says(launcher, monkeypatch, tmp_path):
    monkeypatch.setenv("LEAK", "1")
    mask = os.umask(0o077)
    server = launcher.start(standin(cwd=str(tmp_path)), "one", 5, 5)
    os.umask(mask)
    with server:
        facts = ask(server)
        # A Python under the C locale sets LC_CTYPE for itself.
        assert {k: v for k, v in facts["env"].items() if k != "LC_CTYPE"} == ENV
        assert (facts["cwd"], facts["umask"]) == (str(tmp_path), 0o022)
        assert Path(f"/proc/{server.pid}/exe").readlink() == Path(sys.executable).resolve()
        assert Path(f"/proc/{server.pid}/fd/0").readlink() == Path(os.devnull)
        assert server.alive()
    assert not server.alive()
    assert server.exit_code == 0
    assert server.log_tail() == "hello from the server\ngoodbye"


def test_limits_are_clipped_to_what_is_allowed_here_and_the_effective_ones_are_told(launcher):
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    with launcher.start(standin(nofile=300, memlock=None), "limits", 5, 5) as server:
        facts = ask(server)
        assert facts["limits"]["nofile"] == [300, 300]
        assert server.limits["nofile"] == 300
        effective = facts["limits"]["memlock"][0]
        assert server.limits["memlock"] == (None if effective == -1 else effective)
        assert effective in (-1, hard)


def test_what_was_started_in_the_background_ends_with_the_server(launcher):
    with launcher.start(standin("children"), "parent", 5, 5) as server:
        children = ask(server)["children"]
        assert len(children) == 2
        assert all(is_alive(pid) for pid in children)
    assert not any(is_alive(pid) for pid in [server.pid, *children])


def test_a_server_deaf_to_sigterm_is_killed_after_its_time(launcher):
    with launcher.start(standin("deaf", "children"), "deaf", 5, 0.3) as server:
        children = ask(server)["children"]
    assert server.exit_code == -signal.SIGKILL
    assert not any(is_alive(pid) for pid in [server.pid, *children])
    server.stop()


def test_a_server_that_dies_is_noticed_and_its_children_end(launcher):
    server = launcher.start(standin("children", "die"), "dies", 5, 5)
    wait_until(lambda: not server.alive(), 5)
    assert server.exit_code == 1
    assert "dies on purpose" in server.log_tail(1)
    server.stop()


def test_workers_that_died_under_a_living_server_are_told(launcher):
    with launcher.start(standin("orphaned"), "waits", 5, 5) as server:
        said = wait_for_word(server.lost_workers, 20)
        assert "exit 126" in said and f"{server.pid} " in said
        assert server.alive()
    with launcher.start(standin("children"), "parent", 5, 5) as server:
        ask(server)
        assert server.lost_workers() == ""


def test_a_long_log_is_read_as_far_as_its_lines_are_asked_for(launcher):
    with launcher.start(standin(), "long", 5, 5) as server:
        server.log.write_text("".join(f"{number:0200d}\n" for number in range(3000)))
        assert server.log_tail(1) == f"{2999:0200d}"
        assert server.log_tail(2900).splitlines()[0] == f"{100:0200d}"


def test_a_killed_server_tells_its_signal(launcher):
    with launcher.start(standin(), "killed", 5, 5) as server:
        ask(server)
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not server.alive(), 5)
        assert server.exit_code == -signal.SIGKILL


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"argv": ("/absent/python", "x")}, "No such file"),
        ({"cwd": "/absent"}, "No such file"),
        ({"credentials": {"key": "/absent/key"}}, "/absent/key"),
        pytest.param({"user": "no-such-user"}, "no-such-user", marks=needs_root),
    ],
)
def test_what_cannot_be_started_says_why(launcher, fields, said):
    with pytest.raises(ServerFailed, match=said) as caught:
        launcher.start(standin(**fields), "wrong", 5, 5)
    assert caught.value.exit_code == 1


@needs_root
def test_the_programs_of_a_launch_are_written_where_they_are_missing(launcher, tmp_path):
    there, missing = tmp_path / "there.py", tmp_path / "new" / "missing.py"
    there.write_text("as it was")
    spec = standin(files={str(there): "other", str(missing): "text"})
    launcher.start(spec, "files", 10, 5).stop()
    assert (there.read_text(), missing.read_text()) == ("as it was", "text")
    with pytest.raises(ServerFailed, match=r"benchmark\.launch: process"):
        launcher.start(standin(files={f"{there}/x": ""}), "no-files", 10, 5)


def test_another_user_gets_its_rights_and_its_credentials(launcher, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)
    python = "/usr/bin/python3"
    if not Path(python).exists():
        pytest.skip("no interpreter that everyone may execute")
    spec = standin(user=NOBODY, credentials={"key": str(secret)})
    server_file = Path(spec.argv[1])
    code = f"import sys; sys.argv[0] = 'standin'; exec({server_file.read_text()!r})"
    argv = (python, "-c", code, *spec.argv[2:])
    port = spec.argv[2]
    with launcher.start(
        standin(argv=argv, user=NOBODY, credentials=spec.credentials), "user", 5, 5
    ) as server:
        server.spec = standin(argv=("", "", port))
        facts = ask(server)
        assert facts["uid"] == pwd.getpwnam(NOBODY).pw_uid
        key, folder_mode, file_mode, folder = facts["key"]
        assert (key, folder_mode, file_mode) == ("s3cret", 0o700, 0o400)
    assert not Path(folder).exists()


CREATE = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from standins import ask, standin
from runbook.launch.process import ProcessLauncher
server = ProcessLauncher(Path(sys.argv[1])).start(standin("deaf", "children"), "held", 5, 60)
print(server.pid, server._owned.pid, *ask(server)["children"], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("victim", ["creator", "keeper", "worker", "runner"])
def test_nothing_is_left_whoever_is_killed(tmp_path, victim):
    runner = run_python("import time; time.sleep(600)")
    env = {**os.environ, "RUNBOOK_RUNNER_PID": str(runner.pid)}
    folder = str(Path(__file__).parents[1])
    with run_python(CREATE, str(tmp_path), folder, env=env) as creator, runner:
        main, keeper, *children = [int(word) for word in creator.stdout.readline().split()]
        (worker,) = children_of(keeper)
        pids = {"creator": creator.pid, "keeper": keeper, "worker": worker, "runner": runner.pid}
        os.kill(pids[victim], signal.SIGKILL)
        gone = [main, keeper, worker, *children]
        wait_until(lambda: not any(map(is_alive, gone)), 5)
        creator.kill()
        runner.kill()


LAST = str(max(os.sched_getaffinity(0)))
PROCESS = {"cpus": LAST, "nice": 6, "cpu_policy": "batch", "io_class": "idle", "umask": "0077"}


@needs_root
def test_processors_priorities_and_further_limits_are_those_of_the_spec(launcher):
    spec = standin(process=PROCESS, limits={"core": 4096})
    with launcher.start(spec, "bound", 5, 5) as server:
        assert ask(server)["umask"] == 0o077
        found = read_attributes(str(server.pid))
        assert {name: found[name] for name in PROCESS} == PROCESS
        assert limits(Path(f"/proc/{server.pid}/limits"))["Max core file size"] == "4096"
        assert server.limits["core"] == 4096


def test_processors_that_are_not_there_are_named(launcher):
    with pytest.raises(ServerFailed, match="cpus 1023: Invalid argument"):
        launcher.start(standin(process={"cpus": "1023"}), "nowhere", 5, 5)
