"""What hands a service over to monitoring: a scrape and alert rules for Prometheus, and a check
that it lives, from the measured figures.

Rendering is pure; ``record_monitoring`` writes it all into a run folder.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from runbook import strict_yaml
from runbook.cells import Cell
from runbook.errors import Blocked
from runbook.hosts.base import Host
from runbook.install_service.alerts import METRICS, exposes_nothing, job_of, render_alerts
from runbook.install_service.lock import locked
from runbook.install_service.measured import measured_cells, measured_prompts, spec_from
from runbook.install_service.places import Places, Target
from runbook.launch import systemd
from runbook.launch.quoting import exec_line
from runbook.launch.server import local_url
from runbook.launch.spec import UNITS, LaunchSpec
from runbook.launch.unit_file import parse_unit
from runbook.params import Params
from runbook.probe.alive import STUCK
from runbook.run import Run

SCRAPE, ALERTS = "prometheus-scrape.yaml", "prometheus-alerts.yaml"

#: An answer to a short request that takes more than so many times the slowest first token (p99),
#: and never less than the floor, is late: a long prefill must not be taken for death.
ALIVE_FACTOR, ALIVE_FLOOR_S = 20, 60.0
ALIVE_EVERY_S = 60.0
#: What the check may take beyond that: a server may tell its counters a byte at a time.
ALIVE_SPARE_S = 180.0


def render_liveness(params: Params, target: Target, cells: Sequence[Cell]) -> dict[str, str]:
    """Name -> text of a unit and a timer that restart the service when it is stuck: two answers in
    a row that are late, and counters of the server that prove that it did nothing between them.

    A process that lives and a health page that says 200 are no sign of life. A server that is busy
    is left alone. What keeps the check itself from asking, another key or a guard that is gone,
    makes it fail and restarts nobody; so do counters that cannot be read.
    """
    unit, name = params.service.unit, f"{job_of(params)}-alive"
    slowest_ms = max((c.ttft_p99_ms for c in cells if c.ttft_p99_ms is not None), default=0.0)
    limit_s = round(max(ALIVE_FLOOR_S, ALIVE_FACTOR * slowest_ms / 1000))
    gate = parse_unit(target.unit_text).command("ExecStartPost", 0)
    gate = gate[: gate.index("--deadline")]
    python, asked = gate[: gate.index("ready") - 1], gate[gate.index("ready") + 1 :]
    names = METRICS[params.server.engine]
    words = [*python, target.places.monitor, "alive", *asked, "--deadline", str(limit_s)]
    words += ["--unit", unit, "--strike", f"/run/{name}/strike", "--running", names.running]
    words += [word for counter in names.progress for word in ("--counter", counter)]
    restart = f"exec systemctl restart --no-block {shlex.quote(unit)}"
    script = f"{shlex.join(words)}; code=$?; test $code -ne {STUCK} || {restart}; exit $code"
    key = params.server.api_key
    service = [
        f"# {unit} is restarted when two completions in a row did not come within {limit_s} s,",
        "# and its counters prove that it did nothing between them.",
        "[Unit]",
        f"Description=Whether {unit} answers",
        "[Service]",
        "Type=oneshot",
        f"RuntimeDirectory={name}",
        "RuntimeDirectoryPreserve=yes",
        f"TimeoutStartSec={limit_s + ALIVE_SPARE_S:g}s",
        f"ExecCondition=/usr/bin/systemctl is-active --quiet {unit}",
        *([f"LoadCredential=api-key:{key.file}"] if key else []),
        f"ExecStart={exec_line(('/bin/sh', '-c', script))}",
    ]
    when = (f"OnActiveSec={ALIVE_EVERY_S:g}s", f"OnUnitInactiveSec={ALIVE_EVERY_S:g}s")
    said = f"Every {ALIVE_EVERY_S:g} s: whether {unit} answers"
    return _with_timer(name, service, said, when)


def render_drift(params: Params, runbook: str, run: str) -> dict[str, str]:
    """Name -> text of a unit and a timer that fail with the list when there is drift.

    ``runbook``: the program, ``run``: the run folder, both paths of the machine they are put on.
    """
    unit = params.service.unit
    service = [
        f"# It fails when {unit} is not what was installed and measured; its journal has the list.",
        "[Unit]",
        f"Description=Whether {unit} is what was measured",
        "[Service]",
        "Type=oneshot",
        f"ExecStart={exec_line((runbook, 'drift', run))}",
    ]
    when = ("OnCalendar=hourly", "RandomizedDelaySec=5min", "Persistent=yes")
    said = f"Every hour: whether {unit} is what was measured"
    return _with_timer(f"{job_of(params)}-drift", service, said, when)


def _with_timer(name: str, service: list[str], said: str, when: Sequence[str]) -> dict[str, str]:
    install = ["[Install]", "WantedBy=timers.target"]
    timer = ["[Unit]", f"Description={said}", "[Timer]", *when, *install]
    texts = {f"{name}.service": service, f"{name}.timer": timer}
    return {file: "\n".join(lines) + "\n" for file, lines in texts.items()}


def render_scrape(params: Params, spec: LaunchSpec) -> str:
    """A piece of ``prometheus.yml`` that reads the server's metrics."""
    job: dict[str, Any] = {
        "job_name": job_of(params),
        "metrics_path": "/metrics",
        "static_configs": [{"targets": [local_url(params.server).removeprefix("http://")]}],
    }
    if params.server.api_key is not None:
        job["authorization"] = {"credentials_file": params.server.api_key.file}
    head = "# For a Prometheus on the host itself; from elsewhere, set the target's address.\n"
    if exposes_nothing(params, spec):
        head += "# This launch exposes no metrics: --enable-metrics is not among its arguments.\n"
    return head + strict_yaml.dump({"scrape_configs": [job]})


