"""The section on the configuration to serve: its launch, each variable with its origin, NCCL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runbook.launch.spec import LaunchSpec
from runbook.params import Params
from runbook.publish.artefacts import Artefacts
from runbook.publish.tables import (
    UNKNOWN,
    Code,
    Markdown,
    code,
    escape,
    fence,
    joined,
    table,
)
from runbook.verified import checks_of, fingerprints_of, told_of

#: Checks that say for which cards and links NCCL is set, and whether that works.
_LINK_CHECKS = ("topology", "p2p", "acs", "nccl", "nccl_conf", "nccl_graph", "collective")


def launch_section(run_path: Path, config: str | None = None) -> Markdown:
    """The launch of a configuration (default: the one to serve): command to paste, environment,
    and what NCCL is set to."""
    found = Artefacts.of(run_path)
    name = config or found.chosen or found.baseline
    spec = found.spec(name)
    if spec is None:
        return Markdown(f"*{escape(name)} was not started in this run: no launch is recorded.*")
    launch = found.launches[name]
    unchosen = config is None and found.chosen is None
    loads = ", ".join(f"{seconds:.1f}" for seconds in launch.get("load_s", [])) or UNKNOWN
    return joined(
        "**Nothing is chosen: what follows is the launch of the baseline.**" if unchosen else "",
        f"Configuration **{escape(name)}**, started as {escape(str(launch.get('launch', UNKNOWN)))}"
        f"; seconds from start to the first completion: {loads}.",
        fence(spec.shell_command(), "sh"),
        _beside(spec),
        f"The environment is whole; nothing is inherited. Fingerprint {code(spec.fingerprint())}.",
        environment_table(found, spec, name),
        _ORIGINS,
        "### NCCL and the topology it was tuned for",
        _nccl(found, spec, name),
    )


def _beside(spec: LaunchSpec) -> str:
    """What a launch has that stands in no command line."""
    limits = {"open files": spec.nofile, "locked memory (bytes)": spec.memlock, **spec.limits}
    told = [f"{what} {'unlimited' if most is None else most}" for what, most in limits.items()]
    told += [f"{name} {value}" for name, value in spec.process.items()]
    said = f"Not in the command: it runs as {code(spec.user or 'root')}; {', '.join(told)}."
    for name, path in spec.credentials.items():
        said += (
            f" It wants {code('CREDENTIALS_DIRECTORY')} to name a folder with a file "
            f"{code(name)}, a copy of {code(path)}; systemd makes it from the unit."
        )
    return said


def environment_table(found: Artefacts, spec: LaunchSpec, config: str) -> Markdown:
    """Every variable that a server of this launch sees, with its origin."""
    rows = [*_given(spec, found.run.params, config), *_added(found, config)]
    return table(rows, empty="The environment is empty.")


_ORIGINS = (
    "Origins. *parameters*: `server.env`, or `env` of the configuration. *runbook*: what every "
    "launch is given where the parameters do not set it: a fixed `PATH`, the user's `HOME`, output "
    "without a buffer, and what an embedded server needs. *start of Python*: what Python and its "
    "`sitecustomize` set before the server's own code runs. *the server itself*: seen in the "
    "worker processes of the running service, which its first process was not given."
)


def _given(spec: LaunchSpec, params: Params, config: str) -> Iterator[dict[str, Any]]:
    own = next((one.env for one in params.configurations if one.name == config), {})
    for name, value in sorted(spec.env.items()):
        origin = "runbook"
        if own.get(name) == value:
            origin = "parameters: configuration"
        elif params.server.env.get(name) == value:
            origin = "parameters: server"
        yield _row(name, value, origin)


def _added(found: Artefacts, config: str) -> Iterator[dict[str, Any]]:
    """What the start of Python and the server itself add, as far as anybody has looked."""
    facts = told_of(found.stack, config)
    started: Mapping[str, Any] = facts.get("environment") or {}
    loaded = (facts.get("sitecustomize") or {}).get("loaded")
    by = f"start of Python (sitecustomize: {loaded})" if loaded else "start of Python"
    for how in ("set", "changed"):
        for name, value in started.get(how, {}).items():
            yield _row(name, value, by)
    for name in started.get("removed", []):
        yield {"variable": Code(name), "value": "removed", "origin": by}
    at_start = {**started.get("set", {}), **started.get("changed", {})}
    for name, value in found.set_by_server.items():
        if at_start.get(name) != value:
            yield _row(name, value, "the server itself, for its own processes")


def _row(name: str, value: str, origin: str) -> dict[str, Any]:
    return {"variable": Code(name), "value": Code(value), "origin": origin}


def _nccl(found: Artefacts, spec: LaunchSpec, config: str) -> Markdown:
    stack = found.run.params.stack
    if stack.gpus == 0:
        return Markdown("None: this deployment uses no GPU (`stack.gpus: 0`).")
    checks = checks_of(found.stack)
    links = fingerprints_of(found.stack).get("topology")
    tuned = f"class {code(stack.topology)}" if stack.topology else "not named (`stack.topology`)"
    seen = [*_given(spec, found.run.params, config), *_added(found, config)]
    return joined(
        f"Tuned for: {tuned}. Fingerprint of the links found: {code(links) if links else UNKNOWN}. "
        "With other cards, slots or links the values below have to be tuned again.",
        table(
            (row for row in seen if row["variable"].startswith("NCCL_")),
            empty="No variable of NCCL is set: it chooses for itself.",
        ),
        table(
            (
                {"check": name, "status": checks[name]["status"], "found": checks[name]["found"]}
                for name in _LINK_CHECKS
                if name in checks
            ),
            empty="The links were not looked at.",
        ),
    )
