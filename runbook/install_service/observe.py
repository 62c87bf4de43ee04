"""The proofs that look at a running service and ask it, without disturbing it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from runbook import probe
from runbook.engines.ladder import first_model
from runbook.hosts.base import Host
from runbook.install_service import proofs as compare
from runbook.install_service.facts import read_facts
from runbook.install_service.measured import info_from
from runbook.install_service.proofs import Proof, judge
from runbook.install_service.service import Service
from runbook.intervals import MIN_BLOCKS
from runbook.launch import systemd
from runbook.launch.lint import EXPOSURE, lint
from runbook.load import LoadPlan, Prompt, Record, run_load
from runbook.probe.ask import ask_guard
from runbook.probe.completion import why_senseless
from runbook.redaction import is_secret


def prove_unit(service: Service) -> Proof:
    """The unit's text, linted by our rules and by systemd's."""
    checks = lint(service.target.unit_text, service.host, service.unit)
    faults = [f"{check.name}: {check.found}" for check in checks if check.status == "fail"]
    said = [f"{c.name.removeprefix('unit: ')} {c.status}" for c in checks if c.status != "pass"]
    said += [f"exposure {c.found} of 10" for c in checks if c.name == EXPOSURE]
    return judge("unit", faults, f"{len(checks)} rules hold" + "".join(f", {s}" for s in said))


def prove_state(service: Service) -> Iterator[Proof]:
    """Enabled, active, and the files as they were installed."""
    facts = read_facts(service.host, service.unit)
    state = facts.state
    said = state.get("UnitFileState", "unknown")
    faults = [] if facts.enabled else [f"it is {said}"]
    faults += [] if facts.is_recorded else [f"{facts.places.boot_unit} is not enabled"]
    yield judge("enabled", faults, "starts at boot, which is recorded")
    active = f"{state.get('ActiveState')} ({state.get('SubState')})"
    yield judge("active", [] if facts.active else [f"it is {active}"], active)
    wanted = service.target.files
    faults = [
        f"{path} is not as installed"
        for path, text in wanted.items()
        if facts.files.get(path) != text
    ]
    faults += [f"the drop-in {path} changes it" for path in facts.drop_ins]
    faults += ["systemd has not read its files again"] if facts.needs_reload else []
    yield judge("files", faults, f"{len(wanted)} files as installed, no drop-ins")


#: What is proved of the process, in this order.
PROCESS_PROOFS = (
    "listener",
    "arguments",
    "environment",
    "worker environment",
    "working directory",
    "interpreter",
    "user",
    "limits",
)


def prove_process(service: Service) -> Iterator[Proof]:
    """The process itself, as the kernel of the host shows it."""
    host, spec, origin = service.host, service.spec, service.origin
    state = systemd.show(host, service.unit, "MainPID", "ControlGroup")
    port, cgroup = service.params.server.port, state["ControlGroup"]
    seen = look(service, state["MainPID"])
    yield compare.prove_listener(seen["listeners"], cgroup, seen["written"], port)
    process = seen["process"]
    if process is None:
        yield from (Proof(name, "refuted", "no process runs") for name in PROCESS_PROOFS[1:])
        return
    yield compare.prove_arguments(spec, process["argv"], origin)
    yield compare.prove_environment(spec, process["environ"], origin)
    yield compare.prove_workers(spec, seen["workers"], service.engine.overwrites, origin)
    uid = host.run("id", "-u", spec.user or "root", check=False).out.strip()
    for name, wanted, found in (
        ("working directory", _resolved(host, spec.cwd), process["cwd"]),
        ("interpreter", _resolved(host, spec.interpreter), process["exe"]),
        ("user", f"uid {uid}", f"uid {process['uid']}"),
    ):
        yield compare.prove_equal(name, wanted, found, origin)
    yield compare.prove_limits(spec, process["limits"], process["attributes"])


def set_by_server(service: Service) -> dict[str, str]:
    """Variables that the processes of a running server have and its first one was not given.

    What is named like a secret is not shown.
    """
    state = systemd.show(service.host, service.unit, "MainPID")
    seen = look(service, state["MainPID"])
    given = set((seen["process"] or {}).get("environ") or ())
    words = {word for one in seen["workers"] for word in one["environ"] or () if "=" in word}
    added = sorted(words - given)
    pairs = [word.partition("=")[::2] for word in added] if given else []
    return {name: "(not shown)" if is_secret(name, value) else value for name, value in pairs}


def look(service: Service, pid: str) -> dict[str, Any]:
    """A process of the service, its workers and the port, as the kernel of the host shows them."""
    host, port = service.host, str(service.params.server.port)
    words = [pid, port, service.target.places.unit_file]
    done = host.run(host.python, "-I", "-S", "-", *words, stdin=probe.source("look").encode())
    seen: dict[str, Any] = json.loads(done.out)
    return seen


def _resolved(host: Host, path: str) -> str:
    return host.run("readlink", "--canonicalize", "--", path).out.removesuffix("\n")


def prove_customization(service: Service) -> Proof:
    """Which ``sitecustomize`` the interpreter loads in the service's environment, and its hash."""
    return _prove_by_guard(service, "sitecustomize", ("sitecustomize",))


