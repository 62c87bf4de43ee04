"""What ``make`` brings of the system: the script with stand-ins for apt-get, sudo and id."""

import ast
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from runbook.hosts.box_needs import _PROGRAMS

ROOT = Path(__file__).parents[1]
LIST = ROOT / "requirements-system.txt"


class Row(NamedTuple):
    """A line of the list."""

    package: str
    target: str
    how: str
    programs: list[str]
    why: str


def rows():
    lines = LIST.read_text().splitlines()
    for line in (line for line in lines if line and not line.startswith("#")):
        package, target, how, programs, why = line.split(None, 4)
        yield Row(package, target, how, programs.split(","), why)


def packages(*targets):
    return [row.package for row in rows() if row.target in targets]


# The script ---------------------------------------------------------------------------------

APT = """#!/bin/sh
echo "$(id -u): apt-get $*" >>"$CALLS"
case "$*" in
*--version*) exit 0 ;;
*update*) exit "${UPDATE:-0}" ;;
*download*) for package; do :; done; printf x >"$package"_1_all.deb ;;
*install*) [ "${INSTALL:-0}" = 0 ] || { echo E: no such package; exit 100; }
    for word; do case $word in
        maker | browser) cp "$HERE/dpkg-deb" "$HERE/$word" ;;
        box) cp "$HERE/dpkg-deb" "$HERE/boxer" ;;
        esac; done ;;
esac
"""
#: A deb of nothing but the one program that it is unpacked for.
DPKG_DEB = "#!/bin/sh\nmkdir -p usr/bin && echo x >usr/bin/probe && tar -c usr\n"
APT_CACHE = '#!/bin/sh\n[ -z "${KNOWN-}" ] || echo "  Candidate: 1"\n'
SUDO = '#!/bin/sh\n[ "${NO_PASSWORD-}" ] && [ "$1" = -n ] || exit 1\nshift\nASKED=0 exec "$@"\n'
ID = '#!/bin/sh\necho "${ASKED:-$USER_ID}"\n'
PYTHON = """#!/bin/sh
case "$*" in
*version_info*) exit "${OLD:-0}" ;;
*ensurepip*) exit "${NO_VENV:-0}" ;;
*) echo Python 3.9.2 ;;
esac
"""
#: Programs of Debian's base that the script uses.
BASE = "sh dirname env mktemp rm tail tr cat mkdir cp mv grep tar printf ls touch echo"

OWN_LIST = """
# a comment
maker    setup     install  maker       reads files
box      box  install  boxer       makes boxes
browser  test      install  browser     shows pages
metrics  test      unpack   usr/bin/probe,usr/lib/absent  checks rules
"""
ALL = "maker box browser"


