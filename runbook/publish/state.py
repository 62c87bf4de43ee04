"""How far a run has come, in words: the head of the document, its to-do list, what is missing."""

from __future__ import annotations

from runbook.checks import counted
from runbook.publish.artefacts import Artefacts
from runbook.publish.tables import code, escape, fence, number
from runbook.run import Step

#: Steps that are at work while a document is exported: it is what they do.
_EXPORTING = ("draft", "publish", "plan_document")

#: How the reason of a step begins that ended without an installed service.
_NOT_INSTALLED = "not installed: "

NO_REASON = "no reason was noted"

#: Characters of a reason that the head of the document has room for.
_SENTENCE = 300


def headline(found: Artefacts) -> str:
    """One line: ``Complete...``, ``FAILED at ...``, ``INTERRUPTED at ...``, ``DRAFT: ...``,
    ``UNMEASURED: ...`` or ``Measured and chosen, not installed: ...``."""
    stopped = _stopped(found)
    if stopped is not None:
        word = "FAILED" if stopped.status == "failed" else "INTERRUPTED"
        return f"{word} at {stopped.name}: {sentence(stopped.reason)}"
    for step in found.steps.values():
        if step.status == "in_progress" and step.name not in _EXPORTING:
            return f"DRAFT: {step.name} is still at work"
    service = found.steps["install_service"]
    if service.status == "skipped" and service.reason.startswith(_NOT_INSTALLED):
        return f"Measured and chosen, {sentence(service.reason)}"
    if service.status == "skipped":
        return f"DRAFT: the service is not installed: {sentence(service.reason)}"
    if service.status != "completed":
        return "DRAFT: the service is not installed yet"
    if found.unmeasured is not None:
        return f"UNMEASURED: the service was installed without a measurement: {found.unmeasured}"
    if not found.proofs:
        return "INSTALLED, not proved: `runbook service verify` proves it"
    publish = found.steps["publish"]
    if publish.status == "pending":
        return "INSTALLED and proved, not published: `runbook run` from the stage publish ends it"
    not_booted = found.steps["boot"].status != "completed"
    boot = "; that it comes back at a boot is not proved" if not_booted else ""
    figures = "with figures measured elsewhere, chosen" if found.figures_of else "measured, chosen"
    return f"Complete: {figures} and installed{boot}"


def not_reached(found: Artefacts, step: Step) -> str:
    """Why the section that ``step`` brings about has no content."""
    stopped = _stopped(found)
    if step.status == "completed":
        return f"Not recorded: {step.name} has ended, and left nothing for this section."
    if step.status == "pending" and stopped is not None:
        word = "failed" if stopped.status == "failed" else "was interrupted"
        return f"Not reached: the run {word} at {stopped.name}."
    return f"Not reached: {how_it_stands(step)}"


def how_it_stands(step: Step) -> str:
    """A step and its status as a clause of Markdown, with the reason where there is one."""
    if step.status in ("failed", "interrupted"):
        return f"{step.name} {step.status}: {escape(sentence(step.reason))}"
    if step.status == "skipped":
        return f"{step.name} was skipped: {escape(sentence(step.reason))}"
    if step.status == "in_progress":
        return f"{step.name} is still at work."
    return f"{step.name} has {'ended' if step.status == 'completed' else 'not been started'}."


def unfinished(step: Step) -> str:
    """What must be said before what a step left that is not completed."""
    if step.status in ("failed", "interrupted"):
        how = f"{step.name} {step.status}, see the verdict."
    else:
        how = how_it_stands(step)
    return f"**Unfinished: {how}** What follows is recorded all the same."


def status_in_document(found: Artefacts, step: Step) -> str:
    """The status of a step as a document shows it that is itself the work of some steps."""
    said = step.status.replace("_", " ")
    if step.status == "in_progress" and step.name in _EXPORTING:
        return f"{said} (this document)"
    at_work = found.steps["publish"].status == "in_progress"
    if at_work and step.name == "plan_document" and step.status == "pending":
        return f"{said} (follows this document)"
    return said


def verdict_lines(found: Artefacts) -> list[str]:
    """The verdict in three lines of Markdown: the choice, the service, the run."""
    return [
        f"**Choice.** {_choice(found)}",
        f"**Service.** {_service(found)}",
        f"**Run.** {_run(found)}",
    ]


