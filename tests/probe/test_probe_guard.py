"""The guard's judgement, and the guard as the one file that is installed."""

import ast
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from runbook import probe
from runbook.hosts.local import LocalHost
from runbook.launch.spec import LaunchSpec
from runbook.probe import guard
from runbook.probe.ask import Questions, ask_guard, ask_serving

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
FILE = {"kind": "file", "realpath": "/m", "size_bytes": 9, "mtime_ns": 1, "readable": True}
FOLDER = {
    "kind": "folder",
    "realpath": "/m",
    "size_bytes": 9,
    "files": 2,
    "listing_sha256": "a" * 64,
    "newest_mtime_ns": 5,
    "mtime_ns": 1,
}
HASH, OTHER = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("wanted", "found", "status"),
    [
        (None, FILE, "skipped"),
        (FILE, None, "unknown"),
        (FILE, FILE, "pass"),
        (FILE, {"kind": None, "why": "No such file"}, "fail"),
        (FILE, {**FILE, "readable": False, "why": "Permission denied"}, "fail"),
        (FILE, FOLDER, "fail"),
        (FILE, {**FILE, "size_bytes": 8}, "fail"),
        (FILE, {**FILE, "mtime_ns": 2}, "unknown"),
        ({**FILE, "sha256": HASH}, {**FILE, "mtime_ns": 2, "sha256": HASH}, "pass"),
        ({**FILE, "sha256": HASH}, {**FILE, "sha256": OTHER}, "fail"),
        ({**FILE, "sha256": HASH}, {**FILE, "sha256": None}, "pass"),
        (FOLDER, FOLDER, "pass"),
        (FOLDER, {**FOLDER, "files": 1}, "fail"),
        (FOLDER, {**FOLDER, "listing_sha256": OTHER}, "fail"),
        (FOLDER, {**FOLDER, "newest_mtime_ns": 6}, "unknown"),
        (FOLDER, {**FOLDER, "realpath": "/other"}, "unknown"),
    ],
)
def test_a_model_is_judged_by_content_where_known_else_by_place_size_and_time(
    wanted, found, status
):
    assert guard.judge_file(wanted, found)[0] == status


def test_values_that_were_not_measured_say_nothing_and_missing_ones_are_unknown():
    assert guard.judge_values({}, {"a": 1})[0] == "skipped"
    assert guard.judge_values({"a": "1"}, None) == ("unknown", "it could not be read", "a 1")
    assert guard.judge_values({"a": "1", "b": None}, {"a": "1", "b": "2"}) == (
        "fail",
        "b 2",
        "b none",
    )
    assert guard.judge_interpreter({"version": "3.11", "sha256": None}, {"version": "3.11"})[0] == (
        "pass"
    )


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ({"loaded": "/a.py", "candidates": [{"path": "/a.py", "sha256": HASH}]}, "pass", "/a.py"),
        ({"loaded": "/a.py", "candidates": [{"path": "/a.py", "sha256": OTHER}]}, "fail", "bbbbb"),
        ({"loaded": "/b.py", "candidates": []}, "fail", "/b.py"),
        ({"loaded": None, "candidates": []}, "fail", "none"),
        ({"loaded": None, "candidates": [], "raised": "boom"}, "fail", "raised: boom"),
        (None, "unknown", "could not be read"),
    ],
)
def test_another_sitecustomize_is_named_with_its_hash(found, status, said):
    none = {"loaded": None, "candidates": []}
    first = {"loaded": "/a.py", "candidates": [{"path": "/a.py", "sha256": HASH}]}
    wanted = {"sitecustomize": first, "usercustomize": none}
    answer = guard.judge_customization(wanted, {"sitecustomize": found, "usercustomize": none})
    assert answer[0] == status
    assert said in answer[1]


def test_gpus_are_told_apart_by_their_number_on_the_board():
    cards = [{"uuid": f"GPU-{n}", "driver": "580.1"} for n in range(2)]
    assert guard.judge_gpus([], None)[0] == "skipped"
    assert guard.judge_gpus(cards, None)[0] == "unknown"
    assert guard.judge_gpus(cards, cards[::-1])[0] == "pass"
    assert "GPU-1" in guard.judge_gpus(cards, cards[:1])[1]
    newer = [{**card, "driver": "590.2"} for card in cards]
    assert guard.judge_gpus(cards, newer)[:2] == ("fail", "2 GPUs, driver 590.2")


