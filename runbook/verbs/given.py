"""``runbook run --figures``: figures that were measured elsewhere begin a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runbook import benchmark, choose, foreign
from runbook.choose import figure_guards
from runbook.errors import BadInput, NotChosen
from runbook.params import BASELINE, Override, Params
from runbook.run import Run
from runbook.verbs import choosing


def read(parameters: Params, paths: Sequence[Path]) -> foreign.Found:
    """The figures of ``paths``, judged as ``runbook choose`` judges them.

    Cells of unequal work, and cells that a queue limited, are void. Raises ``BadInput``.
    """
    return choosing.read_comparable(paths, BASELINE, choosing.args_of(parameters))


def accept(
    parameters: Params, figures: foreign.Found, reason: str | None, by: str | None
) -> Params:
    """``parameters`` with the choice of ``figures`` (of ``read``) accepted, for ``reason``.

    A choice from figures alone is provisional: without ``reason`` and ``by`` the parameters must
    hold an override. Raises ``BadInput`` for names that the parameters do not know and where
    nobody accepts, ``NotChosen`` where the figures choose nothing, or not what is expected.
    """
    names = [one.name for one in parameters.configurations]
    unknown = sorted({cell.config for cell in figures.cells} - {*names})
    if unknown:
        raise BadInput(
            f"the figures are of {', '.join(unknown)}, which these parameters do not have",
            f"figures of {', '.join(names)}",
            "rename them in the figures, or in configurations of the parameters",
        )
    decision = choose.decide(figures.cells, parameters.choose, names)
    said = choose.verdict(decision, parameters.choose, to_install=False)
    if reason is None and by is None:
        if parameters.choose.override is not None:
            return parameters
        raise BadInput(
            f"nobody has accepted a choice from these figures ({said.text})",
            "a reason and a name: figures measured elsewhere give no proved interval here",
            "--accept 'WHY' --by NAME; or, for another configuration, "
            "-p 'choose.override={choose: NAME, reason: WHY, by: WHO}'",
        )
    if not (reason and by):
        missing, given = ("--by", "--accept") if reason else ("--accept", "--by")
        raise BadInput(f"{given} without {missing}", "both", f"add {missing}")
    if parameters.choose.override is not None:
        raise BadInput(
            "--accept, and choose.override in the parameters", "one of them", "leave one away"
        )
    if decision.choice is None or not said.ok:
        raise NotChosen(
            said.text,
            "figures that choose what is to be installed",
            "decide by name: -p 'choose.override={choose: NAME, reason: WHY, by: WHO}'",
        )
    override = Override(choose=decision.choice, reason=reason, by=by)
    rule = parameters.choose.model_copy(update={"override": override})
    return parameters.model_copy(update={"choose": rule})


def keep(run: Run, figures: foreign.Found, paths: Sequence[Path]) -> None:
    """Keep the figures, the files they are from and what they say against themselves in the run."""
    names = [one.name for one in run.params.configurations]
    decision = choose.decide(figures.cells, run.params.choose, names)
    args = choosing.args_of(run.params)
    guards = figure_guards.find_notes(decision, figures.cells, args)
    benchmark.keep(run, figures.cells, (*guards, *figures.notes), foreign.files_in(paths))