def _run(found: Artefacts) -> str:
    """The head of the document; what line 1 says in full is not said again."""
    stopped, decision = _stopped(found), found.decision
    if stopped and stopped.name == "choose" and decision and decision["choice"] is None:
        return "FAILED at choose: no choice, see line 1."
    said = headline(found)
    return escape(said if said.endswith((".", "...")) else f"{said}.")


def gain(effect: dict[str, object]) -> str:
    """An effect in words: ``+16.2 % (95 %: +12.1 % to +20.4 %, 3 blocks)``."""
    ratio, low, high = effect["ratio"], effect["low"], effect["high"]
    if not isinstance(ratio, float | int):
        return "unknown"
    if isinstance(low, float | int) and isinstance(high, float | int):
        blocks = counted(int(str(effect["blocks"])), "block")
        span = f"95 %: {percent(low)} to {percent(high)}, {blocks}"
    else:
        span = "no interval"
    return f"{percent(ratio)} ({span})"


def percent(ratio: float) -> str:
    """A ratio as a signed percentage, ``1.05`` as ``+5.0 %``."""
    return f"{100 * (ratio - 1):+.1f} %".replace("-", "\N{MINUS SIGN}")


def _choice(found: Artefacts) -> str:
    decision = found.decision
    if decision is None:
        return "None yet: nothing was decided."
    override = found.run.params.choose.override
    said = _measured_choice(decision)
    if override is None:
        return said
    if found.figures_of:
        source = f"The figures are from {code(found.figures_of)} and were not measured by this run."
        if override.choose == decision["choice"]:
            who = f"{escape(override.by)} ({escape(override.reason)})"
            return f"{said} Accepted by {who}. {source}"
        said = f"{said} {source}"
    who = f"{escape(override.by)}: {escape(override.reason)}"
    return f"{escape(override.choose)}, by override of {who}. The figures say: {said}"


def _measured_choice(decision: dict[str, object]) -> str:
    choice, status = decision["choice"], str(decision["status"]).replace("_", " ")
    if choice is None:
        reason = escape(str(decision["reason"])).removesuffix(".")
        return f"None, {status}: {reason}."
    baseline = str(decision["baseline"])
    word = " (provisional)" if status == "provisional" else ""
    effects = decision["effects"]
    assert isinstance(effects, list)
    effect = next((one for one in effects if one["config"] == choice), None)
    if choice == baseline or effect is None:
        return f"{escape(str(choice))}{word}: {escape(str(decision['reason']))}"
    return (
        f"{escape(str(choice))}{word}: {gain(effect)} output throughput "
        f"against {escape(baseline)} in the declared mix."
    )


def _service(found: Artefacts) -> str:
    unit = escape(found.run.params.service.unit)
    if found.unmeasured is not None:
        unit += f", installed without a measurement ({escape(found.unmeasured)})"
    if not found.proofs:
        return f"{unit} is not proved: no proof was made."
    by_status: dict[str, list[str]] = {}
    for proof in found.proofs:
        by_status.setdefault(str(proof["status"]), []).append(str(proof["name"]))
    counts = ", ".join(
        f"{number(len(names))} {status}" + (f" ({', '.join(names)})" if status != "proved" else "")
        for status, names in by_status.items()
    )
    return f"{unit}, {counted(len(found.proofs), 'proof')}: {escape(counts)}."


def _stopped(found: Artefacts) -> Step | None:
    """The first step that failed or was interrupted."""
    return next(
        (step for step in found.steps.values() if step.status in ("failed", "interrupted")), None
    )


def sentence(reason: str) -> str:
    """A reason as one short line; ``in_full`` has the rest."""
    first, *more = reason.strip().split("\n")
    line = " ".join(first.removesuffix(":").split() if more else first.split())
    if len(line) > _SENTENCE:
        line = (line[:_SENTENCE].rpartition(" ")[0] or line[:_SENTENCE]) + " ..."
    return line or NO_REASON


def in_full(name: str, reason: str) -> str:
    """All that a step or a proof said, as a block; nothing where its one line is all."""
    if sentence(reason) in (reason.strip(), NO_REASON):
        return ""
    return f"All that {escape(name)} said:\n\n{fence(reason)}"


def why_stopped(found: Artefacts) -> str:
    """In full why the run stopped; nothing where it did not, or one line is all."""
    stopped = _stopped(found)
    return in_full(stopped.name, stopped.reason) if stopped else ""
