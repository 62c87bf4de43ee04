"""What whoever takes over needs: the service and its proofs, how to run it, how to undo it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from runbook.launch.server import local_url
from runbook.launch.spec import UNITS
from runbook.launch.unit_file import UnitFile, parse_unit
from runbook.params import Params
from runbook.publish.artefacts import Artefacts
from runbook.publish.state import how_it_stands, in_full, sentence
from runbook.publish.tables import UNKNOWN, Code, Markdown, code, escape, fence, joined, table
from runbook.rehearsal.sglang_on_cpu import INTERPRETER, SETUP
from runbook.run import clone_root

#: The command line as it lies in a clone.
_RUNBOOK = ".venv/bin/runbook"

#: Who carries out the commands of the section, by kind of host.
_WHERE = {
    "local": "as root: `systemctl` and `journalctl` on {here}, `.venv/bin/runbook` there in the "
    "clone {clone}",
    "ssh": "as root: `systemctl` and `journalctl` on {address}, `.venv/bin/runbook` on {here} in "
    "the clone {clone}, from where it was installed",
    "box": "on {here} in the clone {clone}: the systemd of this rehearsal lives in a box of the "
    "run folder, and the service starts and stops with it; each command boots it again",
}


_MONITORING = (
    "For monitoring there are in `service/` of the run folder a scrape and alert rules for "
    "Prometheus and a check that it lives (`NAME-alive.service`, `.timer`), with the measured "
    "figures as thresholds; and one that asks every hour for drift (`NAME-drift.service`, "
    "`.timer`). They are not installed until somebody does it: `service monitoring`, with "
    "`--prometheus DIR` the rules too."
)


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
        said = str(manifest["start_timeout_origin"])
        parts.append(escape(said[0].upper() + said[1:]) + ".")
        parts.append(_how_long(found, manifest))
    parts.append(fence(text, "ini") if text else "*The unit was not written.*")
    parts.append(str(table(files, empty="No file is recorded.")))
    if diff is not None:
        # Of a unit that was not there before the difference is the whole unit, once more.
        plan, new, _ = diff.partition("--- /dev/null\n")
        title = "The plan; the unit is new"
        if not new:
            title = "The plan, with the difference to what was there"
        parts.append(f"{title}:\n\n{fence(plan, 'diff')}" if plan else f"{title}.")
    return Markdown("\n\n".join(parts))


def _how_long(found: Artefacts, manifest: Mapping[str, Any]) -> str:
    """How long a start takes with the model in the page cache, and without."""
    loads = manifest.get("load_s") or []
    warm = f"{min(loads):.1f} to {max(loads):.1f} s ({len(loads)} measured)" if loads else UNKNOWN
    proved = found.run.read_json("service/cold_start.json") or {}
    is_its = proved.get("configuration") == manifest.get("configuration")
    cold = (proved.get("seconds") if is_its else None) or manifest.get("cold_s")
    said = (
        f"{cold:g} s, with the model's files not in the page cache"
        if cold
        else f"{UNKNOWN} (measure it, which stops the service: {code('service verify --cold')})"
    )
    return f"A start takes, warm: {warm}; cold, as after a boot: {said}."


def proofs_table(run_path: Path) -> Markdown:
    """Each proof, how it ended, and the evidence; a long one in a block of its own below."""
    proofs = Artefacts.of(run_path).proofs
    rows = (
        {
            "proof": proof["name"],
            "status": proof["status"],
            "evidence": sentence(str(proof["evidence"])),
        }
        for proof in proofs
    )
    long = (in_full(str(proof["name"]), str(proof["evidence"])) for proof in proofs)
    return joined(table(rows, empty="No proof was made."), *long)


def operations(run_path: Path) -> Markdown:
    """How to start, stop and watch the service, and what happens by itself."""
    found = Artefacts.of(run_path)
    params = found.run.params
    where = _WHERE[params.host.kind].format(
        address=code(params.host.address or ""),
        here=code(platform.node()),
        clone=code(str(clone_root() or "of the project")),
    )
    return joined(
        _once_installed(found),
        f"The commands are given {where}.",
        _commands(_to_operate(params, run_path)),
        "\n".join(f"- {line}" for line in _by_itself(params, _unit(found), found.guard_warned)),
        _MONITORING if found.service_file("prometheus-alerts.yaml") else "",
    )


def rollback(run_path: Path) -> Markdown:
    """How to undo it: the generation before, or the whole service."""
    found = Artefacts.of(run_path)
    words = _words_of(run_path)
    replaced = ", ".join(found.run.params.service.replaces)
    brings = f"; {replaced}, which gave way, comes back as it was" if replaced else ""
    rows = [
        ("see what is installed, and since when", f"{_RUNBOOK} service status {words}"),
        ("go back to the generation that served before", f"{_RUNBOOK} service rollback {words}"),
        (f"remove service and files{brings}", f"{_RUNBOOK} service uninstall {words}"),
        *_by_hand(found),
    ]
    return joined(
        _once_installed(found),
        "Every generation that has served is kept with its unit. A roll back prints its plan, puts "
        "units and guard of the one before in place, restarts, and waits until it has served; if "
        "it does not serve, what ran before comes back. Files that were edited by hand stop it. "
        "Where no earlier generation has served there is none to go back to: remove the service.",
        _commands(rows),
    )


def _by_hand(found: Artefacts) -> list[tuple[str, str]]:
    """How to remove what was installed with nothing but this document."""
    paths = [PurePosixPath(path) for path in found.manifest.get("files", {})]
    if not paths or found.run.params.host.kind == "box":
        return []
    units = [path for path in paths if str(path.parent) == UNITS]
    folders = dict.fromkeys(path.parent for path in paths if path not in units)
    names, gone = (
        shlex.join(map(str, what)) for what in ([one.name for one in units], [*units, *folders])
    )
    command = f"systemctl disable --now {names}; rm -r {gone}; systemctl daemon-reload"
    return [("the same by hand, where clone or run folder are gone", command)]


def _once_installed(found: Artefacts) -> str:
    step = found.steps["install_service"]
    if step.status == "completed":
        return ""
    if step.status in ("pending", "skipped"):
        how = f"The service is not installed by this run (this step is {step.status})"
        return f"**{how}; the following holds once it is.**"
    said = "The service may run all the same: look at its status, and roll it back if it must not."
    return f"**{how_it_stands(step)}**\n\n{said}"


def _to_operate(params: Params, run_path: Path) -> list[tuple[str, str]]:
    unit, words = shlex.quote(params.service.unit), _words_of(run_path)
    run, url = shlex.quote(str(run_path.resolve())), local_url(params.server)
    look = ("status, and whether it is as installed", f"{_RUNBOOK} service status {words}")
    drift = ("is what runs still what was measured", f"{_RUNBOOK} drift {run}")
    prove = ("prove again (kills it)", f"{_RUNBOOK} service verify {words}")
    if params.host.kind == "box":
        return [look, ("logs", f"{_RUNBOOK} service logs {words}"), drift, prove]
    return [
        ("start (returns when a completion was served)", f"systemctl start {unit}"),
        ("stop", f"systemctl stop {unit}"),
        ("restart", f"systemctl restart {unit}"),
        (
            "start it again after its tries were used up",
            f"systemctl reset-failed {unit} && systemctl start {unit}",
        ),
        ("status", f"systemctl status {unit}"),
        look,
        drift,
        *([] if params.server.api_key else [("ask it what it serves", f"curl -s {url}/v1/models")]),
        ("logs, following", f"journalctl -u {unit} -f"),
        ("not at boot any more", f"systemctl disable {unit}"),
        ("prove, after a boot, that it came back by itself", f"{prove[1]} --after-boot"),
        ("install the monitoring", f"{prove[1].replace(' verify ', ' monitoring ', 1)}"),
        ("measure a cold start (stops it)", f"{prove[1]} --cold"),
        prove,
    ]


def _words_of(run_path: Path) -> str:
    """What every verb on the service of this run is given."""
    run = run_path.resolve()
    return f"{shlex.quote(str(run / 'params.yaml'))} --run {shlex.quote(str(run))}"


def _commands(rows: Iterable[tuple[str, str]]) -> Markdown:
    return table({"to": what, "command": Code(command)} for what, command in rows)


def _unit(found: Artefacts) -> UnitFile:
    """The unit as it is recorded: after a roll back it is not the one of the parameters."""
    return parse_unit(found.service_file(found.run.params.service.unit) or "")


def _by_itself(params: Params, unit: UnitFile, warned: Iterable[str]) -> list[str]:
    """``warned``: what the guard found and let pass."""
    service = params.service
    restart = unit.value("Service", "RestartSec") or f"{service.restart_s:g}s"
    burst = unit.value("Unit", "StartLimitBurst") or str(service.start_limit_burst)
    stop = unit.value("Service", "TimeoutStopSec") or f"{params.server.timeouts.stop_s:g}s"
    recorder = unit.value("Install", "Also")
    recorded = (
        f"; {code(recorder)} records when it first served and whether systemd alone had started "
        f"it, which {code('service verify --after-boot')} reads"
        if recorder
        else ""
    )
    return [
        *(f"**The guard warned** at the last start: {escape(text)}" for text in warned),
        f"At boot: {code(service.unit)} is enabled and starts with multi-user.target{recorded}.",
        f"On a crash: systemd starts it again after {restart.removesuffix('s')} s. "
        + _tries(unit, burst, params),
        f"On stop: SIGTERM, and what still runs after {stop.removesuffix('s')} s is killed.",
        "At each start the guard compares model, interpreter, packages, port and GPUs with what "
        f"was measured, and stops it or warns, as {code('service.guard')} says.",
        "On drift (a unit or drop-in changed by hand, or a process, file or package that is not "
        f"as measured): nothing happens by itself; {code(_RUNBOOK + ' drift')} ends with 1 and "
        "names it.",
    ]


def _tries(unit: UnitFile, burst: str, params: Params) -> str:
    """When it is started no more, as the recorded unit has it, and what starts it then."""
    name, again = params.service.unit, "somebody starts it again"
    if params.host.kind != "box":
        again += ": " + code(f"systemctl reset-failed {name} && systemctl start {name}")
    interval = unit.value("Unit", "StartLimitIntervalSec")
    forgets = any("reset-failed" in line for line in unit.values("Service", "ExecStartPost"))
    if forgets or interval is None:
        return (
            f"Only a start that does not come to serve counts as a try; after {burst} tries in a "
            f"row it stays failed, until {again}. A server that serves and then crashes is "
            "restarted each time; the alert LlmServerRestarts tells of it where it is installed."
        )
    return (
        f"Every start counts, a good one too: after {burst} starts within "
        f"{interval.removesuffix('s')} s it stays failed, until {again}."
    )


def repeat(run_path: Path) -> Markdown:
    """The one command that repeats the run, and the parameters it needs."""
    found = Artefacts.of(run_path)
    commit = (found.run.read_json("run.json") or {}).get("versions", {}).get("commit")
    at = f" at commit {code(commit)}" if commit else ""
    setup = "make host" if found.run.params.stack.gpus else "make setup"
    setup = SETUP if found.run.params.server.interpreter == INTERPRETER else setup
    command = f"{setup}\n{_RUNBOOK} run params.yaml --apply"
    what = ""
    if found.figures_of:
        command = f"{setup}\n{_RUNBOOK} choose {shlex.quote(found.figures_of)} params.yaml"
        what = " (it decides again from those figures, and measures nothing)"
        if found.launches:
            command = (
                f"{setup}\n{_RUNBOOK} run params.yaml --apply"
                f" --figures {shlex.quote(found.figures_of)}"
            )
            what = " (it decides again from those figures, and starts one server once)"
    return Markdown(
        "\n\n".join(
            [
                f"In a clone of the project{at}, with the text below as {code('params.yaml')}"
                f"{what}:",
                fence(command, "sh"),
                fence(found.run.params.to_yaml(), "yaml"),
            ]
        )
    )
