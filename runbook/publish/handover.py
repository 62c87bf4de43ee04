"""What whoever takes over needs: the service and its proofs, how to run it, how to undo it."""

from __future__ import annotations

import shlex
from pathlib import Path

from runbook.params import Params
from runbook.publish.artefacts import Artefacts
from runbook.publish.state import how_it_stands
from runbook.publish.tables import UNKNOWN, Code, Markdown, code, escape, fence, joined, table

#: Who carries out the commands of the section, by kind of host.
_WHERE = {
    "local": "on this machine, as root",
    "ssh": "on {address}, as root",
    "box": "from the clone: the systemd of this rehearsal lives in a box of the run folder",
}


def service_section(run_path: Path) -> Markdown:
    """The unit, the files that belong to it, and the plan with its difference."""
    found = Artefacts.of(run_path)
    unit, manifest = found.run.params.service.unit, found.manifest
    text, diff = found.service_file(unit), found.service_file("diff.txt")
    files = [
        {"file": Code(path), "sha256": Code(str(digest))}
        for path, digest in dict(manifest.get("files", {})).items()
    ]
    configuration = escape(str(manifest.get("configuration", UNKNOWN)))
    parts = [f"Unit {code(unit)}, configuration **{configuration}**."]
    if found.unmeasured is not None:
        parts.append(f"**Installed without a measurement: {escape(found.unmeasured)}**")
    if manifest.get("start_timeout_origin"):
        parts.append(escape(str(manifest["start_timeout_origin"])) + ".")
    parts.append(fence(text, "ini") if text else "*The unit was not written.*")
    parts.append(str(table(files, empty="No file is recorded.")))
    if diff is not None:
        parts.append("The plan, with the difference to what was there:\n\n" + fence(diff, "diff"))
    return Markdown("\n\n".join(parts))


def proofs_table(run_path: Path) -> Markdown:
    """Each proof, how it ended, and the evidence."""
    return table(
        (
            {"proof": proof["name"], "status": proof["status"], "evidence": proof["evidence"]}
            for proof in Artefacts.of(run_path).proofs
        ),
        empty="No proof was made.",
    )


def operations(run_path: Path) -> Markdown:
    """How to start, stop and watch the service, roll it back, and what happens by itself."""
    found = Artefacts.of(run_path)
    params = found.run.params
    where = _WHERE[params.host.kind].format(address=escape(params.host.address or ""))
    return joined(
        _once_installed(found),
        f"The commands are given {where}.",
        table(_commands(params, run_path)),
        "\n".join(f"- {line}" for line in _by_itself(params)),
    )


def _once_installed(found: Artefacts) -> str:
    step = found.steps["install_service"]
    if step.status == "completed":
        return ""
    if step.status in ("pending", "skipped"):
        how = f"The service is not installed by this run (this step is {step.status})"
        return f"**{how}; the following holds once it is.**"
    said = "The service may run all the same: look at its status, and roll it back if it must not."
    return f"**{how_it_stands(step)}**\n\n{said}"


def _commands(params: Params, run_path: Path) -> list[dict[str, object]]:
    unit, run = shlex.quote(params.service.unit), shlex.quote(str(run_path.resolve()))
    file = shlex.quote(str(run_path.resolve() / "params.yaml"))
    rows = [
        ("start (returns when a completion was served)", f"systemctl start {unit}"),
        ("stop", f"systemctl stop {unit}"),
        ("restart", f"systemctl restart {unit}"),
        ("after a start limit was hit", f"systemctl reset-failed {unit}"),
        ("status", f"systemctl status {unit}"),
        ("logs, following", f"journalctl -u {unit} -f"),
        ("not at boot any more", f"systemctl disable {unit}"),
    ]
    own = [
        ("status", f"runbook service status {file} --run {run}"),
        ("logs", f"runbook service logs {file} --run {run}"),
        (
            "prove again (kills it)",
            f"runbook service verify {file} --run {run}",
        ),
        ("roll back to the generation before", f"runbook service rollback {file} --run {run}"),
        ("remove", f"runbook service uninstall {file} --run {run}"),
    ]
    rows = own if params.host.kind == "box" else [*rows, *own[2:]]
    return [{"to": what, "command": Code(command)} for what, command in rows]


def _by_itself(params: Params) -> list[str]:
    service, timeouts = params.service, params.server.timeouts
    return [
        f"At boot: {code(service.unit)} is enabled and starts with multi-user.target.",
        f"On a crash: systemd starts it again after {service.restart_s:g} s; after "
        f"{service.start_limit_burst} failed starts it stays failed until "
        f"{code('systemctl reset-failed ' + service.unit)}.",
        f"On stop: SIGTERM, and what still runs after {timeouts.stop_s:g} s is killed.",
        "On drift (unit or drop-in changed by hand): nothing happens by itself; "
        f"{code('runbook service status')} tells.",
    ]


def repeat(run_path: Path) -> Markdown:
    """The one command that repeats the run, and the parameters it needs."""
    found = Artefacts.of(run_path)
    command = "runbook run params.yaml --apply"
    return Markdown(
        "\n\n".join(
            [
                f"In a clone of the project, with the text below as {code('params.yaml')}:",
                fence(command, "sh"),
                fence(found.run.params.to_yaml(), "yaml"),
            ]
        )
    )
