"""How a document was made: by which versions, from which commit, when each step was done."""

from __future__ import annotations

from pathlib import Path

from runbook.publish.artefacts import Artefacts
from runbook.publish.findings import todo_table
from runbook.publish.tables import Code, Markdown, table
from runbook.run import clone_root, now
from runbook.versions import versions

_WHAT = {"commit": "commit of the project", "python": "Python of the runbook"}


def provenance(run_path: Path) -> Markdown:
    """Run, parameters, and the versions at its beginning; those of the export where they are
    others; then the to-do list with its times."""
    found = Artefacts.of(run_path)
    stored = found.run.read_json("run.json") or {}
    begun, exported = stored.get("versions") or {}, versions(clone_root())
    rows = [
        ("run", Code(found.path.resolve().name)),
        ("begun", stored.get("created")),
        *((_WHAT.get(name, name), begun.get(name)) for name in exported),
        ("parameters", Code(found.run.params.identity())),
        ("exported", now()),
        *(
            (f"{_WHAT.get(name, name)}, at the export", value)
            for name, value in exported.items()
            if value != begun.get(name)
        ),
        ("made by", Code("runbook export")),
    ]
    made = table({"what": what, "value": value} for what, value in rows)
    return Markdown(f"{made}\n\n### To-do list\n\n{todo_table(run_path, in_document=True)}")