class Machine:
    """A machine with these programs and no others, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.project, self.bin = folder / "project", folder / "bin"
        for made in (self.project / "tools", self.bin):
            made.mkdir(parents=True)
        script = ROOT / "tools" / "system_packages.sh"
        # The real folders of the system hold what the machine of these tests must not have.
        text = script.read_text().replace("PATH=$PATH:/usr/sbin:/sbin\n", "")
        (self.project / "tools" / script.name).write_text(text)
        (self.project / LIST.name).write_text(OWN_LIST)
        for name in BASE.split():
            (self.bin / name).symlink_to(shutil.which(name, path="/usr/bin:/bin"))
        for name, text in {
            "apt-get": APT,
            "apt-cache": APT_CACHE,
            "dpkg-deb": DPKG_DEB,
            "id": ID,
            "sudo": SUDO,
            "python3": PYTHON,
        }.items():
            self.has(name, text)
        self.calls = folder / "calls"

    def has(self, name: str, text: str = "#!/bin/sh\n") -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def lacks(self, name: str) -> None:
        (self.bin / name).unlink()

    def run(self, target: str, user: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        given = {
            "PATH": str(self.bin),
            "CALLS": str(self.calls),
            "HERE": str(self.bin),
            "USER_ID": str(user),
            **env,
        }
        argv = [self.bin / "sh", "tools/system_packages.sh", target]
        return subprocess.run(
            argv, cwd=self.project, env=given, capture_output=True, text=True, check=False
        )

    def asked(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


UPDATE = "apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update"
INSTALL = UPDATE.replace("update", "install -y --no-install-recommends --no-remove ")
LINE = "apt-get update && apt-get install -y --no-install-recommends maker box browser"


def test_root_has_all_brought_and_told(machine):
    done = machine.run("test")
    assert done.returncode == 0, done.stderr
    assert [call for call in machine.asked() if "download" not in call] == [
        f"0: {UPDATE}",
        f"0: {INSTALL}maker box browser",
    ]
    for said in ("installing on this machine", "browser: shows pages", "unpacking into .venv/sys"):
        assert said in done.stdout
    unpacked = machine.project / ".venv/system"
    assert [path.name for path in unpacked.rglob("*") if path.is_file()] == ["probe"]
    again = machine.run("test")
    assert (again.returncode, again.stdout + again.stderr) == (0, "")
    assert len(machine.asked()) == 3


def test_a_user_with_sudo_is_asked_nothing(machine):
    done = machine.run("test", 1000, NO_PASSWORD="1")
    assert done.returncode == 0, done.stderr
    assert f"0: {INSTALL}maker box browser" in machine.asked()
    assert machine.asked()[-1].startswith("1000: ")  # what is unpacked is the user's own


@pytest.mark.parametrize(
    ("sudo", "line"), [(True, f"sudo sh -c '{LINE}'"), (False, f"su -c '{LINE}'")]
)
def test_any_other_user_gets_the_one_line_and_nothing_happens(sudo, line, machine):
    if not sudo:
        machine.lacks("sudo")
    done = machine.run("test", 1000)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"  next: {line}"
    assert done.stderr.startswith("make test: not on this machine:\n  maker: reads files\n")
    assert machine.asked() == [] and not (machine.project / ".venv").exists()


def test_a_rehearsal_goes_on_where_only_a_proof_is_lost(machine):
    machine.has("maker")
    done = machine.run("rehearse", 1000)
    assert done.returncode == 0
    assert "verified statically" in done.stdout and "install -y" in done.stdout
    assert "box: makes boxes" in done.stdout and "browser" not in done.stdout
    assert machine.run("test", 1000).returncode == 2


def test_a_rehearsal_does_not_go_on_without_its_server(machine):
    listed = machine.project / LIST.name
    listed.write_text(listed.read_text() + "lib rehearse install libserver.so.1 serves\n")
    machine.has("maker")
    done = machine.run("rehearse", 1000)
    assert done.returncode == 2 and "lib: serves" in done.stderr
    assert done.stderr.endswith("--no-install-recommends box lib'\n")
    assert machine.run("setup", 1000).returncode == 0


def test_a_rehearsal_brings_no_package_of_the_tests(machine):
    assert machine.run("rehearse").returncode == 0
    assert machine.asked() == [f"0: {UPDATE}", f"0: {INSTALL}maker box"]


def test_setup_installs_nothing(machine):
    done = machine.run("setup")
    assert done.returncode == 2 and machine.asked() == []
    assert (
        "next: apt-get update && apt-get install -y --no-install-recommends maker\n" in done.stderr
    )
    machine.has("maker")
    assert machine.run("setup").returncode == 0


def test_without_a_network_the_lists_that_are_here_serve(machine):
    done = machine.run("test", UPDATE="100")
    assert done.returncode == 0 and "apt-get update failed" in done.stderr


def test_a_failed_installation_ends_with_what_apt_said(machine):
    done = machine.run("test", INSTALL="100")
    assert done.returncode == 2
    assert "E: no such package" in done.stderr and done.stderr.endswith(f"next: {LINE}\n")


def test_what_was_installed_and_is_still_not_there(machine):
    (machine.project / LIST.name).write_text("ghost setup install ghost haunts\n")
    done = machine.run("rehearse")
    assert done.returncode == 2 and "still not found" in done.stderr


@pytest.mark.parametrize("target", ["setup", "rehearse", "test"])
def test_another_distribution_is_told_the_names(target, machine):
    machine.lacks("apt-get")
    done = machine.run(target)
    assert done.returncode == 2 and "this system has no apt-get" in done.stderr
    assert "maker: reads files" in done.stderr


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"OLD": "1"}, "python3 is Python 3.9.2\n  wanted: Python 3.11 or newer\n"),
        ({"NO_VENV": "1"}, "python3 has no venv module"),
        ({"PYTHON": "python3.99"}, "no python3.99 here"),
    ],
)
def test_a_python_that_no_package_mends_ends_it_first(env, said, machine):
    done = machine.run("test", **env)
    assert done.returncode == 2 and said in done.stderr
    assert "next: make PYTHON=/path/to/python3.11 test" in done.stderr
    assert machine.asked() == []


def test_lists_that_are_empty_are_fetched_for_what_is_unpacked(machine):
    for name in ("maker", "boxer", "browser"):
        machine.has(name)
    refused = machine.run("test", 1000)
    assert refused.returncode == 2 and refused.stderr.endswith("sudo sh -c 'apt-get update'\n")
    assert machine.run("test", 1000, KNOWN="1").returncode == 0
    assert [call.split()[-2:] for call in machine.asked()] == [["download", "metrics"]]


# The list -----------------------------------------------------------------------------------


def test_the_readme_has_the_whole_list():
    text = (ROOT / "README.md").read_text()
    line = re.search(r"^    apt-get install (make .*)$", text, re.M)
    assert line and line[1].split() == packages("setup", "rehearse", "box")
    named = re.search(r"`make test` .*?\n\n", text, re.S)
    assert named and set(packages("test")) <= set(re.findall(r"`([\w-]+)`", named[0]))


def test_every_program_of_a_box_comes_with_its_package():
    brought = {program: row.package for row in rows() for program in row.programs}
    assert {name: brought[name] for name in _PROGRAMS} == dict(_PROGRAMS)


#: What takes a command or a program's name first.
STARTERS = {"run", "execute", "execute_here", "Popen", "check_output", "which", "program"}
STARTERS |= {"run_as_nobody"}
#: What a command is called before it is run.
COMMANDS = {"argv", "command", "words", "call"}
#: Used where it is there; else the test judges by other means.
OPTIONAL = {"strace"}


def heads(tree):
    """First words of the commands of a source file, with those of a shell's text."""
    for node in ast.walk(tree):
        given: list[ast.expr] = []
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = node.args if name in STARTERS else []
        elif isinstance(node, ast.Assign) and {*map(ast.unparse, node.targets)} & COMMANDS:
            given = [node.value]
        if given and isinstance(given[0], ast.List | ast.Tuple):
            given = given[0].elts
        words = [part.value for part in given if isinstance(part, ast.Constant)]
        words = [word for word in words if isinstance(word, str)]
        if words and isinstance(given[0], ast.Constant):
            yield words[0]
        if words[:2] in (["sh", "-c"], ["bash", "-c"]) and len(words) > 2:
            for part in re.split(r"&&|\|\|?|[;&\n({]", words[2]):
                yield part.strip().partition(" ")[0]


