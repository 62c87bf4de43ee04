"""The record where the service lives: the document and the block in the plan document.

Relative paths of the parameters start at ``server.cwd``. Links are followed and stay links. What
was edited by hand is kept beside the file as ``<name>.orig-N`` and named in the answer.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from runbook.errors import BadInput, NotHere
from runbook.hosts.base import Host
from runbook.params import Params
from runbook.publish import document, plan_document
from runbook.publish.artefacts import Artefacts
from runbook.publish.figure import FOLDER
from runbook.publish.state import headline, verdict_lines
from runbook.publish.tables import escape
from runbook.run import now


@dataclass(frozen=True)
class Written:
    """A file on the host: whether it changed, and the copy kept of what was edited by hand."""

    path: str
    changed: bool
    kept: str | None = None

    def __str__(self) -> str:
        said = f"{self.path}: {'written' if self.changed else 'was up to date'}"
        kept = f"; it was edited by hand, the old text is kept as {self.kept}" if self.kept else ""
        return said + kept


def write_document(host: Host, run_path: Path) -> Written | None:
    """Write ``record.document`` and its figures on the host; ``None`` where none is wanted.

    Raises ``HostFailed`` when the host refuses.
    """
    found = Artefacts.of(run_path)
    path = document_path(found.run.params)
    if path is None:
        return None
    text, figures = document.render(run_path)
    target = _resolved(host, path)
    folder = posixpath.dirname(target)
    host.make_dir(f"{folder}/{FOLDER}", 0o700)
    for name, png in figures.items():
        host.write(f"{folder}/{FOLDER}/{name}", png, 0o600)
    before = host.read(target)
    edited = before is not None and document.is_edited(before.decode(errors="replace"))
    kept = _keep(host, target, before) if before is not None and edited else None
    host.write(target, text, 0o600)
    return Written(path, True, kept)


def write_plan(host: Host, run_path: Path) -> Written | None:
    """Insert or replace the block in ``record.plan`` on the host; ``None`` where none is wanted.

    Mode and owner of the file stay. Raises ``BadInput`` for a file with two blocks.
    """
    found = Artefacts.of(run_path)
    path = plan_path(found.run.params)
    if path is None:
        return None
    target = _resolved(host, path)
    before = host.read(target)
    try:
        after = plan_document.update(before, plan_block(found))
    except BadInput as error:
        raise BadInput(f"{path}: {error.found}", error.wanted, error.do) from None
    if after == before:
        return Written(path, False)
    edited = before is not None and plan_document.is_edited(before)
    kept = _keep(host, target, before) if before is not None and edited else None
    if before is None:
        host.make_dir(posixpath.dirname(target))
    _replace(host, target, after, before is not None)
    return Written(path, True, kept)


def plan_block(found: Artefacts) -> str:
    """The block: result, date and link."""
    params = found.run.params
    ended = found.steps["install_service"].ended or now()
    lines = [
        f"### Go-live: {escape(params.name)}, {ended[:10]}",
        "",
        f"Status: {escape(headline(found))}",
        "",
        *(f"- {line}" for line in verdict_lines(found)[:2]),
    ]
    record, plan = document_path(params), plan_path(params)
    if record is not None and plan is not None:
        link = quote(posixpath.relpath(record, posixpath.dirname(plan)))
        lines.append(f"- **Record.** [{escape(posixpath.basename(record))}]({link})")
    return "\n".join(lines)


def document_path(params: Params) -> str | None:
    """Where the document goes on the host, absolute; ``None`` where none is wanted."""
    return _absolute(params, params.record.document)


def plan_path(params: Params) -> str | None:
    """Where the plan document lies on the host, absolute; ``None`` where none is wanted."""
    return _absolute(params, params.record.plan)


def _absolute(params: Params, path: str | None) -> str | None:
    return None if path is None else posixpath.normpath(posixpath.join(params.server.cwd, path))


def _resolved(host: Host, path: str) -> str:
    """The file behind ``path``, links followed. Raises ``NotHere`` for a loop of links."""
    done = host.run("realpath", "-m", "--", path, check=False)
    if done.code or not done.out.startswith("/"):
        raise NotHere(f"{path} on the host cannot be resolved: {done.err.strip()}", "a file's path")
    return done.out.rstrip("\n")


def _keep(host: Host, target: str, content: bytes) -> str:
    folder, name = posixpath.split(target)
    kept = document.free_name(name, host.list(folder) or [])
    host.write(f"{folder}/{kept}", content, 0o600)
    return kept


def _replace(host: Host, target: str, content: bytes, is_there: bool) -> None:
    """Write ``content`` with the mode and owner the file has."""
    if not is_there:
        host.write(target, content, 0o644)
        return
    mode, owner = host.run("stat", "-c", "%a %u:%g", "--", target).out.split()
    host.write(target, content, int(mode, 8))
    if owner != "0:0":
        host.run("chown", "--", owner, target)