def prove_model_files(service: Service) -> Proof:
    """The files of target and draft, read now, have the fingerprints that were verified."""
    roles = service.target.manifest["guard"].get("roles") or {}
    return _prove_by_guard(service, "model files", tuple(roles))


def _prove_by_guard(service: Service, name: str, checks: Sequence[str]) -> Proof:
    """What the guard compares with what was verified, asked anew. Not provable where one of
    ``checks`` was not measured, or cannot be read now."""
    levels = dict.fromkeys(checks, "fail")
    asked = {**service.target.manifest["guard"], "levels": levels}
    found, reason = ask_guard(service.host, service.spec, asked)
    if reason or not found:
        return compare.unprovable(name, reason or "nothing was verified")
    seen = {
        one["name"]: f"{one['name']}: {one['found']}" if len(found) > 1 else one["found"]
        for one in found
    }
    wrong = [
        f"{seen[one['name']]}, measured {one['wanted']}" for one in found if one["status"] == "fail"
    ]
    unknown = [seen[one["name"]] for one in found if one["status"] not in ("pass", "fail")]
    if unknown and not wrong:
        return compare.unprovable(name, "; ".join(unknown))
    return judge(name, wrong, "; ".join(seen.values()))


def prove_speed(service: Service) -> Proof:
    """A short cell at the lowest measured concurrency, asked as in the benchmark; a second one
    where the first lies outside, since a host may have been busy for a moment."""
    at = min(service.params.benchmark.concurrencies)
    if service.figures_of:
        why = f"{compare.FIGURES_GIVEN} ({service.figures_of}): no life of it was measured here"
        return compare.unprovable("speed", why)
    if service.speed is None:
        return compare.unprovable("speed", "the run it was measured in is not here")
    lives = service.speeds.get(at, ())
    margin = service.params.choose.margin
    tries = 2 if len(lives) >= MIN_BLOCKS else 0
    proof = compare.prove_speed(lives, None, f"C={at}", margin)
    for _ in range(tries):
        proof = compare.prove_speed(lives, service.speed(at), f"C={at}", margin)
        if proof.status == "proved":
            break
    return proof


def prove_models(service: Service) -> Proof:
    """The server offers the model that was measured."""
    served = first_model(service.endpoint.get_json("/v1/models"))
    info = info_from(service.target.manifest.get("info"))
    if info is None:
        return judge("model list", [] if served else ["it is empty"], f"serves {served}")
    return compare.prove_equal("model list", info.model_id, served)


def prove_info(service: Service) -> Proof:
    """What the server says of itself is what it said when it was measured."""
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


def _why_senseless(record: Record) -> str:
    """Why an answer that came to its end is none; one that only calls a tool is one."""
    said = record.reasoning + record.text + record.calls
    tokens = record.chunks if record.tokens_out is None else record.tokens_out
    return why_senseless(tokens, said) if record.ok else ""


def prove_burst(service: Service) -> Proof:
    """``service.burst`` short completions, as many at once as were measured at most."""
    params = service.params
    model = first_model(service.endpoint.get_json("/v1/models")) or ""
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
    senseless = [why for record in result.records if (why := _why_senseless(record))]
    if senseless:
        faults.append(f"{len(senseless)} of {plan.requests} hold no sense: {senseless[0]}")
    missing = plan.requests - len(result.records)
    faults += [f"{missing} of {plan.requests} were never answered"] if missing else []
    took_s = result.ended_s - result.started_s
    evidence = f"{plan.requests} streamed completions, {plan.concurrency} at once, {took_s:.1f} s"
    return judge("burst", faults, evidence)
