"""How far a run has come, in words: the head of the document and what was not reached."""

from __future__ import annotations

from runbook.publish.artefacts import Artefacts
from runbook.publish.tables import escape, number
from runbook.run import Step

#: Steps that are at work while a document is exported.
_EXPORTING = ("draft", "publish", "plan_document")


def headline(found: Artefacts) -> str:
    """One line: ``Complete``, ``FAILED at ...``, ``INTERRUPTED at ...`` or ``DRAFT: ...``."""
    stopped = _stopped(found)
    if stopped is not None:
        word = "FAILED" if stopped.status == "failed" else "INTERRUPTED"
        return f"{word} at {stopped.name}: {_reason(stopped)}"
    for step in found.steps.values():
        if step.status == "in_progress" and step.name not in _EXPORTING:
            return f"DRAFT: {step.name} is still at work"
    service = found.steps["install_service"]
    if service.status == "skipped":
        return f"DRAFT: the service is not installed: {_reason(service)}"
    if service.status != "completed":
        return "DRAFT: the service is not installed yet"
    return "Complete: measured, chosen and installed"


def not_reached(found: Artefacts, step: Step) -> str:
    """Why the section that ``step`` brings about has no content."""
    stopped = _stopped(found)
    if step.status in ("failed", "interrupted"):
        return f"Not reached: {step.name} {step.status}: {escape(_reason(step))}"
    if step.status == "skipped":
        return f"Not reached: {step.name} was skipped: {escape(_reason(step))}"
    if step.status == "in_progress":
        return f"Not reached: {step.name} is still at work."
    if step.status == "completed":
        return f"Not recorded: {step.name} has ended, and no executed cell bears this section."
    if stopped is not None:
        word = "failed" if stopped.status == "failed" else "was interrupted"
        return f"Not reached: the run {word} at {stopped.name}."
    return f"Not reached: {step.name} has not been started."


def verdict_lines(found: Artefacts) -> list[str]:
    """The verdict in three lines of Markdown: the choice, the service, the run."""
    return [
        f"**Choice.** {_choice(found)}",
        f"**Service.** {_service(found)}",
        f"**Run.** {escape(headline(found))}",
    ]


def gain(effect: dict[str, object]) -> str:
    """An effect in words: ``+16.2 % (95 %: +12.1 % to +20.4 %, 3 blocks)``."""
    ratio, low, high = effect["ratio"], effect["low"], effect["high"]
    if not isinstance(ratio, float | int):
        return "unknown"
    if isinstance(low, float | int) and isinstance(high, float | int):
        span = f"95 %: {percent(low)} to {percent(high)}, {effect['blocks']} blocks"
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
    who = f"{escape(override.by)}: {escape(override.reason)}"
    return f"{escape(override.choose)}, by override of {who}. The figures say: {said}"


def _measured_choice(decision: dict[str, object]) -> str:
    choice, status = decision["choice"], str(decision["status"]).replace("_", " ")
    if choice is None:
        return f"None: {status}. {escape(str(decision['reason']))}"
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
    if not found.proofs:
        return f"{unit} is not proved: no proof was made."
    by_status: dict[str, int] = {}
    for proof in found.proofs:
        by_status[str(proof["status"])] = by_status.get(str(proof["status"]), 0) + 1
    counts = ", ".join(f"{number(n)} {status.replace('_', ' ')}" for status, n in by_status.items())
    return f"{unit}, {len(found.proofs)} proofs: {escape(counts)}."


def _stopped(found: Artefacts) -> Step | None:
    """The first step that failed or was interrupted."""
    return next(
        (step for step in found.steps.values() if step.status in ("failed", "interrupted")), None
    )


def _reason(step: Step) -> str:
    return " ".join(step.reason.split()) or "no reason was noted"
