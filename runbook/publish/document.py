"""From the executed notebooks of a run to ``production_v2.md``; with ``page`` alone in knowing
nbconvert.

Cells whose metadata hold ``{"record": "<section>"}`` give their outputs to that section; with
``"record_streams": true`` also what they printed. Everything else stays in the notebooks.
"""

from __future__ import annotations

import base64
import posixpath
import re
import warnings
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from nbconvert import MarkdownExporter
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbformat.v4 import new_output
from traitlets.config import Config

from runbook import atomic
from runbook.checks import counted
from runbook.errors import BadInput, HostFailed, RunbookWarning
from runbook.hosts import LocalHost
from runbook.hosts.base import Host
from runbook.params import Format
from runbook.publish import host_files
from runbook.publish.artefacts import Artefacts
from runbook.publish.assembly import assemble
from runbook.publish.figure import FOLDER
from runbook.publish.page import page
from runbook.publish.seal import is_edited, sealed, unsealed
from runbook.publish.tables import escape, fence, strip_controls

NAME = "production_v2.md"
NAMES: Mapping[Format, str] = {"markdown": NAME, "html": "production_v2.html"}

#: The row of the last section that names the run.
_RUN = re.compile(r"^\| run \| (.+) \|$", re.MULTILINE)
_FIGURE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*\.png")


def export_all(run_path: Path) -> list[Path]:
    """The document in every format of ``record.formats``, in the run folder; where each lies."""
    rendered = render(run_path)
    formats = Artefacts.of(run_path).run.params.record.formats
    return [_put((run_path / NAMES[form]).resolve(), form, rendered, FOLDER) for form in formats]


def export(run_path: Path, to: Path | None = None, *, form: Format = "markdown") -> Path:
    """Write the document of a run, however far it has come; returns where it lies.

    ``to``: the file (default: ``production_v2`` in the run folder). The figures of Markdown lie
    beside it, a page holds its own. A file there that was edited by hand, or is not ours, is kept
    as ``<name>.orig-N`` and named in a ``RunbookWarning``. Raises ``BadInput``.
    """
    path = (to or run_path / NAMES[form]).resolve()
    folder = FOLDER if path.parent == run_path.resolve() else figures_of(path.name)
    return _put(path, form, render(run_path, FOLDER if form == "html" else folder), folder)


