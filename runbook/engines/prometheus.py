"""The text format of Prometheus (0.0.4), as servers print it on ``/metrics``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(
    r"([A-Za-z_:][A-Za-z0-9_:]*)\s*(?:\{(.*)\})?\s+([^\s{}]+)(?:\s+-?\d+)?\s*", re.ASCII
)
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"', re.ASCII)


@dataclass(frozen=True)
class Sample:
    """One line: a name, its labels (escapes left as they are) and a finite value."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse_metrics(text: str) -> list[Sample]:
    """Every sample of ``text`` with a finite value; comments and broken lines are left out."""
    samples = []
    for line in text.split("\n"):
        match = _SAMPLE.fullmatch(line.strip())
        if not match:
            continue
        name, labels, number = match.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        if math.isfinite(value):
            samples.append(Sample(name, dict(_LABEL.findall(labels or "")), value))
    return samples


def total(samples: list[Sample], name: str) -> float | None:
    """The sum of ``name`` over all its labels, ``None`` where it is not exposed."""
    values = [sample.value for sample in samples if sample.name == name]
    return sum(values) if values else None
