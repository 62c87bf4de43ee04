import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from boxes import Traces, is_alive, need_box, wait_until

from runbook import params
from runbook.errors import BadInput, HostFailed, NotHere, RunBusy
from runbook.hosts import Box, open_host

UNIT = """[Service]
ExecStart=/bin/sh -c 'echo started with {word}; exec sleep 1000'
[Install]
WantedBy=multi-user.target
"""
UNITS = Path("/etc/systemd/system")


def state_of(box, unit):
    return box.run("systemctl", "is-active", unit, check=False).out.strip()


def test_systemd_is_pid_1_and_nothing_of_this_machine_is_enabled(box):
    assert box.why_no_systemd() is None
    assert box.run("cat", "/proc/1/comm").out == "systemd\n"
    assert box.list(UNITS) == []
    assert box.run("systemctl", "--failed", "--no-legend").out == ""
    machine_id = Path("/etc/machine-id")
    assert not machine_id.exists() or box.read(machine_id) != machine_id.read_bytes()


def test_a_unit_survives_reboot_and_power_cut_with_its_journal(box):
    box.write(UNITS / "lasting.service", UNIT.format(word="persistence"))
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "enable", "--now", "lasting.service")
    boots = [box.boot_id()]
    for again in (box.reboot, box.cut):
        again()
        boots.append(box.boot_id())
        assert state_of(box, "lasting.service") == "active"
    assert len(set(boots)) == 3
    assert len(box.run("journalctl", "--list-boots", "--no-pager", "--quiet").out.splitlines()) >= 3
    assert box.journal("lasting.service").count("started with persistence") == 3


def test_a_command_that_hangs_is_ended(box):
    with pytest.raises(HostFailed, match="had not ended"):
        box.run("sh", "-c", "sleep 777 & sleep 777", timeout_s=0.5)
    assert box.run("pgrep", "-x", "sleep", "-a", check=False).out.count("777") == 0


def test_its_process_is_found_here_and_answers_at_loopback(box):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    box.run("systemd-run", "--unit=web", *serve)
    inside = int(box.run("systemctl", "show", "-P", "MainPID", "web").out)
    outside = box.host_pid(inside)
    assert outside != inside
    assert str(port) in Path(f"/proc/{outside}/cmdline").read_text()
    for _ in range(100):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                break
        box.run("sleep", "0.05")
    else:
        pytest.fail("nothing listens")
    box.run("systemctl", "stop", "web")
    assert box.host_pid(inside) is None


def test_the_machine_is_left_as_it_is(box):
    before = sorted(UNITS.iterdir())
    box.write("/etc/box-was-here", "x")
    box.remove("/etc/hostname")
    assert not Path("/etc/box-was-here").exists()
    assert Path("/etc/hostname").exists()
    assert sorted(UNITS.iterdir()) == before


@pytest.mark.parametrize("name", ["a b:c,d", "q'u\"o\\te\nünïcode"])
def test_any_path_will_do_for_its_files_and_for_what_it_sees(tmp_path, name):
    need_box(tmp_path)
    project = tmp_path / f"project {name}"
    project.mkdir()
    (project / "file").write_text("seen")
    with Box(tmp_path / name, [project, project / "file"]) as box:
        assert box.read(project / "file") == b"seen"
        with pytest.raises(HostFailed, match="Read-only file system"):
            box.write(project / "file", "changed")
        box.write("/root/kept", name)
    with Box(tmp_path / name) as box:
        assert box.read("/root/kept") == name.encode()
        assert not box.exists(project)


