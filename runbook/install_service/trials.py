"""All proofs in order: what is seen of a service, then what it survives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from runbook.checks import counted
from runbook.engines.ladder import first_model, stream
from runbook.errors import NotProved, RunbookError
from runbook.hosts import Box
from runbook.install_service.facts import read_state
from runbook.install_service.observe import (
    PROCESS_PROOFS,
    look,
    prove_burst,
    prove_customization,
    prove_info,
    prove_model_files,
    prove_models,
    prove_process,
    prove_speed,
    prove_state,
    prove_unit,
)
from runbook.install_service.places import JOURNAL_LINES
from runbook.install_service.proofs import Proof, judge, unprovable
from runbook.install_service.service import Service
from runbook.launch import systemd

_READY_S = 30.0
#: A server may take this long to notice that a worker is gone.
_NOTICE_S = 2.0
#: Answers under way when the service is told to stop, and the length of each.
_STREAMS, _STREAM_TOKENS = 2, 64

Trial = Callable[[Service], Proof | Iterator[Proof]]


def prove_service(service: Service, tell: Callable[[Proof], None]) -> list[Proof]:
    """All proofs in order, each told as it is found. The service is killed, and a box rebooted."""
    found: list[Proof] = []
    for proof in _proofs(service):
        found.append(proof)
        tell(proof)
    return found


def _proofs(service: Service) -> Iterator[Proof]:
    yield from _tried(service, prove_unit, "unit")
    reason = service.host.why_no_systemd()
    for trial, *names in (
        (prove_state, "enabled", "active", "files"),
        (prove_process, *PROCESS_PROOFS),
        (prove_customization, "sitecustomize"),
        (prove_model_files, "model files"),
        (prove_models, "model list"),
        (prove_burst, "burst"),
        (prove_info, "server info"),
        (prove_speed, "speed"),
        (_prove_drain, "stop under load"),
        (_prove_kill, "back after SIGKILL"),
        (_prove_worker_kill, "back after SIGKILL of a worker"),
        (_prove_reboot, "back after reboot"),
        (_prove_cut, "back after sudden death"),
        (_prove_journal, "journal"),
    ):
        if reason is not None:
            yield from (unprovable(name, reason) for name in names)
        else:
            yield from _tried(service, trial, *names)


def _tried(service: Service, trial: Trial, *names: str) -> Iterator[Proof]:
    """The proofs of a trial; when it fails, those of ``names`` that it still owes are refuted."""
    owed = list(names)
    try:
        found = trial(service)
        for proof in [found] if isinstance(found, Proof) else found:
            owed.remove(proof.name)
            yield proof
    except (RunbookError, OSError) as error:
        yield from (Proof(name, "refuted", str(error)) for name in owed)


def _prove_kill(service: Service) -> Proof:
    before = read_state(service.host, service.unit)
    _give_all_tries(service)
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


def _prove_worker_kill(service: Service) -> Proof:
    """It must serve again by itself, whether the server or systemd takes care of that."""
    name = "back after SIGKILL of a worker"
    before = read_state(service.host, service.unit)["MainPID"]
    workers = look(service, before)["workers"]
    if not workers:
        return judge(name, [], "it has no worker processes that could die alone")
    victim = next((one for one in workers if "sched" in one["name"]), workers[0])
    _give_all_tries(service)
    began = time.monotonic()
    # The shell's own kill: the program of that name is of a package that a host may lack.
    service.host.run("sh", "-c", 'kill -KILL "$1"', "sh", str(victim["pid"]))
    time.sleep(_NOTICE_S)
    wait_active(service, "0")  # a main process may take its time to end after its worker
    service.engine.wait_ready(service.url, lambda: True, service.start_s)
    after = wait_active(service, "0")["MainPID"]
    kept = "the main process stayed" if after == before else f"process {before} became {after}"
    return judge(
        name,
        [],
        f"worker {victim['pid']} ({victim['name']}) killed, a completion was served "
        f"{time.monotonic() - began:.1f} s later, {kept}",
    )


def _prove_drain(service: Service) -> Proof:
    """Answers that are under way when the order to stop comes are given to their end; then it is
    started again."""
    name = "stop under load"
    model = first_model(service.endpoint.get_json("/v1/models")) or ""
    limit_s = service.params.server.timeouts.request_s
    begun = [Event() for _ in range(_STREAMS)]
    with ThreadPoolExecutor(_STREAMS) as pool:
        answers = [
            pool.submit(stream, service.endpoint, model, _STREAM_TOKENS, limit_s, event.set)
            for event in begun
        ]
        under_way = all(event.wait(limit_s) for event in begun)
        ended = [answer for answer in answers if answer.done()]
        ordered = time.monotonic()
        service.host.run("systemctl", "stop", service.unit, timeout_s=service.stop_s + _READY_S)
        took_s = time.monotonic() - ordered
    state = read_state(service.host, service.unit)
    served_s = _start_again(service)
    said = f"{_STREAMS} answers were given to their end, it stopped in {took_s:.1f} s"
    said += f"; started again, it served after {served_s:.1f} s"
    if ended or not under_way:
        return unprovable(name, f"no answer was under way when it was told to stop; {said}")
    faults = [str(answer.exception()) for answer in answers if answer.exception()]
    if state.get("ActiveState") != "inactive":
        faults.append(f"it ended as {state.get('ActiveState')} ({state.get('Result')})")
    return judge(name, faults, said)


def _give_all_tries(service: Service) -> None:
    """The starts of one trial must not use up the limit for the next."""
    service.host.run("systemctl", "reset-failed", "--", service.unit, check=False)


def _start_again(service: Service) -> float:
    _give_all_tries(service)
    began = time.monotonic()
    service.host.run(
        "systemctl", "start", service.unit, timeout_s=service.start_s + service.stop_s + _READY_S
    )
    return time.monotonic() - began


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
    deadline = time.monotonic() + service.start_s + service.stop_s
    while True:
        state = read_state(service.host, service.unit)
        new = state.get("MainPID") not in ("", "0", not_pid)
        if state.get("ActiveState") == "active" and new:
            return state
        if state.get("ActiveState") == "failed" or time.monotonic() > deadline:
            raise NotProved(
                f"it is {state.get('ActiveState')} ({state.get('Result')}), its journal ends:\n"
                + systemd.journal(service.host, service.unit, lines=8),
                "active with a new process",
                "read the rest: runbook service logs PARAMS",
            )
        time.sleep(0.1)


def _completion(service: Service) -> float:
    return service.engine.wait_ready(service.url, lambda: True, _READY_S)


def _prove_journal(service: Service) -> Proof:
    text = systemd.journal(service.host, service.unit, lines=JOURNAL_LINES)
    lines = text.splitlines()
    ready = [line for line in lines if "gate: ready" in line]
    lost = [line for line in lines if "Suppressed " in line]
    faults = [] if ready else ["no line of the gate in it"]
    faults += [f"messages were dropped: {lost[-1]}"] if lost else []
    last = ready[-1].partition("gate: ")[2] if ready else ""
    return judge(
        "journal", faults, f"{counted(len(lines), 'line')}, {counted(len(ready), 'start')}: {last}"
    )
