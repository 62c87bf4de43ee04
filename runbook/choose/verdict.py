"""From a decision to what happens: the stage's verdict and the configuration to install."""

from __future__ import annotations

from runbook import params
from runbook.checks import Verdict
from runbook.choose.words import show
from runbook.decision import Decision


def verdict(decision: Decision, rule: params.Choose, to_install: bool = True) -> Verdict:
    """The one line of the stage.

    Negative when no choice is clear, when it is not the expected one, and, where it is
    ``to_install`` (``runbook choose`` is not), when it is only provisional; and when an A/A
    control failed. An override decides
    in any case, and is named with its reason and person.
    """
    measured = _measured(decision)
    if rule.override:
        override = rule.override
        if override.choose == decision.choice and decision.status == "provisional":
            accepted = f"accepted by {override.by} ({override.reason})"
            return Verdict(True, f"{measured}, {accepted}: {decision.reason}")
        return Verdict(
            True,
            f"{override.choose} by override of {override.by} ({override.reason}); {measured}",
        )
    if decision.failed_controls:
        return Verdict(False, f"{measured}, but {decision.failed_controls[0]}")
    if decision.choice is None:
        return Verdict(False, f"{measured}: {decision.reason}")
    if rule.expected and decision.choice != rule.expected:
        why = decision.reason
        if decision.choice == decision.baseline:
            why = f"that gives {show(decision.effect(rule.expected))}"
        return Verdict(False, f"{measured}, expected was {rule.expected}: {why}")
    if decision.status == "provisional" and to_install:
        needs = "installing from it needs choose.override with reason and name"
        return Verdict(False, f"{measured}, {needs}: {decision.reason}")
    return Verdict(True, f"{measured}: {decision.reason}")


def final_choice(decision: Decision, rule: params.Choose) -> str | None:
    """What to install: the override's, else the clear and expected choice, else ``None``."""
    if rule.override:
        return rule.override.choose
    return decision.choice if verdict(decision, rule).ok else None


def _measured(decision: Decision) -> str:
    if decision.status == "chosen":
        return f"the figures choose {decision.choice}"
    if decision.status == "provisional":
        return f"the figures choose {decision.choice} provisionally"
    return f"the figures leave it {decision.status.replace('_', ' ')}"
