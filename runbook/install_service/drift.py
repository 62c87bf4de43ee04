"""Drift: whether what runs is still what was installed and measured. Nothing is disturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from runbook.checks import Check, Status
from runbook.errors import RunbookError
from runbook.install_service import guard
from runbook.install_service.measured import Measured
from runbook.install_service.observe import prove_info, prove_models, prove_process, prove_state
from runbook.install_service.proofs import Proof
from runbook.install_service.service import Service
from runbook.probe.ask import ask_guard

_STATUS: dict[str, Status] = {"proved": "pass", "refuted": "fail", "not provable here": "unknown"}


def read_drift(service: Service, measured: Measured | None = None) -> list[Check]:
    """Files, process, server and its surroundings, each as it is and as it should be.

    ``measured``: the launch as a run recorded it, where there is one to compare with. A systemd
    must run on the host.
    """
    return [
        *_of_record(service, measured),
        *_of_service(service),
        *_of_surroundings(service),
        *_of_last_start(service),
    ]


def _of_record(service: Service, measured: Measured | None) -> Iterator[Check]:
    """The installed launch against the measured one."""
    if measured is None:
        found, wanted = "the run it was measured in is not here", "that run"
        yield Check(
            "measurement", "unknown", found, wanted, "ask with its folder: runbook drift RUN"
        )
        return
    found, wanted = service.spec.fingerprint()[:12], measured.spec.fingerprint()[:12]
    status: Status = "pass" if found == wanted else "fail"
    fix = "install the measured launch: runbook service install PARAMS"
    yield Check("measurement", status, f"launch {found}", f"launch {wanted}", fix)


def _of_service(service: Service) -> Iterator[Check]:
    """What the proofs see of a running service."""
    proofs = [*prove_state(service), *prove_process(service)]
    proofs += [_asked(name, ask, service) for name, ask in _ASKED.items()]
    yield from (as_check(proof, service.unit) for proof in proofs)


_ASKED: dict[str, Callable[[Service], Proof]] = {
    "model list": prove_models,
    "server info": prove_info,
}


def _asked(name: str, ask: Callable[[Service], Proof], service: Service) -> Proof:
    try:
        return ask(service)
    except (RunbookError, OSError) as error:
        return Proof(name, "refuted", str(error).splitlines()[0])


#: What to do about what is not as installed, by the name of its proof; else it is restarted.
_NEXT = {
    "enabled": "runbook service install PARAMS",
    "active": "runbook service logs PARAMS, then: runbook service install PARAMS",
    "files": "see what differs: runbook service plan PARAMS; take drop-ins away, replace an edited "
    "unit (a backup is kept): runbook service install PARAMS --overwrite-edits",
}
_RESTART = (
    "systemctl restart {}; if it stays so, measure what it has become: "
    "runbook run PARAMS --from benchmark"
)
_READ = "read it as root on the host itself, while the service runs: runbook drift PARAMS"
_MEASURE = (
    "put back what was measured, or measure again: runbook run PARAMS --from verify_stack --apply"
)
_RECORD = "record it with the next measurement: runbook run PARAMS --from verify_stack"


def as_check(proof: Proof, unit: str) -> Check:
    """A proof as a check: what cannot be proved here is unknown."""
    status = _STATUS[proof.status]
    fix = _NEXT.get(proof.name) or (_READ if status == "unknown" else _RESTART.format(unit))
    return Check(proof.name, status, proof.evidence, "as installed and measured", fix)


def _of_surroundings(service: Service) -> Iterator[Check]:
    """What the guard looks at, read again now; what the server itself holds is its own."""
    expected = service.target.manifest["guard"]
    levels = {name: "fail" for name in expected["levels"] if name not in _ITS_OWN}
    findings, reason = ask_guard(service.host, service.spec, {**expected, "levels": levels})
    if reason:
        yield Check("guard", "unknown", reason, "its findings", _READ)
    for one in findings:
        status: Status = one["status"]  # type: ignore[assignment]
        name, wanted = _NAMES.get(one["name"], one["name"]), one["wanted"] or "what was measured"
        fix = _FIXES.get(status, _MEASURE)
        yield Check(name, status, one["found"], wanted, fix)


def _of_last_start(service: Service) -> Iterator[Check]:
    """What the guard found before the last start and let pass: it may be well again by now."""
    for said in guard.said_last(service.host, service.unit):
        if said.startswith("warn: "):
            found, _, wanted = said.removeprefix("warn: ").partition("; wanted: ")
            yield Check("guard at the last start", "warn", found, wanted, _MEASURE)


_FIXES = {"unknown": _READ, "skipped": _RECORD}

#: What a running server holds by right.
_ITS_OWN = ("port", "gpu_memory")

#: Names that a proof has already.
_NAMES = {"interpreter": "python"}


def drifted(checks: Iterable[Check]) -> list[Check]:
    """What is other than it should be."""
    return [check for check in checks if check.status == "fail"]
