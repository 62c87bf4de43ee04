"""The proofs that ask a running service: what it is, and what it survives."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from runbook import probe
from runbook.engines import Engine, ServerInfo
from runbook.engines.ladder import Endpoint, first_model
from runbook.errors import HostFailed, NotProved, RunbookError
from runbook.hosts import Box, Host
from runbook.install_service import proofs as compare
from runbook.install_service.apply import journal_tail
from runbook.install_service.facts import read_facts, show
from runbook.install_service.places import Target, digest
from runbook.install_service.plan import local_url
from runbook.install_service.proofs import Proof, judge, unprovable
from runbook.launch.lint import lint
from runbook.launch.spec import LaunchSpec
from runbook.load import LoadPlan, Prompt, run_load
from runbook.params import Params

_READY_S = 30.0
_RUNNING = (
    "enabled",
    "active",
    "files",
    "listener",
    "arguments",
    "environment",
    "working directory",
    "interpreter",
    "user",
    "limits",
    "model list",
    "burst",
    "server info",
    "back after SIGKILL",
    "back after reboot",
    "back after sudden death",
    "journal",
)


@dataclass(frozen=True)
class Service:
    """A service to prove: where it is, what it shall be, and how its server is asked."""

    host: Host
    params: Params
    target: Target
    engine: Engine

    @property
    def url(self) -> str:
        """Where it serves."""
        return local_url(self.params)

    @property
    def unit(self) -> str:
        """Its unit."""
        return self.target.unit

    @property
    def spec(self) -> LaunchSpec:
        """The launch it was measured with."""
        return spec_from(self.target.manifest["spec"])

    @property
    def start_s(self) -> float:
        """How long a start may take."""
        from runbook.install_service.plan import GATE_HEAD_START_S, start_timeout

        ready_s, _ = start_timeout(self.params, self.target.manifest.get("load_s") or ())
        return ready_s + GATE_HEAD_START_S + self.params.service.restart_s


def spec_from(stored: dict[str, Any]) -> LaunchSpec:
    """A ``LaunchSpec`` from its JSON."""
    return LaunchSpec(**{**stored, "argv": tuple(stored["argv"])})


def info_from(stored: dict[str, Any] | None) -> ServerInfo | None:
    """A ``ServerInfo`` from its JSON; fields that this release does not know are left out."""
    if stored is None:
        return None
    known = {field.name for field in fields(ServerInfo)}
    return ServerInfo(**{name: value for name, value in stored.items() if name in known})


def prove_service(service: Service, tell: Callable[[Proof], None]) -> list[Proof]:
    """All proofs in order, each told as it is found. The service is killed, and a box rebooted."""
    found: list[Proof] = []
    for proof in _proofs(service):
        found.append(proof)
        tell(proof)
    return found


def _proofs(service: Service) -> Iterator[Proof]:
    yield _prove_unit(service)
    reason = service.host.why_no_systemd()
    if reason is not None:
        yield from (unprovable(name, reason) for name in _RUNNING)
        return
    yield from _prove_state(service)
    yield from _prove_process(service)
    for name, trial in (
        ("model list", _prove_models),
        ("burst", _prove_burst),
        ("server info", _prove_info),
        ("back after SIGKILL", _prove_kill),
        ("back after reboot", _prove_reboot),
        ("back after sudden death", _prove_cut),
        ("journal", _prove_journal),
    ):
        try:
            yield trial(service)
        except (RunbookError, OSError) as error:
            yield Proof(name, "refuted", str(error))


def _prove_unit(service: Service) -> Proof:
    checks = lint(service.target.unit_text, service.host, service.unit)
    faults = [f"{check.name}: {check.found}" for check in checks if check.status == "fail"]
    said = [f"{c.name.removeprefix('unit: ')} {c.status}" for c in checks if c.status != "pass"]
    return judge("unit", faults, f"{len(checks)} rules hold" + "".join(f", {s}" for s in said))


def _prove_state(service: Service) -> Iterator[Proof]:
    facts = read_facts(service.host, service.unit)
    state = show(service.host, service.unit)
    said = state.get("UnitFileState", "unknown")
    yield judge("enabled", [] if facts.enabled else [f"it is {said}"], "starts at boot")
    active = f"{state.get('ActiveState')} ({state.get('SubState')})"
    yield judge("active", [] if facts.active else [f"it is {active}"], active)
    places = service.target.places
    wanted = {places.unit_file: digest(service.target.unit_text)}
    wanted[places.gate(service.target.gate_text)] = digest(service.target.gate_text)
    texts = {places.unit_file: facts.unit_text or "", **facts.gates}
    faults = [
        f"{path} is not as installed"
        for path, hashed in wanted.items()
        if digest(texts.get(path, "")) != hashed
    ]
    faults += [f"the drop-in {path} changes it" for path in facts.drop_ins]
    faults += ["systemd has not read its files again"] if facts.needs_reload else []
    yield judge("files", faults, f"{len(wanted)} files as installed, no drop-ins")


def _prove_process(service: Service) -> Iterator[Proof]:
    """The process itself, as the kernel of the host shows it."""
    host, spec = service.host, service.spec
    state = show(host, service.unit, "MainPID,ControlGroup")
    port = str(service.params.server.port)
    seen = _look(host, state["MainPID"], port, service.target.places.unit_file)
    yield compare.prove_listener(
        seen["listeners"], state["ControlGroup"], seen["written"], int(port)
    )
    process = seen["process"]
    if process is None:
        names = ("arguments", "environment", "working directory", "interpreter", "user", "limits")
        yield from (Proof(name, "refuted", "no process runs") for name in names)
        return
    yield compare.prove_arguments(spec, process["argv"])
    yield compare.prove_environment(spec, process["environ"])
    yield compare.prove_equal("working directory", _resolved(host, spec.cwd), process["cwd"])
    yield compare.prove_equal("interpreter", _resolved(host, spec.interpreter), process["exe"])
    uid = host.run("id", "-u", spec.user or "root", check=False).out.strip()
    yield compare.prove_equal("user", f"uid {uid}", f"uid {process['uid']}")
    yield compare.prove_limits(spec, process["limits"])


def _look(host: Host, pid: str, port: int, file: str) -> dict[str, Any]:
    script = probe.source("look").encode()
    done = host.run(host.python, "-I", "-S", "-", pid, str(port), file, stdin=script)
    seen: dict[str, Any] = json.loads(done.out)
    return seen


def _resolved(host: Host, path: str) -> str:
    return host.run("readlink", "--canonicalize", "--", path).out.removesuffix("\n")


def _endpoint(service: Service) -> Endpoint:
    key = service.params.server.api_key
    return Endpoint(service.url, key.file if key else None)


def _prove_models(service: Service) -> Proof:
    served = first_model(_endpoint(service).get_json("/v1/models"))
    info = info_from(service.target.manifest.get("info"))
    if info is None:
        return judge("model list", [] if served else ["it is empty"], f"serves {served}")
    return compare.prove_equal("model list", info.model_id, served)


def _prove_info(service: Service) -> Proof:
    wanted = info_from(service.target.manifest.get("info"))
    return compare.prove_info(wanted, service.engine.info(service.url))


_BURST_PROMPTS = tuple(
    Prompt(f"burst-{n}", "burst", ({"role": "user", "content": text},))
    for n, text in enumerate(
        (
            "Count from one to twenty.",
            "Name the days of the week.",
            "Write a Python function that adds two numbers.",
            "Say in one sentence what a load balancer does.",
        )
    )
)
_BURST_TOKENS = 16


def _prove_burst(service: Service) -> Proof:
    params = service.params
    model = first_model(_endpoint(service).get_json("/v1/models")) or ""
    key = params.server.api_key
    plan = LoadPlan(
        url=service.url,
        model=model,
        prompts=_BURST_PROMPTS,
        requests=params.service.burst,
        concurrency=min(max(params.benchmark.concurrencies), params.service.burst),
        output_tokens=_BURST_TOKENS,
        request_timeout_s=params.server.timeouts.request_s,
        api_key_file=key.file if key else None,
    )
    result = run_load(plan)
    failed = [record for record in result.records if not record.ok]
    faults = [f"{len(failed)} of {plan.requests} failed: {failed[0].error}"] if failed else []
    missing = plan.requests - len(result.records)
    faults += [f"{missing} of {plan.requests} were never answered"] if missing else []
    took_s = result.ended_s - result.started_s
    evidence = f"{plan.requests} streamed completions, {plan.concurrency} at once, {took_s:.1f} s"
    return judge("burst", faults, evidence)


# --- what it survives ----------------------------------------------------------------------


def _prove_kill(service: Service) -> Proof:
    before = show(service.host, service.unit)
    began = time.monotonic()
    service.host.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", service.unit)
    after = wait_active(service, before["MainPID"])
    served_s = _completion(service)
    return judge(
        "back after SIGKILL",
        [],
        f"process {before['MainPID']} killed, {after['MainPID']} served a completion "
        f"{time.monotonic() - began:.1f} s later (the completion took {served_s:.1f} s)",
    )


def _prove_reboot(service: Service) -> Proof:
    if not isinstance(service.host, Box):
        return unprovable("back after reboot", "this host is not rebooted for a proof")
    return _prove_boot(service, service.host, "back after reboot", service.host.reboot)


def _prove_cut(service: Service) -> Proof:
    if not isinstance(service.host, Box):
        return unprovable("back after sudden death", "only a box may be ended without warning")
    return _prove_boot(service, service.host, "back after sudden death", service.host.cut)


def _prove_boot(service: Service, box: Box, name: str, down_and_up: Callable[[], None]) -> Proof:
    boot_before = box.boot_id()
    began = time.monotonic()
    down_and_up()
    boot_after = box.boot_id()
    wait_active(service, "0")
    _completion(service)
    faults = ["the boot id is the same"] if boot_before == boot_after else []
    evidence = (
        f"boot {boot_before[:8]} became {boot_after[:8]}, a completion was served "
        f"{time.monotonic() - began:.1f} s after the order, started by nobody but systemd"
    )
    return judge(name, faults, evidence)


def wait_active(service: Service, not_pid: str) -> dict[str, str]:
    """Wait until the unit is active with another main process. Raises ``NotProved``."""
    deadline = time.monotonic() + service.start_s + service.params.server.timeouts.stop_s
    while True:
        state = show(service.host, service.unit)
        new = state.get("MainPID") not in ("", "0", not_pid)
        if state.get("ActiveState") == "active" and new:
            return state
        if state.get("ActiveState") == "failed" or time.monotonic() > deadline:
            raise NotProved(
                f"it is {state.get('ActiveState')} ({state.get('Result')}), its journal ends:\n"
                + journal_tail(service.host, service.unit, 8),
                "active with a new process",
            )
        time.sleep(0.1)


def _completion(service: Service) -> float:
    return service.engine.wait_ready(service.url, lambda: True, _READY_S)


def _prove_journal(service: Service) -> Proof:
    text = journal(service.host, service.unit)
    lines = text.splitlines()
    ready = [line for line in lines if "gate: ready" in line]
    lost = [line for line in lines if "Suppressed " in line]
    faults = [] if ready else ["no line of the gate in it"]
    faults += [f"messages were dropped: {lost[-1]}"] if lost else []
    last = ready[-1].partition("gate: ")[2] if ready else ""
    return judge("journal", faults, f"{len(lines)} lines, {len(ready)} starts: {last}")


def journal(host: Host, unit: str, lines: int | None = None) -> str:
    """The unit's journal over all boots; the last ``lines`` of it, ``None`` for all."""
    host.run("journalctl", "--sync", check=False)
    count = "all" if lines is None else str(lines)
    argv = ["journalctl", f"--unit={unit}", f"--lines={count}", "--output=short-iso-precise"]
    done = host.run(*argv, "--no-pager", "--quiet", check=False)
    if done.code:
        raise HostFailed(f"the journal of {unit} cannot be read: {done.err.strip()}")
    return done.out
