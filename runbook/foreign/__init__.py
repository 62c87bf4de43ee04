"""Foreign results: the files of other benchmark tools, read as cells; what differs is named."""

from __future__ import annotations

from runbook.foreign.files import files_in, read_text
from runbook.foreign.gather import Found, gather
from runbook.foreign.result import Result

__all__ = ["Found", "Result", "files_in", "gather", "read_text"]
