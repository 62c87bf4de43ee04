"""GPUs are read while a cell is measured, by a program that tells as nvidia-smi does."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runbook.benchmark.gpu_samples import compare_clocks, sampled, summarise
from runbook.benchmark.measurements import key_of
from runbook.cells import Cell

LINES = "0, 2400, 310.50, 61\\n1, 2100, 290.50, 64\\n0, 2400, [N/A], 62\\n1, 22"
PROGRAM = """#!/bin/sh
echo "$@" > "$0.words"
printf '{lines}'
exec sleep 60
"""


def test_what_it_tells_is_summed_up_and_it_is_ended(tmp_path: Path, monkeypatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(PROGRAM.format(lines=LINES))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    begun_s = time.monotonic()
    with sampled() as found:
        while not (words := tmp_path / "nvidia-smi.words").exists() or not words.read_text():
            time.sleep(0.01)
        time.sleep(0.2)
        assert not found
    assert time.monotonic() - begun_s < 30
    assert found == {"sm_mhz": 2400, "power_w": 300.5, "temperature_c": 64}
    assert "--query-gpu=index,clocks.sm,power.draw,temperature.gpu" in words.read_text()


def test_where_there_is_none_nothing_is_known(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with sampled() as found:
        pass
    assert found == {}


@given(st.text())
def test_any_text_is_summed_up(text: str) -> None:
    assert set(summarise(text)) <= {"sm_mhz", "power_w", "temperature_c"}


def test_clocks_that_differ_are_told() -> None:
    cells = [Cell(c, b, b, 8, output_tok_s=1.0) for c in ("baseline", "other") for b in (1, 2)]
    mhz = (2400.0, 2390.0, 2250.0, 2260.0)
    samples = {key_of(cell): {"sm_mhz": one} for cell, one in zip(cells, mhz, strict=True)}
    assert compare_clocks(cells, samples) == [
        "C=8: clocks of the GPUs differ: baseline 2395 MHz, other 2255 MHz"
    ]
    assert compare_clocks(cells[:2], samples) == compare_clocks(cells, {}) == []
