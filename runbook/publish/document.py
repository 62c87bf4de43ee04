"""From the executed notebooks of a run to ``production_v2.md``; alone in knowing nbconvert.

Cells whose metadata hold ``{"record": "<section>"}`` give their outputs to that section; with
``"record_streams": true`` also what they printed. Everything else stays in the notebooks.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook, new_output
from traitlets.config import Config

from runbook import atomic
from runbook.errors import BadInput, RunbookWarning
from runbook.hosts.base import Host
from runbook.publish import host_files, sections
from runbook.publish.artefacts import Artefacts
from runbook.publish.figure import FOLDER
from runbook.publish.markup import drop_html, squeeze
from runbook.publish.outline import KEYS, OUTLINE, Section
from runbook.publish.state import headline, not_reached, verdict_lines
from runbook.publish.tables import Markdown, escape, fence, strip_controls
from runbook.run import STAGES, STEPS

NAME = "production_v2.md"

_FIGURE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*\.png")
_DIGEST = re.compile(r"\nDigest of all lines above: `sha256:([0-9a-f]{64})`\n\Z")

#: Sections that no notebook has to bear: without a cell they are made from the artefacts.
_FROM_ARTEFACTS: Mapping[str, Callable[[Path], Markdown]] = {
    "operations": sections.operations,
    "assumptions": sections.assumptions,
    "limits": sections.limits,
    "repeat": sections.repeat,
    "provenance": sections.provenance,
}


def export(run_path: Path, to: Path | None = None, *, mode: int = 0o600) -> Path:
    """Write the document of a run, however far it has come; returns where it lies.

    ``to``: the file (default: ``production_v2.md`` in the run folder); its figures are written to
    ``figures/`` beside it. A file there that was edited by hand, or is not ours, is kept as
    ``<name>.orig-N`` and named in a ``RunbookWarning``. Raises ``BadInput``.
    """
    text, figures = render(run_path)
    path = (to or run_path / NAME).resolve()
    if path.is_dir():
        raise BadInput(f"{path} is a folder", "the name of a file", f"--to '{path / NAME}'")
    try:
        for name, png in figures.items():
            atomic.write(path.parent / FOLDER / name, png, mode)
        keep_edited(path)
        atomic.write(path, text, mode)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror}", "a folder that can be written"
        ) from None
    return path


def write_on(host: Host, run_path: Path, to: str) -> str:
    """Write the document and its figures on a host, absolute path ``to``; says what was done.

    What was edited by hand is kept and named as by ``export``. Raises ``HostFailed``.
    """
    text, figures = render(run_path)
    path = host_files.resolve(host, to)
    folder = posixpath.dirname(path)
    host.make_dir(f"{folder}/{FOLDER}", 0o700)
    for name, png in figures.items():
        host.write(f"{folder}/{FOLDER}/{name}", png, 0o600)
    before = host.read(path)
    said = f"{to}: written, with {len(figures)} figures"
    if before is not None and is_edited(before.decode(errors="replace")):
        kept = host_files.keep_copy(host, path, before)
        said += f"; it was edited by hand, or is not ours: kept as {kept}"
    host.write(path, text, 0o600)
    return said


def render(run_path: Path) -> tuple[str, dict[str, bytes]]:
    """The text of the document, and its figures: file name to PNG. Nothing is written."""
    found = Artefacts.of(run_path)
    exporter = MarkdownExporter(config=Config(TemplateExporter={"exclude_input": True}))
    for preprocessor in (_Select, _LinkFigures, _Clean):
        exporter.register_preprocessor(preprocessor, enabled=True)
    body, resources = exporter.from_notebook_node(_assemble(found))
    text = squeeze(body)
    return f"{text}\nDigest of all lines above: `{digest(text)}`\n", resources.get("figures", {})


def digest(text: str) -> str:
    """``sha256:...`` of a document's text above its last line."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def is_edited(text: str) -> bool:
    """Whether a document is not, to the letter, as it was written."""
    match = _DIGEST.search(text)
    return match is None or digest(text[: match.start()]) != f"sha256:{match[1]}"


def keep_edited(path: Path) -> Path | None:
    """Keep a document that was edited by hand as ``<name>.orig-N``, with a ``RunbookWarning``."""
    if not path.is_file():
        return None
    before = path.read_bytes()
    if not is_edited(before.decode(errors="replace")):
        return None
    kept = path.with_name(
        host_files.free_name(path.name, {one.name for one in path.parent.iterdir()})
    )
    atomic.write(kept, before, path.stat().st_mode & 0o777)
    said = f"{path} was edited by hand, or is not ours: kept as {kept.name}"
    warnings.warn(RunbookWarning(said), stacklevel=3)
    return kept


# --- putting the notebook of the document together -------------------------------------------


