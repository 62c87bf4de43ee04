"""How GPUs are connected, as ``nvidia-smi topo`` prints it: matrix, class and fingerprint.

Pure, standard library alone, Python 3.8 or newer, one file: verification reads it here, and what
is installed on a target can carry it along.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

#: From near to far; ``NV`` and a number is nearer than all of them.
LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS")

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_GPU = re.compile(r"GPU\d+")
_ROW = re.compile(r"\s*(GPU\d+)\s+(?!GPU|NIC)(\S.*)")
_CELL = re.compile(r"X|OK|[A-Z]{1,4}\d*|N/A")
_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def parse_matrix(text: str) -> dict[str, Any]:
    """The matrix in the answer to ``nvidia-smi topo -m`` or ``-p2p``; any text is taken.

    ``gpus``: names in the order of rows and columns; ``cells``: a list a row, ``None`` where the
    text is cut off; ``cpus`` and ``numa``: affinity a GPU, ``None`` where there is none;
    ``faults``: what is missing or contradicts itself.
    """
    header, rows, affinity = _lines_of(_without_cut_word(text))
    names = list(dict.fromkeys(_GPU.findall(header))) or list(rows)
    cells = [_cells(rows.get(name, []), len(names)) for name in names]
    rests = [affinity.get(name, []) for name in names]
    columns = 1 + ("NUMA" in header.replace("GPU NUMA", ""))
    whole = [rest if len(rest) >= columns else [None, None] for rest in rests]
    return {
        "gpus": names,
        "cells": cells,
        "cpus": [rest[0] for rest in whole],
        "numa": [rest[1] if columns == 2 else None for rest in whole],
        "faults": _faults(names, cells, rows),
    }


def _without_cut_word(text: str) -> str:
    """The text without its last word where nothing says that the word is whole."""
    last = re.search(r"\S+\Z", text)
    return text if last is None or last[0] in ("X", "N/A") else text[: last.start()]


def _lines_of(text: str) -> tuple[str, dict[str, list[str]], dict[str, list[str]]]:
    """The header, and of each GPU's row the words of its links and of its affinity."""
    header = ""
    rows: dict[str, list[str]] = {}
    affinity: dict[str, list[str]] = {}
    for line in _ESCAPE.sub("", text).splitlines():
        row = _ROW.fullmatch(line.rstrip())
        if line.strip().startswith("Legend"):
            break
        if row:
            words = row[2].split()
            rows[row[1]] = [word for word in words if _CELL.fullmatch(word)]
            affinity[row[1]] = [word for word in words if _CPUS.fullmatch(word)]
        elif not rows:
            header += line + " "
    return header, rows, affinity


def _cells(words: list[str], columns: int) -> list[str | None]:
    return [words[at] if at < len(words) else None for at in range(columns)]


def _faults(names: list[str], cells: list[list[Any]], rows: dict[str, Any]) -> list[str]:
    faults = [f"the row of {name} is missing" for name in names if name not in rows]
    faults += [f"the column of {name} is missing" for name in rows if name not in names]
    for name, row in zip(names, cells):
        if name in rows and None in row:
            faults.append(f"the row of {name} is cut off")
    for one, row in enumerate(cells):
        for other in range(one):
            there, back = row[other], cells[other][one]
            if there != back and None not in (there, back):
                faults.append(f"{names[one]} to {names[other]}: {there}, but back: {back}")
    return faults


def pairs(matrix: dict[str, Any]) -> dict[str, str]:
    """``GPU0-GPU1: SYS`` for every pair of GPUs whose cell is known."""
    names = matrix["gpus"]
    return {
        f"{names[one]}-{names[other]}": matrix["cells"][one][other]
        for one in range(len(names))
        for other in range(one + 1, len(names))
        if matrix["cells"][one][other] is not None
    }


def topology_class(matrix: dict[str, Any]) -> str | None:
    """What all pairs have in common, ``None`` where the matrix is not whole.

    ``nvlink``: NVLink somewhere; ``switch``: all below PCIe switches; ``root``: one host bridge;
    ``node``: one NUMA node; ``system``: some pairs across nodes, some nearer; ``all-system``: every
    pair across nodes. Where a socket is cut into several nodes (NPS2, NPS4), SYS does not mean the
    other socket.
    """
    found = set(pairs(matrix).values())
    if matrix["faults"] or not matrix["gpus"] or not all(map(_is_link, found)):
        return None
    if not found:
        return "single"
    if any(link.startswith("NV") for link in found):
        return "nvlink"
    if found == {"SYS"}:
        return "all-system"
    farthest = max(found, key=LINKS.index)
    return {"PIX": "switch", "PXB": "switch", "PHB": "root", "NODE": "node", "SYS": "system"}[
        farthest
    ]


def _is_link(text: str) -> bool:
    return text in LINKS or re.fullmatch(r"NV\d+", text) is not None


def fingerprint(matrix: dict[str, Any]) -> str | None:
    """Hash (16 hex digits) of the links alone, equal however the GPUs are numbered.

    ``None`` where the matrix is not whole. Every GPU in turn is told apart from the others, then
    GPUs are told apart by their links to those told apart already, until nothing more differs.
    """
    if topology_class(matrix) is None:
        return None
    cells = matrix["cells"]
    seen_by_each = [_told_apart(cells, start) for start in range(len(cells))]
    return _digest(sorted(seen_by_each))


def _told_apart(cells: list[list[str]], start: int) -> str:
    colours = ["start" if at == start else "" for at in range(len(cells))]
    for _ in cells:
        colours = [
            _digest([colours[at], sorted(zip(row, colours))]) for at, row in enumerate(cells)
        ]
    return _digest(sorted(colours))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
