"""The notebook of the document: a heading for each section, and below it what bears the section.

That is the recorded cells of the executed notebooks, or else what the run's artefacts give: a
chain by hand leaves no notebook in the run folder, and a stage at work has not left its own yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from runbook.errors import BadInput
from runbook.publish import run_figures, sections
from runbook.publish.artefacts import Artefacts
from runbook.publish.figure import Figure
from runbook.publish.outline import KEYS, OUTLINE, Section
from runbook.publish.state import headline, not_reached, unfinished, verdict_lines, why_stopped
from runbook.publish.tables import Markdown, escape, joined
from runbook.run import STAGES

_FROM_ARTEFACTS: Mapping[str, Callable[[Path], Markdown]] = {
    "decision": sections.decision_table,
    "benchmark": sections.benchmark_table,
    "launch": sections.launch_section,
    "stack": sections.stack_table,
    "models": sections.models,
    "service": sections.service_section,
    "proofs": sections.proofs_table,
    "operations": sections.operations,
    "rollback": sections.rollback,
    "assumptions": sections.assumptions,
    "limits": sections.limits,
    "repeat": sections.repeat,
    "provenance": sections.provenance,
}
#: How a service is operated and undone, which may run though its step was not completed.
_WHERE_IT_RUNS = ("operations", "rollback")
_FIGURES: Mapping[str, tuple[Callable[..., Figure], ...]] = {
    "decision": (run_figures.ratio,),
    "benchmark": (
        run_figures.throughput,
        run_figures.user_speed,
        run_figures.acceptance,
        run_figures.latency,
        run_figures.run_order,
    ),
}


def assemble(found: Artefacts) -> NotebookNode:
    """One notebook: head, then every section with its cells. Raises ``BadInput``."""
    recorded = _recorded_cells(found)
    cells = [new_markdown_cell(_head(found))]
    for section in OUTLINE:
        cells.append(new_markdown_cell(f"## {section.title}"))
        cells += recorded[section.key] or _cells_from_artefacts(found, section)
    notebook: NotebookNode = new_notebook(cells=cells)
    return notebook


def _head(found: Artefacts) -> str:
    lines = [f"# {escape(found.run.params.name)}: production record"]
    said = headline(found)
    if not said.startswith("Complete"):
        lines.append(f"**{escape(said)}**")
    return "\n\n".join([*lines, sections.what_it_is(found)])


# --- from the notebooks


def _recorded_cells(found: Artefacts) -> dict[str, list[NotebookNode]]:
    """The code cells with outputs, by section, of the notebooks that tell of the run as it is."""
    recorded: dict[str, list[NotebookNode]] = {key: [] for key in KEYS}
    for number, stage in enumerate(STAGES, 1):
        name = f"{number:02}_{stage}.ipynb"
        if not _is_current(found, stage, name):
            continue
        for cell in _read(found.path / name).cells:
            section = cell.metadata.get("record")
            if cell.cell_type == "code" and section in recorded and cell.outputs:
                recorded[section].append(cell)
    return recorded


def _is_current(found: Artefacts, stage: str, name: str) -> bool:
    """Whether a notebook is of the last pass of its stage, and nothing before it was done again.

    A stage at work, or killed, has not left its notebook yet: what lies there is an earlier one.
    """
    if found.steps[stage].status not in ("completed", "failed", "skipped"):
        return False
    return found.is_since(name, *STAGES[: STAGES.index(stage) + 1])


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


# --- from the artefacts


def _cells_from_artefacts(found: Artefacts, section: Section) -> list[NotebookNode]:
    """What the artefacts give for a section that no notebook bears, or why there is nothing."""
    if section.key == "verdict":
        lines = [f"{number}. {line}" for number, line in enumerate(verdict_lines(found), 1)]
        return [new_markdown_cell(str(joined("\n".join(lines), why_stopped(found))))]
    step = found.steps[section.step] if section.step else None
    if step is not None and not _is_there(found, section):
        return [new_markdown_cell(not_reached(found, step))]
    cells = [new_markdown_cell(str(_FROM_ARTEFACTS[section.key](found.path)))]
    for draw in _FIGURES.get(section.key, ()):
        cells.append(_figure_cell(section.key, draw(found.path, keep=False)))
    if step is not None and step.status != "completed" and section.key not in _WHERE_IT_RUNS:
        cells.insert(0, new_markdown_cell(unfinished(step)))  # operations say it themselves
    return cells


def _is_there(found: Artefacts, section: Section) -> bool:
    """Whether what the section is made from was left, and not by a pass before the last one.

    A service of an earlier pass may run all the same: how it is operated is always said.
    """
    assert section.step is not None
    if section.key in ("decision", "proofs"):
        left = bool(found.decision if section.key == "decision" else found.proofs)
    else:
        left = (found.path / section.artefact).is_file()
    begun = found.steps[section.step].status != "pending"
    return left and (begun or section.key in _WHERE_IT_RUNS)


def _figure_cell(section: str, figure: Figure) -> NotebookNode:
    data, metadata = figure._repr_mimebundle_()
    output = new_output("display_data", data, metadata=metadata)
    cell: NotebookNode = new_code_cell(metadata={"record": section}, outputs=[output])
    return cell