def _put(path: Path, form: Format, rendered: tuple[str, dict[str, bytes]], folder: str) -> Path:
    """Write a rendered document here in one form; ``folder``: of its figures, beside it."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder", "the name of a file", f"--to '{path / NAMES[form]}'")
    text, figures = rendered
    if form == "html":
        text, figures = as_page(text, figures), {}
    try:
        kept = _write(_Here(), str(path), text, figures, folder)
    except (HostFailed, OSError) as error:
        raise BadInput(
            f"{path} cannot be written: {error}",
            "a folder that can be written",
            "name another file with --to",
        ) from None
    if kept:
        said = f"{path} was edited by hand, or is not ours: kept as {kept}"
        warnings.warn(RunbookWarning(said), stacklevel=3)
    return path


class _Here(LocalHost):
    """This machine; no process in between could be cut off from what it writes."""

    def write(self, path: str | PurePath, data: str | bytes, mode: int = 0o644) -> None:
        """Replace a file, whole or not at all. Raises ``OSError``."""
        atomic.write(Path(path), data, mode)


def write_on(host: Host, run_path: Path, to: str) -> str:
    """Write the document on a host, absolute path ``to``, with its figures, and as a page beside
    it where ``record.formats`` has one; says what was done.

    What was edited by hand is kept and named as by ``export``. Raises ``HostFailed``.
    """
    path = host_files.resolve(host, to)
    folder = figures_of(posixpath.basename(path))
    text, figures = render(run_path, folder)
    last = _keep_last(host, path, text)
    kept = _write(host, path, text, figures, folder)
    inside = " in the box" if host.kind == "box" else ""
    said = f"{to}: written{inside}, with {counted(len(figures), 'figure')}{_kept_as(kept)}"
    said += f"; the record of the run before is kept as {last}" if last else ""
    if "html" in Artefacts.of(run_path).run.params.record.formats:
        beside = posixpath.splitext(path)[0] + ".html"
        kept = _write(host, beside, as_page(*render(run_path)), {}, folder)
        said += f"; {posixpath.basename(beside)} beside it{_kept_as(kept)}"
    return said


def _keep_last(host: Host, path: str, text: str) -> str | None:
    """Keep the record of another run that lies at ``path`` beside it as ``<name>.last.md``, with
    its figures; returns that name. What was edited by hand is kept by ``_write``."""
    there = host.read(path)
    before = there.decode(errors="replace") if there else ""
    if is_edited(before) or _run_of(before) == _run_of(text):
        return None
    folder, name = posixpath.split(path)
    last = f"{posixpath.splitext(name)[0]}.last.md"
    old, new = (f"]({quote(figures_of(one))}/" for one in (name, last))
    figures = {}
    for figure in re.findall(rf"{re.escape(old)}([\w-]+\.png)\)", before):
        png = host.read(f"{folder}/{figures_of(name)}/{figure}")
        if png is not None:
            figures[figure] = png
    body = unsealed(before).replace(old, new)
    _write(host, f"{folder}/{last}", sealed(body), figures, figures_of(last))
    return last


def _run_of(text: str) -> str:
    """The run a record is of, as its last section says."""
    found = _RUN.findall(text)
    return found[-1] if found else ""


def _kept_as(kept: str | None) -> str:
    return f"; it was edited by hand, or is not ours: kept as {kept}" if kept else ""


def as_page(text: str, figures: Mapping[str, bytes]) -> str:
    """A rendered document as one self-contained page, with a digest of its own."""
    return sealed(page(text, figures), "<!-- {} -->")


def figures_of(name: str) -> str:
    """The folder for the figures of a document outside a run folder: it is that document's alone,
    so that figures of equal names beside it are not overwritten."""
    return f"{name}.{FOLDER}"


def _write(
    host: Host, path: str, text: str, figures: Mapping[str, bytes], folder: str
) -> str | None:
    """Write figures, then the document; returns under what name an edited one was kept."""
    beside = posixpath.join(posixpath.dirname(path), folder)
    host.make_dir(posixpath.dirname(path), 0o700)
    if figures:
        host.make_dir(beside, 0o700)
    for name, png in figures.items():
        host.write(f"{beside}/{name}", png, 0o600)
    before, kept = host.read(path), None
    if before is not None and is_edited(before.decode(errors="replace")):
        kept = host_files.keep_copy(host, path, before)
    host.write(path, text, 0o600)
    return kept


def render(run_path: Path, folder: str = FOLDER) -> tuple[str, dict[str, bytes]]:
    """The text of the document, and its figures: file name to PNG. Nothing is written.

    ``folder``: where the figures will lie, relative to the document.
    """
    found = Artefacts.of(run_path)
    exporter = MarkdownExporter(config=Config(TemplateExporter={"exclude_input": True}))
    exporter.register_preprocessor(_ForTheRecord, enabled=True)
    given = {"record_folder": folder, "record_figures": {}}
    body, resources = exporter.from_notebook_node(assemble(found), resources=given)
    return sealed(_squeeze(body)), resources["record_figures"]


_GAPS = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1$|\n(?:[ \t]*\n){2,}", re.MULTILINE | re.DOTALL)


def _squeeze(text: str) -> str:
    """``text`` with one blank line at most between two others; what is fenced stays as it is."""
    return _GAPS.sub(lambda match: match[0] if match[1] else "\n\n", text).strip() + "\n"


class _ForTheRecord(Preprocessor):
    """Of a cell's outputs keep those for the record, each as Markdown: images become links."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict[str, Any], index: int
    ) -> tuple[NotebookNode, dict[str, Any]]:
        if cell.cell_type == "code":
            texts = (_as_markdown(output, cell.metadata, resources) for output in cell.outputs)
            cell.outputs = [
                new_output("display_data", {"text/markdown": text}) for text in texts if text
            ]
        return cell, resources


def _as_markdown(
    output: NotebookNode, of_cell: Mapping[str, Any], resources: dict[str, Any]
) -> str | None:
    if output.output_type == "stream":
        shown = of_cell.get("record_streams") and output.name == "stdout" and output.text.strip()
        return fence(_printed(output.text)) if shown else None
    if output.output_type == "error":
        return fence(f"{output.ename}: {output.evalue}")
    data = output.get("data", {})
    if "text/markdown" in data:
        return strip_controls(data["text/markdown"])
    if "image/png" in data:
        return _linked(output, of_cell["record"], resources)
    if "text/plain" not in data or any("widget" in kind for kind in data):
        return None
    return fence(data["text/plain"])


def _printed(text: str) -> str:
    """What a terminal would show in the end: of each line what followed the last return."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _linked(output: NotebookNode, section: str, resources: dict[str, Any]) -> str:
    """A link to the figure, which is put by under its stable name."""
    said, figures = output.metadata.get("runbook", {}), resources["record_figures"]
    name, alt = str(said.get("figure", "")), str(said.get("alt", "figure"))
    if not _FIGURE_NAME.fullmatch(name):
        name = f"{section}_{sum(one.startswith(section) for one in figures) + 1}.png"
    figures[name] = base64.b64decode(output.data["image/png"])
    return f"![{escape(alt)}]({quote(resources['record_folder'])}/{name})"
