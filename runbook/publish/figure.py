"""A finished figure: PNG, alternative text and a stable name."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook import atomic

FOLDER = "figures"


@dataclass(frozen=True)
class Figure:
    """One figure as PNG. ``name`` is stable: the file is ``figures/<name>.png`` of the run."""

    name: str
    alt: str
    png: bytes

    @property
    def file(self) -> str:
        """Path of the file, relative to the run folder and to the document."""
        return f"{FOLDER}/{self.name}.png"

    def save(self, run_path: Path) -> Figure:
        """Write ``figures/<name>.png`` below ``run_path``; returns the figure itself."""
        atomic.write(run_path / self.file, self.png)
        return self

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        """PNG for Jupyter, with the name and text by which the document links to the file."""
        data = {"image/png": base64.b64encode(self.png).decode(), "text/plain": self.alt}
        metadata = {
            "runbook": {"figure": f"{self.name}.png", "alt": self.alt},
            "image/png": {"width": int.from_bytes(self.png[16:20], "big") // 2},
        }
        return data, metadata
