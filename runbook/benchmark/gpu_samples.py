"""Clocks, power and temperature of the GPUs while a cell is measured, where there are any."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from runbook.benchmark.measurements import key_of, place_of
from runbook.cells import Cell

_QUERY = ("index", "clocks.sm", "power.draw", "temperature.gpu")
_END_S = 5.0
#: Median clocks of configurations at one concurrency that lie further apart are pointed out.
CLOCK_SHARE = 0.03

#: ``sm_mhz`` (median), ``power_w`` (mean of a card), ``temperature_c`` (greatest); absent: unknown.
Sampled = dict[str, float]


@contextmanager
def sampled(here: bool = True) -> Iterator[Sampled]:
    """Fills the value it gives, at its end, with what ``nvidia-smi`` told each second.

    It stays empty where the server is not ``here``, and where no ``nvidia-smi`` answers.
    """
    found: Sampled = {}
    program = shutil.which("nvidia-smi")
    if program is None or not here:
        yield found
        return
    words = [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(
            [*words, "--loop-ms=1000"], stdout=told, stderr=subprocess.DEVNULL
        )
        try:
            yield found
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            told.seek(0)
            found |= summarise(told.read())


def summarise(text: str) -> Sampled:
    """What lines of ``nvidia-smi`` say in all; what is ``[N/A]`` or torn is left out."""
    columns: dict[str, list[float]] = {name: [] for name in _QUERY}
    for line in text.split("\n")[:-1]:
        for name, value in zip(_QUERY, line.split(","), strict=False):
            if re.fullmatch(r" *[0-9]+(\.[0-9]+)? *", value):
                columns[name].append(float(value))
    found: Sampled = {}
    if columns["clocks.sm"]:
        found["sm_mhz"] = statistics.median(columns["clocks.sm"])
    if columns["power.draw"]:
        found["power_w"] = round(statistics.fmean(columns["power.draw"]), 1)
    if columns["temperature.gpu"]:
        found["temperature_c"] = max(columns["temperature.gpu"])
    return found


def compare_clocks(cells: Iterable[Cell], samples: Mapping[str, Sampled]) -> list[str]:
    """Where configurations did not run at the same clocks, by the median of their cells."""
    clocks: dict[str, dict[str, list[float]]] = {}
    for cell in cells:
        mhz = samples.get(key_of(cell), {}).get("sm_mhz")
        if mhz and cell.usable:
            clocks.setdefault(place_of(cell), {}).setdefault(cell.config, []).append(mhz)
    said = []
    for place, configs in sorted(clocks.items()):
        middles = {config: statistics.median(values) for config, values in configs.items()}
        if min(middles.values()) < (1 - CLOCK_SHARE) * max(middles.values()):
            shown = ", ".join(f"{config} {mhz:.0f} MHz" for config, mhz in middles.items())
            said.append(f"{place}: clocks of the GPUs differ: {shown}")
    return said
