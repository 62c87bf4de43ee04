"""What is written into a unit arrives in the process, byte for byte, through a real systemd."""

import random

import pytest

from runbook.launch.lint import lint
from runbook.launch.spec import MANAGER_SETS, LaunchSpec
from runbook.launch.unit import UnitSettings, render_unit

DUMP = """
import sys
out = open(sys.argv[1], "wb")
out.write(open("/proc/self/cmdline", "rb").read() + b"\\0\\0")
out.write(open("/proc/self/environ", "rb").read())
"""
NASTY = [
    "", " ", "  two  ", "trailing ", "\ttab\t", "'", '"', "''", '""', "'\"'", "\\", "\\\\", "a\\",
    "\\n", "\\x41", "\\s", "$", "$$", "$$$", "$HOME", "${HOME}", "a$", "$1", "$ {x}", "%", "%%",
    "%H", "%n", "100%", "%%H", ";", "a;b", " ; ", "\\;", "#", "# c", "-", "--", "-x", "@x", "+x",
    "!x", ":x", "!!", "|", "&", "`id`", "$(id)", "*", "?", "[a]", "~", "~root", "{a,b}", "=", "a=b",
    "=a", '{"a": "b", "c": [1, "d e"]}', "[Service]", "é", "日本語", "🙂", "\u2028", "\xa0",
    "\u200b",
    "\ufeff", "\x01", "\x1b[31m", "\x7f", "\x85", "line\nbreak", "\n", "\r\n", "\r", "export A=1",
    "a b\\ c", "'a' \"b\"", "\\u0041", "\\101", "x" * 4000, "/a//b/./c/", "a,b", "<a>", "^",
    "é ñ'\"",
]  # fmt: skip


def random_texts(count):
    dice = random.Random(20261130)
    alphabet = " '\"\\$%;#=-@+!:{}[]()|&~`*?<>^,./\t\n\raZ09éß日🙂\x01\x7f"
    return ["".join(dice.choices(alphabet, k=dice.randint(1, 24))) for _ in range(count)]


VALUES = NASTY + random_texts(180)


def started(box, name, spec):
    unit = render_unit(spec, UnitSettings("dump", 20, 5))
    box.write(f"/etc/systemd/system/{name}", unit.replace("Type=exec", "Type=oneshot"))
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", name)
    arguments, _, environ = box.read(spec.argv[2]).partition(b"\0\0\0")
    variables = dict(word.split(b"=", 1) for word in environ.rstrip(b"\0").split(b"\0"))
    return arguments.split(b"\0"), {k.decode(): v.decode() for k, v in variables.items()}


def test_two_hundred_nasty_values_arrive_as_they_were(box):
    assert len(VALUES) >= 200
    box.write("/opt/dump.py", DUMP)
    spec = LaunchSpec(
        (box.python, "/opt/dump.py", "/opt/dumped", *VALUES, "end"),
        {f"V{n}": value for n, value in enumerate(VALUES)},
        "/opt",
    )
    arguments, variables = started(box, "dump.service", spec)
    assert [word.decode() for word in arguments] == list(spec.argv)
    assert {k: v for k, v in variables.items() if k not in MANAGER_SETS} == dict(spec.env)


def test_a_program_whose_path_systemd_would_alter_arrives_too(box):
    box.write("/opt/dump.py", DUMP)
    box.make_dir("/opt/o $dd 100%")
    box.run("ln", "-sf", box.python, "/opt/o $dd 100%/python3")
    spec = LaunchSpec(
        ("/opt//o $dd 100%/./python3", "/opt/dump.py", "/opt/dumped"), {"A": "1"}, "/opt/o $dd 100%"
    )
    arguments, _ = started(box, "odd.service", spec)
    assert arguments[0].decode() == spec.interpreter


def test_a_user_gets_no_variable_that_the_spec_does_not_name(box):
    box.write("/opt/dump.py", DUMP)
    box.run("install", "-d", "-o", "daemon", "/opt/daemon")
    spec = LaunchSpec(
        ("/usr/bin/python3", "/opt/dump.py", "/opt/daemon/dumped"), {"A": "1"}, "/", "daemon"
    )
    _, variables = started(box, "user.service", spec)
    assert set(variables) - MANAGER_SETS == {"A"}


def named(checks):
    return {check.name: check for check in checks}


def test_a_rendered_unit_passes_where_it_will_run(box):
    spec = LaunchSpec((box.python, "-V"), {"PATH": "/usr/bin"}, "/", "daemon")
    unit = render_unit(spec, UnitSettings("d", 9, 9, restart_s=1, wanted_by="multi-user.target"))
    checks = lint(unit, box)
    assert [c for c in checks if c.status != "pass"] == []
    assert float(named(checks)["unit: exposure"].found) <= 7.0


@pytest.mark.parametrize(
    ("lines", "rule", "word"),
    [
        ("LimitMEMLOK=1", "unit: verify", "LimitMEMLOK"),
        ("Restart=allways", "unit: verify", "allways"),
        ("TimeoutStartSec=20 minutez", "unit: verify", "minutez"),
        ("StartLimitIntervalSec=3", "unit: verify", "StartLimitIntervalSec"),
        ("ExecStartPre=/absent/program", "unit: verify", "/absent/program"),
        ("User=nobody-here", "unit: user", "no user nobody-here"),
        ("WorkingDirectory=/absent", "unit: directory", "/absent"),
        ("EnvironmentFile=/absent", "unit: files", "/absent"),
        ("LoadCredential=k:/absent", "unit: files", "/absent"),
    ],
)
def test_what_systemd_only_mutters_or_does_not_notice_fails(box, lines, rule, word):
    text = f"[Unit]\nDescription=d\n[Service]\nExecStart=/bin/true\n{lines}\n"
    check = named(lint(text, box))[rule]
    assert check.status == "fail"
    assert word in check.found


@pytest.mark.parametrize(("mode", "status"), [(0o600, "pass"), (0o640, "pass"), (0o644, "warn")])
def test_a_key_that_every_user_can_read_is_pointed_out(box, mode, status):
    box.write("/etc/a key", "k", mode)
    spec = LaunchSpec(("/bin/true",), {}, "/", credentials={"api-key": "/etc/a key"})
    found = named(lint(render_unit(spec, UnitSettings("d", 9, 9)), box))["unit: key file"]
    assert (found.status, found.found) == (status, f"/etc/a key has mode {mode:o}")


def test_a_login_user_whose_shared_memory_logind_removes_is_pointed_out(box):
    box.run("useradd", "--uid", "1234", "logs-in")
    text = render_unit(LaunchSpec(("/bin/true",), {}, "/", "logs-in"), UnitSettings("d", 9, 9))
    [found] = [check for check in lint(text, box, "x.service") if check.name == "unit: user"]
    assert found.status == "warn"
    assert "logs-in is a login user: logind removes its shared memory" in found.found
    assert "RemoveIPC=no" in found.fix
