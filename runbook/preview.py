"""What a parameters file means, before anything is started: launches, and the cost in time."""

from __future__ import annotations

from typing import Any

from runbook import benchmark
from runbook.engines import Seen, engine_for
from runbook.launch.quoting import exec_line
from runbook.launch.spec import LaunchSpec
from runbook.params import Params
from runbook.verify_stack import require_known_checks
from runbook.verify_stack.checks import CARD_CHECKS, DEPLOYMENT_CHECKS


def preview(parameters: Params) -> dict[str, Any]:
    """Resolved launches and estimated seconds, as plain data; no side effect."""
    engine = engine_for(parameters.server)
    require_known_checks(parameters, engine.stack_checks)
    launches = {
        configuration.name: {"label": configuration.label, "command": _command(spec)}
        for configuration in parameters.configurations
        for spec in [engine.launch_spec(parameters, configuration)]
    }
    asked = benchmark.workload_of(parameters.workload).prompts
    benchmark.plan_workload(parameters, asked)
    cost = benchmark.estimate(parameters)
    return {
        "name": parameters.name,
        "identity": parameters.identity(),
        "lives": cost.lives,
        "estimated_s": round(cost.seconds),
        "loading_s": round(cost.loading_s),
        "least_s": round(cost.least_s),
        "most_s": round(cost.most_s),
        "estimate_assumes": cost.assumes,
        "cost": cost.sentence,
        "foreseen": benchmark.foresee(parameters, asked),
        "host": parameters.host.kind,
        "rests": parameters.service.replaces,
        "configurations": launches,
        "open": [
            {"name": check.name, "status": check.status, "found": check.found, "fix": check.fix}
            for check in engine.check_stack(parameters, Seen())
            if check.status in ("fail", "warn", "unknown")
        ],
        "not_looked_at": [
            name
            for name in (*DEPLOYMENT_CHECKS, *(CARD_CHECKS if parameters.stack.gpus else ()))
            if parameters.stack.checks.get(name) != "off"
        ],
    }


def _command(spec: LaunchSpec) -> str:
    """The launch to paste. Raises ``BadInput`` for one that no unit can carry."""
    exec_line(spec.argv)
    return spec.shell_command()


def as_text(shown: dict[str, Any]) -> str:
    """The preview for people."""
    lines = [f"{shown['name']}: parameters are valid (identity {shown['identity']})", ""]
    for name, launch in shown["configurations"].items():
        lines += [f"# {name}: {launch['label']}".rstrip(": "), launch["command"], ""]
    if shown["open"]:
        lines += ["Of the stack, without looking at the host:"]
        lines += [f"  {one['name']}: {one['status']}, {one['found']}" for one in shown["open"]]
        lines.append("")
    looks = ", ".join(shown["not_looked_at"])
    lines += [f"Not looked at before the host is: {looks} (runbook facts PARAMS, there).", ""]
    lines.append(
        f"The benchmark {shown['cost']}. The stages around it take "
        "seconds; installing and proving starts the server five times more."
    )
    lines += [f"Known before it starts: {said}." for said in shown["foreseen"]]
    if shown["host"] == "ssh":
        lines.append(
            "The load would come over ssh, and its way would be measured with it: to measure, run "
            "the runbook on the host itself (host.kind: local)."
        )
    if shown["rests"]:
        lines.append(
            f"With --apply, {', '.join(shown['rests'])} rests while it measures, is brought back "
            "after it, and gives way to the new service once that has served."
        )
    return "\n".join(lines)
