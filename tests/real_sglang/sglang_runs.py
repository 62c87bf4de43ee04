"""Whole runs over a real SGLang, and what they left."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNBOOK = Path(sys.executable).with_name("runbook")


def run_runbook(name, folder, *overrides, timeout_s=2300):
    words = [word for one in overrides for word in ("-p", one)]
    return subprocess.run(
        [RUNBOOK, "run", ROOT / "params" / name, "--apply", "--out", folder, *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        check=False,
    )


def rows(folder):
    text = (folder / "requests.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
