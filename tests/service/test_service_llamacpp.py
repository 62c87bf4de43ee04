"""The real thing: llama.cpp measured as a process, installed as a unit in a box, and proved."""

from boxes import box
from server_lives import rehearsal, start

from runbook.engines import engine_for
from runbook.hosts import Box
from runbook.install_service import Measured, install, plan_service, prove, uninstall, verdict

__all__ = ["box", "rehearsal", "start"]

LEAN = "ngram-lean"


def test_the_measured_server_becomes_a_proved_service(box: Box, rehearsal, start):
    engine = engine_for(rehearsal.server)
    spec = engine.launch_spec(rehearsal, rehearsal.configuration(LEAN))
    life = start(spec)
    load_s = engine.wait_ready(life.url, life.alive, 120)
    measured = Measured(spec, (load_s,), engine.info(life.url), "process")
    life.terminate()

    plan = plan_service(box, rehearsal, LEAN, measured, "test-run")
    install(box, plan)
    assert plan_service(box, rehearsal, LEAN, measured, "test-run").unchanged
    proofs = prove(box, rehearsal, plan.target)
    print(*proofs, sep="\n")
    assert {p.name: p.evidence for p in proofs if p.status != "proved"} == {}
    assert verdict(proofs, "fail", rehearsal.service.unit).ok
    uninstall(box, rehearsal.service.unit)
    assert box.list("/etc/systemd/system/multi-user.target.wants") in (None, [])
