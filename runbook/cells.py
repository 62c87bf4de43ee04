"""One cell: one configuration, one life, one concurrency. The row of ``cells.csv``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Literal

CellStatus = Literal["ok", "void", "server_died", "not_run"]


@dataclass(frozen=True)
class Cell:
    """Figures of one cell; ``None`` is unknown. ``life`` is numbered over the whole run.

    ``output_tok_s``: output tokens of usage per second of wall clock. ``void``: measured, but not
    to be compared (``note`` says why).
    """

    config: str
    life: int
    block: int
    concurrency: int
    context_tokens: int | None = None
    requests: int = 0
    output_tok_s: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p99_ms: float | None = None
    accept_length: float | None = None
    errors: int = 0
    status: CellStatus = "ok"
    note: str = ""

    @property
    def usable(self) -> bool:
        """Whether the cell may be compared."""
        return self.status == "ok" and self.output_tok_s is not None


def to_csv(cells: Iterable[Cell]) -> str:
    """``cells.csv`` as text; ``None`` is an empty field."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Cell)], lineterminator="\n")
    writer.writeheader()
    for cell in cells:
        row = {key: "" if value is None else value for key, value in asdict(cell).items()}
        for key, value in row.items():
            if isinstance(value, float):
                row[key] = f"{value:.6g}"
        writer.writerow(row)
    return out.getvalue()
