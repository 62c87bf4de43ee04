"""What a run shows, by the command line itself: verdicts alone, JSON, and live on a terminal."""

import json
import os
import subprocess
import threading

import pytest
from boxes import need_box
from command import REHEARSAL, ROOT, RUNBOOK, runbook

FIRST = ("run", REHEARSAL, "--to", "verify_stack", "-p", "server.port=18099")


@pytest.fixture
def folder(tmp_path):
    need_box(tmp_path)
    return tmp_path / "run"


def test_quiet_says_the_verdict_alone(folder):
    said = runbook(*FIRST, "--out", folder, "--quiet")
    assert said.returncode == 0, said.stderr
    (line,) = said.stdout.splitlines()
    assert line.startswith("VERDICT ok: stack")


def test_json_is_all_there_is_on_stdout(folder):
    said = runbook(*FIRST, "--out", folder, "--json")
    found = json.loads(said.stdout)
    assert found["run"] == str(folder)
    assert found["steps"][0] | {"name": "verify_stack", "status": "completed"} == found["steps"][0]
    assert "VERDICT ok: stack" in said.stderr


def test_on_a_terminal_the_to_do_list_is_live(folder):
    master, slave = os.openpty()
    seen = []

    def read():
        while True:
            try:
                seen.append(os.read(master, 65536))
            except OSError:
                return

    reader = threading.Thread(target=read)
    reader.start()
    words = [RUNBOOK, *map(str, FIRST), "--out", str(folder)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    done = subprocess.run(
        words, stdout=slave, stderr=slave, cwd=ROOT, env=environment, timeout=200, check=False
    )
    os.close(slave)
    reader.join(10)
    os.close(master)
    text = b"".join(seen).decode(errors="replace")
    assert done.returncode == 0, text
    assert "VERDICT ok: stack" in text
    assert "plan_document" in text
    assert "\x1b[" in text
    assert "Traceback" not in text
