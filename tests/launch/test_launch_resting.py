"""What serves on a host rests while something is measured there, and comes back whatever happens.

The runner lives inside a box, so that the box's systemd is that of its own machine.
"""

import os
import signal
import sys
import urllib.request
from pathlib import Path

import pytest
from boxes import is_alive, wait_until
from server_lives import free_port

from runbook.errors import NotProved
from runbook.launch import systemd
from runbook.launch.resting import RECORD, Seen, resting, see

TESTS = Path(__file__).parents[1]
SERVER = TESTS / "service" / "standin_server.py"
OLD = "old.service"

RUNNER = """
import sys, time
from runbook.hosts import LocalHost
from runbook.launch.resting import resting
with resting(LocalHost(), ["old.service", "absent.service"], print):
    print("it rests", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def old(box):
    """A service that somebody else runs; its port."""
    port = free_port()
    unit = (
        f"[Service]\nExecStart={sys.executable} {SERVER} {port}\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    box.write(f"/etc/systemd/system/{OLD}", unit)
    systemd.daemon_reload(box)
    systemd.start(box, OLD, 10)
    wait_until(lambda: see(box, OLD).ports == (port,), 10)
    yield port
    box.run("systemctl", "disable", "--now", OLD, check=False)
    box.remove(f"/etc/systemd/system/{OLD}")
    box.remove(RECORD)
    systemd.daemon_reload(box)


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_it_rests_and_answers_again_also_after_an_error(box, old):
    said = []
    with pytest.raises(ZeroDivisionError), resting(box, [OLD], said.append) as units:
        assert [one.unit for one in units] == [OLD]
        assert not answers(old)
        assert box.exists(RECORD)
        raise ZeroDivisionError
    assert answers(old)
    assert not box.exists(RECORD)
    assert "stopped" in said[0]
    assert "brought back and answers" in said[1]


CHANCE = """
import http.server, socket, sys
chance = socket.socket()
chance.bind(("127.0.0.1", 0))
chance.listen()
print("by chance:", chance.getsockname()[1], flush=True)
handler = http.server.SimpleHTTPRequestHandler
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()
"""


def test_a_port_that_a_server_has_by_chance_is_not_waited_for(box):
    """Workers meet at another port in each life; only the one that was asked for must be back."""
    port = free_port()
    box.write("/run/chance.py", CHANCE)
    unit = f"[Service]\nExecStart={sys.executable} /run/chance.py {port}\n"
    box.write("/run/systemd/system/chance.service", unit)
    systemd.daemon_reload(box)
    systemd.start(box, "chance.service", 10)
    wait_until(lambda: see(box, "chance.service").answers, 10)
    with resting(box, ["chance.service"], print) as units:
        assert units[0].ports == (port,)
    lives = [line for line in box.journal("chance.service").splitlines() if "by chance:" in line]
    assert lives[0].split()[-1] != lives[1].split()[-1]
    two = Seen("x.service", True, True, (30000, 30541))
    assert two.serves_again(Seen("x.service", True, True, (30000, 30977)))
    assert not two.serves_again(Seen("x.service", True, True, (30977,)))
    assert not units[0].serves_again(Seen("chance.service", True, False, (port,)))
    box.run("systemctl", "stop", "chance.service")


def test_what_does_not_run_is_left_alone(box, old):
    systemd.stop(box, OLD, 10)
    with resting(box, [OLD, "absent.service"], print) as units:
        assert units == ()
    assert see(box, OLD).active is False


def test_one_that_does_not_come_back_is_said_plainly_and_holds_up_no_other(box, old):
    other = "other@1.service"
    box.write("/etc/systemd/system/other@.service", "[Service]\nExecStart=/bin/sleep 600\n")
    systemd.start(box, other, 10)
    with pytest.raises(NotProved, match="does NOT serve again"), resting(box, [OLD, other], print):
        assert not see(box, other).active
        box.write(f"/etc/systemd/system/{OLD}", "[Service]\nType=oneshot\nExecStart=/bin/false\n")
        systemd.daemon_reload(box)
    assert see(box, other).active
    systemd.stop(box, other, 10)
    box.remove("/etc/systemd/system/other@.service")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (((8000,), True), ((8000,), True), "brought back and answers"),
        (((8000, 9000), False), ((8000, 9000), False), "listens at 8000, 9000; whether it answers"),
        (((8000, 9000), False), ((8000, 41234), False), "brought back and listens at 8000;"),
        (((8000,), False), ((8000,), True), "whether it answers was not asked"),
        (((), False), ((), False), "started again; whether it serves is not known"),
        (((), False), ((8000,), True), "started again (it listens at 8000 now); whether it serves"),
    ],
)
def test_no_more_is_said_than_was_seen_before(before, now, said):
    found = Seen("x.service", True, True, *before)
    after = Seen("x.service", True, True, *now)
    assert found.serves_again(after)
    assert said in found.how_it_is_back(after)
    assert ("and answers" in found.how_it_is_back(after)) == found.answers


DETACHED = {
    "nothing to see": ("simple", "/bin/sleep 600", "nothing of it was seen to listen"),
    "a server of its own group": (
        "oneshot",
        f"/bin/sh -c '{sys.executable} {SERVER} PORT >/dev/null 2>&1 </dev/null &'",
        "brought back and answers",
    ),
    "a server elsewhere": (
        "oneshot",
        f"-/usr/bin/systemd-run --unit=elsewhere {sys.executable} {SERVER} PORT",
        "nothing of it was seen to listen",
    ),
}


@pytest.mark.parametrize(("kind", "command", "said"), DETACHED.values(), ids=DETACHED)
def test_of_a_unit_that_starts_a_server_and_ends_no_more_is_said(box, kind, command, said):
    port, name = free_port(), "detached.service"
    text = f"[Service]\nType={kind}\nRemainAfterExit=yes\nExecStart={command}\n"
    box.write(f"/run/systemd/system/{name}", text.replace("PORT", str(port)))
    systemd.daemon_reload(box)
    systemd.start(box, name, 10)
    if "SERVER" in command or str(SERVER) in command:
        wait_until(lambda: answers(port), 10)
    told = []
    try:
        with resting(box, [name], told.append):
            assert not see(box, name).active
    finally:
        box.run("systemctl", "stop", name, "elsewhere.service", check=False)
        box.remove(f"/run/systemd/system/{name}")
    assert said in told[-1]


def start_runner(box):
    box.run("systemctl", "reset-failed", "runner.service", check=False)
    code = [sys.executable, "-u", "-c", RUNNER]
    options = ["--property=KillMode=process", "--collect", f"--setenv=PYTHONPATH={TESTS.parent}"]
    before = box.journal("runner.service").count(": it rests\n")
    box.run("systemd-run", "--unit=runner", *options, *code)
    wait_until(
        lambda: box.journal("runner.service").count(": it rests\n") > before,
        20,
        lambda: box.journal("runner.service"),
    )
    return box.host_pid(int(systemd.show(box, "runner.service", "MainPID")["MainPID"]))


def test_after_kill_9_of_the_runner_a_watch_brings_it_back(box, old):
    runner = start_runner(box)
    assert not answers(old)
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: answers(old), 10)
    wait_until(lambda: not box.exists(RECORD), 5)
    assert box.run("systemctl", "list-units", "--no-legend", "runbook-watch*").out == ""


def test_after_kill_9_of_both_the_next_start_brings_it_back(box, old):
    runner = start_runner(box)
    box.run("systemctl", "kill", "--signal=KILL", "runbook-watch-resting.service")
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: not is_alive(runner), 5)
    assert not answers(old)
    with resting(box, [OLD], print) as units:
        assert [one.unit for one in units] == [OLD]
    assert answers(old)