def texts_of(run: Run, params: Params, target: Target) -> dict[str, str]:
    """Name -> text of all that hands a service over to monitoring."""
    spec = spec_from(target.manifest["spec"])
    configuration = target.manifest["configuration"]
    cells = measured_cells(run, configuration)
    prompts = measured_prompts(run, configuration)
    program = str(Path(sys.executable).with_name("runbook"))
    return {
        SCRAPE: render_scrape(params, spec),
        ALERTS: render_alerts(params, spec, cells, run.path.name, prompts),
        **render_liveness(params, target, cells),
        **render_drift(params, program, str(run.path)),
    }


def record_monitoring(run: Run, params: Params, target: Target) -> None:
    """Write what hands a service over to monitoring into the run folder."""
    for name, text in texts_of(run, params, target).items():
        run.write(f"service/{name}", text)


def monitoring_files(
    run: Run, params: Params, target: Target, prometheus: str | None
) -> dict[str, str]:
    """Path -> text of what is installed on the host; ``prometheus``: the folder there for its
    rules and its scrape, ``None`` to leave these out.

    The check for drift needs the run folder and the runbook, so it is for the runner's own host.
    """
    job = job_of(params)
    files = {target.places.monitor: target.guard_text}
    for name, text in texts_of(run, params, target).items():
        if name in (SCRAPE, ALERTS):
            if prometheus is not None:
                files[f"{prometheus.rstrip('/')}/{job}-{name}"] = text
        elif params.host.kind == "local" or not name.startswith(f"{job}-drift."):
            files[f"{UNITS}/{name}"] = text
    return files


def install_monitoring(host: Host, places: Places, files: Mapping[str, str]) -> list[str]:
    """Write the files, start the timers among them; a line for each change, none a second time.

    What an earlier one wrote and this one does not is removed. Raises ``Blocked`` for a file of
    somebody else.
    """
    with locked(host, places.unit):
        noted = noted_files(host, places)
        now = {path: (host.read(path) or b"").decode(errors="replace") for path in files}
        foreign = [path for path, text in now.items() if text and path not in noted]
        foreign = [path for path in foreign if now[path] != files[path]]
        if foreign:
            raise Blocked(
                f"{foreign[0]} is there and not the runbook's",
                "no file of that name, or one that this command wrote",
                "move it away, then repeat this",
            )
        host.write(places.monitoring, json.dumps(sorted({*noted, *files}), indent=1) + "\n")
        changed = [path for path in files if now[path] != files[path]]
        for path in changed:
            host.make_dir(PurePosixPath(path).parent)
            host.write(path, files[path])
        gone = [path for path in noted if path not in files]
        remove_monitoring(host, gone)
        host.write(places.monitoring, json.dumps(sorted(files), indent=1) + "\n")
        timers = [PurePosixPath(path).name for path in files if path.endswith(".timer")]
        if any(path.startswith(f"{UNITS}/") for path in (*changed, *gone)):
            systemd.daemon_reload(host)
        off = [one for one in timers if _is_off(host, one)]
        for timer in off:
            host.run("systemctl", "enable", "--now", "--", timer)
    said = [f"written: {path}" for path in changed] + [f"removed: {path}" for path in gone]
    return said + [f"enabled: {timer}" for timer in off]


def _is_off(host: Host, timer: str) -> bool:
    state = systemd.show(host, timer, "ActiveState", "UnitFileState")
    return state != {"ActiveState": "active", "UnitFileState": "enabled"}


def noted_files(host: Host, places: Places) -> list[str]:
    """The files that an earlier ``install_monitoring`` wrote."""
    try:
        found = json.loads(host.read(places.monitoring) or b"[]")
    except ValueError:
        return []
    return [str(path) for path in found] if isinstance(found, list) else []


def remove_monitoring(host: Host, paths: Sequence[str]) -> None:
    """Stop the timers among files of the monitoring and remove them all."""
    for path in paths:
        if path.endswith(".timer") and host.why_no_systemd() is None:
            name = PurePosixPath(path).name
            host.run("systemctl", "disable", "--now", "--", name, check=False, timeout_s=600)
        host.remove(path)