def owners(programs):
    """The Debian package and its priority, of each program that is on this machine."""
    places = [f"{folder}/{name}" for name in programs for folder in ("/usr/bin", "/usr/sbin")]
    places += [place.removeprefix("/usr") for place in places]
    found = [place for place in places if os.access(place, os.X_OK)]
    asked = subprocess.run(["dpkg", "-S", *found], capture_output=True, text=True, check=False)
    said = re.findall(r"^([a-z0-9.+-]+)(?::\w+)?: (\S+)$", asked.stdout, re.M)
    given = {Path(place).name: package for package, place in said}
    argv = ["dpkg-query", "-W", "-f", "${Package} ${Priority} ${Essential}\\n", *given.values()]
    known = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    base = {line.split()[0] for line in known.splitlines() if re.search(" required | yes$", line)}
    return {name: (package, package in base) for name, package in given.items()}


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="asks Debian's own list of packages")
def test_every_program_that_is_started_is_of_the_base_or_of_the_list():
    called = set()
    for folder in ("runbook", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if "standin" not in str(path):
                called |= {Path(word).name for word in heads(ast.parse(path.read_text())) if word}
    found = owners(called)
    assert {"sh", "git", "unshare", "systemctl", "ssh"} <= set(found)
    listed = {program.rsplit("/")[-1]: row.package for row in rows() for program in row.programs}
    beside = {name: of for name, (of, base) in found.items() if not base and name not in listed}
    assert {name: of for name, of in beside.items() if name not in OPTIONAL} == {}
    named = {name: of for name, (of, _) in found.items() if name in listed}
    wrong = {name: of for name, of in named.items() if listed[name] != of}
    assert set(wrong) <= {"python3"}  # of python3-minimal, which python3-venv brings
    assert set(owners(listed)) <= set(listed)


def test_every_row_is_of_a_kind_that_the_script_knows():
    for row in rows():
        assert row.target in ("setup", "rehearse", "box", "test") and row.how in (
            "install",
            "unpack",
        )
        assert row.why and row.programs
    assert len({row.package for row in rows()}) == len(list(rows()))
    assert stat.S_IMODE((ROOT / "tools/system_packages.sh").stat().st_mode) & 0o111


@pytest.mark.parametrize(
    ("target", "first"), [("test", "test"), ("rehearse", "rehearse"), ("host", "setup")]
)
def test_make_looks_at_the_system_before_all_else(target, first):
    done = subprocess.run(
        ["make", "-n", "-W", "pyproject.toml", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith("make")]
    assert lines[0].endswith(f"sh tools/system_packages.sh {first}")
    assert not any("system_packages" in line and "setup" not in line for line in lines[1:])
