"""The files behind the words of a command line: named ones, and those in folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from runbook import bounded
from runbook.errors import BadInput

MAX_BYTES = 256 * 1024 * 1024
_ENDINGS = (".csv", ".json", ".jsonl")

#: What the tools leave beside their results: requests, aggregates, logs, copies.
_BESIDE = re.compile(
    r"(inputs|outputs|warmup|phase_manifest|run_config)\.json|(.*_)?outputs\.json"
    r"|.*\.failure\.json|.*-failure\.json|.*\.pytorch\.json|.*_raw\.jsonl"
    r"|profile_export\.jsonl?|(profile_export_aiperf(_\w+)?|.*_genai_perf)\.csv"
    r"|profile_export_aiperf_(aggregate|collated|sweep|timeslices)\.json"
    r"|.*(server_metrics|gpu_telemetry|search_history)\w*\.(json|jsonl|csv)"
    r"|benchmarks\.csv|summary\.csv"
)


def files_in(paths: Sequence[Path]) -> list[Path]:
    """Every result file named, or in a folder named, in order and once.

    A run folder, or that of ``bench``, stands for its ``cells.csv``. Raises ``BadInput``.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise BadInput(
                f"{path}: No such file or directory",
                "a result file, or a folder",
                "look at the path",
            )
        for one in _in_folder(path) if path.is_dir() else [path]:
            found[one] = None
    return list(found)


def _in_folder(folder: Path) -> Iterable[Path]:
    if (folder / "cells.csv").is_file():
        return [folder / "cells.csv"]
    listed = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in _ENDINGS and path.is_file() and not _BESIDE.fullmatch(path.name)
    )
    runs = {path.parent for path in listed if re.fullmatch(r"run=\d+\.json", path.name)}
    kept = [path for path in listed if path.name != "summary.json" or path.parent not in runs]
    if not kept:
        raise BadInput(
            f"{folder}: no result file in it",
            "files that end with " + ", ".join(_ENDINGS),
            "name the files themselves",
        )
    return kept


def read_text(path: Path) -> str:
    """The text of a file. Raises ``BadInput`` where it is unreadable, no UTF-8 or beyond bounds."""
    return bounded.read_text(
        path,
        MAX_BYTES,
        name_it="name a result file",
        smaller="a summary of each run, without its requests",
        make_smaller="write it without details (GuideLLM: --metrics kind=generative,sample_size=0)",
        form="a result file, as text",
    )
