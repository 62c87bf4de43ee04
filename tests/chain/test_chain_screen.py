"""What a run shows, by the command line itself: verdicts alone, JSON, and live on a terminal."""

import json
import os
import subprocess
import threading

import pytest
from boxes import need_box
from command import ROOT, RUNBOOK, runbook, short_parameters


@pytest.fixture
def first(tmp_path):
    """The words of a run that ends with its first stage, and its folder."""
    need_box(tmp_path)
    path, _ = short_parameters(tmp_path)
    folder = tmp_path / "run"
    return ("run", path, "--to", "verify_stack", "--out", folder), folder


def test_quiet_says_the_verdict_alone(first):
    said = runbook(*first[0], "--quiet")
    assert said.returncode == 0, said.stderr
    (line,) = said.stdout.splitlines()
    assert line.startswith("VERDICT ok: stack")


def test_json_is_all_there_is_on_stdout(first):
    words, folder = first
    said = runbook(*words, "--json")
    found = json.loads(said.stdout)
    assert found["run"] == str(folder)
    assert found["steps"][0] | {"name": "verify_stack", "status": "completed"} == found["steps"][0]
    assert "VERDICT ok: stack" in said.stderr


def test_on_a_terminal_the_to_do_list_is_live(first):
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
    words = [RUNBOOK, *map(str, first[0])]
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