def test_gpus_that_nobody_has_recorded_are_counted():
    cards = [{"uuid": f"GPU-{n}", "driver": "580.1"} for n in range(2)]
    assert guard.judge_gpus([], cards, 2)[0] == "pass"
    assert guard.judge_gpus([], cards, 3) == ("fail", "2 GPUs, driver 580.1", "3 or more GPUs")
    assert guard.judge_gpus([], None, 2)[0] == "unknown"
    assert guard.count_of({"gpus": [], "gpu_count": 8}) == 8
    assert guard.count_of({"gpus": cards, "gpu_count": 8}) == 2


CARDS = [{"uuid": f"GPU-{n}", "driver": "580.1"} for n in range(2)]
TOPO = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
SMI = """#!/bin/sh
case $1 in
topo) printf '%b' '{topo}' ;;
*) echo 'GPU-0, 580.1, {used}, 97887'; echo 'GPU-1, 580.1, 4, 97887' ;;
esac
"""


def test_memory_that_somebody_holds_and_other_links_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "GPUS_WAIT_S", 0.0)
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI.format(topo=TOPO.replace("\t", "\\t").replace("\n", "\\n"), used=8))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    cards = guard.read_gpus(2)
    assert guard.judge_gpus(CARDS, cards)[0] == "pass"
    assert guard.judge_gpu_memory(2, cards)[0] == "pass"
    links = guard.fingerprint(guard.parse_matrix(TOPO))
    assert guard.judge_topology(links)[0] == "pass"
    assert guard.judge_topology("other")[0] == "fail"
    assert guard.judge_topology(None)[0] == "skipped"
    program.write_text(SMI.format(topo="", used=40000))
    assert guard.judge_gpu_memory(2, guard.read_gpus(2))[:2] == ("fail", "41% of a card in use")
    assert guard.judge_topology(links)[0] == "unknown"
    program.write_text(SMI.format(topo="", used="[N/A]"))
    assert guard.judge_gpu_memory(2, guard.read_gpus(2))[0] == "unknown"
    assert guard.judge_gpu_memory(2, None)[0] == "unknown"


def test_nccl_conf_is_compared_as_its_user_reads_it(tmp_path, monkeypatch):
    conf = tmp_path / "nccl.conf"
    monkeypatch.setenv("NCCL_CONF_FILE", str(conf))
    assert guard.judge_nccl(None)[0] == "skipped"
    assert guard.judge_nccl({})[0] == "pass"
    conf.write_text("NCCL_P2P_LEVEL=SYS\n")
    assert guard.judge_nccl({})[0] == "fail"
    assert guard.judge_nccl(guard.read_nccl())[0] == "pass"