def test_a_bind_through_a_link_is_seen_by_both_names(tmp_path):
    need_box(tmp_path)
    for folder in ("real", "project"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text(folder)
    links = [tmp_path / "link", tmp_path / "project/inner"]
    for link in links:
        link.symlink_to(tmp_path / "real")
    with Box(tmp_path / "box", [*links, tmp_path / "project"]) as box:
        for folder in (*links, tmp_path / "real"):
            assert box.read(folder / "file") == b"real"
        assert box.read(tmp_path / "project/file") == b"project"


def test_a_bind_that_holds_the_boxs_own_folders_does_not_hide_them(tmp_path):
    need_box(tmp_path)
    with Box(tmp_path / "box", [Path("/"), Path("/usr"), Path("/etc")]) as box:
        assert box.list(UNITS) == []
        box.write(UNITS / "own.service", "x")
    assert not (UNITS / "own.service").exists()


def test_a_bind_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        Box(tmp_path / "box", [tmp_path / "absent"])


def test_two_at_once_do_not_see_each_other(box, tmp_path):
    with Box(tmp_path / "other") as other:
        other.run("systemd-run", "--unit=same", "sleep", "1000")
        box.run("systemd-run", "--unit=same", "sleep", "1000")
        other.run("systemctl", "stop", "same")
        assert state_of(box, "same") == "active"
        traces = Traces.of(other)
    traces.wait_gone()
    assert state_of(box, "same") == "active"


def test_a_second_opener_is_refused_and_told_who_holds_it(box):
    with pytest.raises(RunBusy, match=f"process {os.getpid()} "):
        Box(box.state).open()
    assert box.run("true").code == 0


def test_the_journal_can_be_read_after_the_end(tmp_path):
    need_box(tmp_path)
    with Box(tmp_path / "box") as box:
        box.run("systemd-run", "--unit=said", "--wait", "echo", "last words")
    assert "last words" in box.journal("said.service")
    assert box.why_no_systemd() == "the box is not booted"
    with pytest.raises(HostFailed, match="not booted"):
        box.run("true")


def test_a_box_that_is_left_because_of_an_error_is_gone_too(tmp_path):
    need_box(tmp_path)
    with pytest.raises(ZeroDivisionError), Box(tmp_path / "box") as box:
        traces = Traces.of(box)
        raise ZeroDivisionError
    assert not traces.left()


def test_a_box_is_opened_from_parameters(tmp_path):
    need_box(tmp_path)
    with open_host(params.Host(kind="box"), tmp_path / "box") as host:
        assert host.kind == "box"
        assert host.run("systemctl", "is-system-running", check=False).out in (
            "running\n",
            "degraded\n",
        )


def test_a_box_that_went_down_by_itself_is_said_to_and_boots_again(tmp_path):
    need_box(tmp_path)
    with Box(tmp_path / "box") as box:
        first = box.boot_id()
        box.run("systemctl", "--no-block", "poweroff")
        with pytest.raises(HostFailed, match=r"ended with|went down by itself"):
            box.run("sleep", "50")
        # Commands that enter while systemd ends its last processes would make it wait for them.
        wait_until(lambda: not is_alive(box._init), 30)
        with pytest.raises(HostFailed, match=r"went down by itself"):
            box.run("true")
        box.open()
        assert box.boot_id() != first
        threading.Timer(0.3, os.kill, (box._owned.pid, signal.SIGKILL)).start()
        with pytest.raises(HostFailed, match=r"went down by itself: .* that owns it") as error:
            box.run("sleep", "50")
        assert "run the command again" in error.value.do


def break_systemd(state):
    """The box's own systemd says two words and ends."""
    program = state / "upper/usr/lib/systemd/systemd"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\necho first words\necho no way\nexit 3\n")
    program.chmod(0o755)


def test_a_box_that_never_came_up_is_not_to_be_had_here(tmp_path):
    need_box(tmp_path)
    break_systemd(tmp_path / "box")
    for _ in range(2):
        with pytest.raises(NotHere, match=r"did not boot .*: no way\n") as error:
            Box(tmp_path / "box").open()
        assert "first words\nno way" in error.value.do
        assert "\n" not in error.value.found


def test_a_box_that_came_up_before_and_does_not_now_has_failed(tmp_path):
    need_box(tmp_path)
    with Box(tmp_path / "box"):
        pass
    break_systemd(tmp_path / "box")
    with pytest.raises(HostFailed, match="did not boot"):
        Box(tmp_path / "box").open()


def test_a_unit_that_takes_long_to_start_does_not_hold_up_the_boot(tmp_path):
    need_box(tmp_path)
    with Box(tmp_path / "box") as box:
        text = "[Service]\nType=oneshot\nTimeoutStartSec=600\nExecStart=sleep 500\n"
        box.write(UNITS / "slow.service", text + "[Install]\nWantedBy=multi-user.target\n")
        box.run("systemctl", "enable", "slow.service")
        box.reboot(settle_s=0.5)
        assert state_of(box, "slow.service") == "activating"


def test_a_project_in_tmp_with_an_interpreter_of_its_own_is_seen(tmp_path):
    need_box(tmp_path)
    project = tmp_path / "a b:c"
    subprocess.run(
        [Path(sys.prefix, "bin/uv"), "venv", "-q", "--python", sys.executable, project / ".venv"],
        check=True,
    )
    code = (
        "import sys; from pathlib import Path; from runbook.hosts import Box\n"
        "with Box(Path(sys.argv[1]), [Path(sys.argv[2])]) as box:\n"
        "    print(box.run(box.python, '-c', 'import sys; print(sys.prefix)').out)\n"
    )
    done = subprocess.run(
        [project / ".venv/bin/python", "-c", code, project / "run/box", project],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(project / ".venv"), done.stderr