def _assemble(found: Artefacts) -> NotebookNode:
    """One notebook: a heading for each section, then its recorded cells, or why there is none."""
    recorded = _recorded_cells(found)
    cells = [new_markdown_cell(_head(found))]
    for section in OUTLINE:
        cells.append(new_markdown_cell(f"## {section.title}"))
        cells += recorded[section.key] or [new_markdown_cell(_without_cell(found, section))]
    notebook: NotebookNode = new_notebook(cells=cells)
    return notebook


def _head(found: Artefacts) -> str:
    lines = [f"# {escape(found.run.params.name)}: production record"]
    said = headline(found)
    if not said.startswith("Complete"):
        lines.append(f"**{escape(said)}**")
    return "\n\n".join([*lines, *filter(None, [sections.what_it_is(found)])])


def _without_cell(found: Artefacts, section: Section) -> str:
    if section.key == "verdict":
        return "\n".join(f"{number}. {line}" for number, line in enumerate(verdict_lines(found), 1))
    step = section.step
    make = _FROM_ARTEFACTS.get(section.key)
    if make is not None and (step is None or found.steps[step].status == "completed"):
        return str(make(found.path))
    assert step is not None
    return not_reached(found, found.steps[step])


def _recorded_cells(found: Artefacts) -> dict[str, list[NotebookNode]]:
    """The code cells with outputs, by section, of the stages that were begun."""
    recorded: dict[str, list[NotebookNode]] = {key: [] for key in KEYS}
    for number, stage in enumerate(STAGES, 1):
        path = found.path / f"{number:02}_{stage}.ipynb"
        begun = any(
            found.steps[step].status != "pending" for step, owner in STEPS.items() if owner == stage
        )
        if not path.is_file() or not begun:
            continue
        for cell in _read(path).cells:
            section = cell.metadata.get("record")
            if cell.cell_type == "code" and section in recorded and cell.outputs:
                recorded[section].append(cell)
    return recorded


def _read(path: Path) -> NotebookNode:
    try:
        notebook: NotebookNode = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises whatever its parsers do
        raise BadInput(
            f"{path} is no notebook ({type(error).__name__}: {str(error)[:200]})",
            "a notebook as it was executed",
            "run its stage again: runbook run PARAMS --resume",
        ) from None
    return notebook


# --- preprocessors, in this order ---------------------------------------------------------------


class _Select(Preprocessor):
    """Of a cell's outputs keep those for the record, each in one form."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict[str, Any], index: int
    ) -> tuple[NotebookNode, dict[str, Any]]:
        if cell.cell_type == "code":
            streams = bool(cell.metadata.get("record_streams"))
            kept = (_one_form(output, streams) for output in cell.outputs)
            cell.outputs = [output for output in kept if output is not None]
        return cell, resources


def _one_form(output: NotebookNode, streams: bool) -> NotebookNode | None:
    if output.output_type == "stream":
        return _markdown(fence(_printed(output.text))) if streams and _is_out(output) else None
    if output.output_type == "error":
        return _markdown(fence(f"{output.ename}: {output.evalue}"))
    data = output.get("data", {})
    if "text/markdown" in data:
        return _markdown(drop_html(strip_controls(data["text/markdown"])))
    if "image/png" in data:
        return output
    if "text/plain" not in data or any("widget" in kind for kind in data):
        return None
    return _markdown(fence(data["text/plain"]))


def _is_out(output: NotebookNode) -> bool:
    return bool(output.name == "stdout" and output.text.strip())


def _printed(text: str) -> str:
    """What a terminal would show in the end: of each line what followed the last return."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _markdown(text: str) -> NotebookNode:
    output: NotebookNode = new_output("display_data", {"text/markdown": text})
    return output


class _LinkFigures(Preprocessor):
    """Replace images by links to ``figures/``; ``resources["figures"]`` collects them."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict[str, Any], index: int
    ) -> tuple[NotebookNode, dict[str, Any]]:
        if cell.cell_type == "code":
            files = resources.setdefault("figures", {})
            section = cell.metadata["record"]
            cell.outputs = [_linked(output, section, files) for output in cell.outputs]
        return cell, resources


def _linked(output: NotebookNode, section: str, files: dict[str, bytes]) -> NotebookNode:
    if "image/png" not in output.data:
        return output
    said = output.metadata.get("runbook", {})
    name, alt = str(said.get("figure", "")), str(said.get("alt", "figure"))
    if not _FIGURE_NAME.fullmatch(name):
        name = f"{section}_{sum(one.startswith(section) for one in files) + 1}.png"
    files[name] = base64.b64decode(output.data["image/png"])
    return _markdown(f"![{escape(alt)}]({FOLDER}/{name})")


class _Clean(Preprocessor):
    """What reaches the page is text: no cell of ours holds a control character any more."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict[str, Any], index: int
    ) -> tuple[NotebookNode, dict[str, Any]]:
        if cell.cell_type == "markdown":
            cell.source = drop_html(strip_controls(cell.source))
        return cell, resources