def test_it_is_one_file_of_the_standard_library_in_which_no_name_hides_another():
    tree = ast.parse(probe.guard_program())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert {name for name, count in Counter(names).items() if count > 1} == {"main"}
    modules = {
        (node.module if isinstance(node, ast.ImportFrom) else name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert modules <= sys.stdlib_module_names


class Place:
    """A folder with a guard, a model and what a real interpreter found there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "model.gguf"
        self.model.write_bytes(b"weights")
        self.site = folder / "site"
        self.site.mkdir()
        (self.site / "sitecustomize.py").write_text("import os\n")
        self.env = {**ENV, "PYTHONPATH": str(self.site)}
        self.spec = LaunchSpec((sys.executable, "-m", "server"), self.env, "/", memlock=65536)
        questions = Questions(("pytest",), (str(self.model),), 1000, ("/",))
        self.facts = ask_serving(LocalHost(), self.spec, questions).facts
        self.program = folder / "guard.py"
        self.program.write_text(probe.guard_program())

    def expected(self, **more):
        names = ("model", "interpreter", "sitecustomize", "packages", "port", "shm", "disk")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        return {
            "levels": dict.fromkeys(names, "fail") | more.pop("levels", {}),
            "options": {
                "packages": ["pytest"],
                "files": [str(self.model)],
                "hash_up_to_bytes": 1000,
                "disks": ["/"],
            },
            "facts": self.facts,
            "roles": {"model": str(self.model)},
            "port": port,
            "least_shm_gib": 0,
            "least_disk_gib": 0,
            "gpus": [],
            **more,
        }

    def run(self, env=None, **more):
        file = self.folder / "expected.json"
        file.write_text(json.dumps(self.expected(**more)))
        done = subprocess.run(
            [sys.executable, self.program, "before-start", file],
            env=env or self.env,
            cwd="/",
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_where_all_is_as_measured_it_lets_the_server_start(place):
    code, said = place.run()
    assert (code, said.count("\n")) == (0, 1), said
    assert "guard: 7 good, 0 not" in said


def test_a_model_that_was_only_touched_passes_by_its_content(place):
    os.utime(place.model, ns=(1, 1))
    assert place.run()[0] == 0


def test_another_model_of_the_same_size_stops_the_start(place):
    place.model.write_bytes(b"WEIGHTS")
    code, said = place.run()
    assert code == guard.FAILED
    assert "guard: fail: model: 7 bytes, SHA-256" in said


def test_a_level_of_warn_only_says_it_and_off_does_not_look(place):
    place.model.unlink()
    code, said = place.run(levels={"model": "warn"})
    assert code == 0
    assert "guard: warn: model: No such file or directory" in said
    code, said = place.run(levels={"model": "off"})
    assert (code, "model" in said) == (0, False)


def test_another_sitecustomize_than_measured_stops_the_start(place):
    code, said = place.run(env=ENV)
    assert code == guard.FAILED
    assert f"wanted: sitecustomize {place.site}/sitecustomize.py (" in said


def test_who_holds_the_port_is_named(place):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        code, said = place.run(port=other.getsockname()[1])
    assert code == guard.FAILED
    assert f"held by pid {os.getpid()} (" in said


def test_no_room_and_another_version_are_said(place):
    facts = {**place.facts, "packages": {"pytest": "1.0"}}
    code, said = place.run(facts=facts, least_shm_gib=1e6)
    assert code == guard.FAILED
    assert "packages: pytest" in said
    assert "wanted: pytest 1.0" in said
    assert "wanted: 1e+06 GiB free or more" in said


@pytest.mark.parametrize("text", ["", "{", '{"levels": {}}', None])
def test_without_expectations_it_stops_the_start_and_says_so(place, text):
    file = place.folder / "expected.json"
    if text is not None:
        file.write_text(text)
    command = [sys.executable, place.program, "before-start", file]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == guard.NO_EXPECTATIONS, done.stderr
    assert done.stdout.startswith("guard: fail: expectations")


def test_drift_asks_the_same_and_reads_the_content_in_any_case(place):
    stat = place.model.stat()
    place.model.write_bytes(b"WEIGHTS")
    os.utime(place.model, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert place.run()[0] == 0
    findings, reason = ask_guard(LocalHost(), place.spec, place.expected())
    assert reason == ""
    assert {one["name"] for one in findings if one["status"] == "fail"} == {"model"}


def test_a_launch_that_cannot_be_become_is_unknown(place):
    gone = LaunchSpec(("/nowhere/python3",), ENV, "/", memlock=65536)
    findings, reason = ask_guard(LocalHost(), gone, place.expected())
    assert findings == []
    assert "/nowhere/python3" in reason


def test_home_and_caches_that_cannot_be_written_are_named(place):
    """Under systemd a HOME that is not there, or /usr made read-only, is found at the first JIT."""
    levels = {"caches": "fail"}
    fresh = {**place.env, "HOME": str(place.folder), "TRITON_CACHE_DIR": f"{place.folder}/a/b"}
    assert place.run(fresh, levels=levels)[0] == 0
    code, said = place.run({**fresh, "HF_HOME": f"{place.model}/x"}, levels=levels)
    assert code == 20
    assert f"caches: HF_HOME {place.model}/x cannot be written; wanted: folders" in said
    none = {name: value for name, value in place.env.items() if name != "HOME"}
    assert "1 not measured" in place.run(none, levels=levels)[1]
