"""The real thing: llama.cpp measured as a process, installed as a unit in a box, and proved."""

from pathlib import Path

import pytest
from boxes import need_box
from server_lives import rehearsal, start

from runbook.engines import engine_for
from runbook.hosts import Box, LocalHost
from runbook.install_service import Measured, install, plan_service, prove, uninstall, verdict
from runbook.probe.ask import Questions, ask_serving
from runbook.rehearsal import model

__all__ = ["rehearsal", "start"]

LEAN = "ngram-lean"


@pytest.fixture
def box(tmp_path, rehearsal):
    """A box that sees the model, wherever this user's cache lies."""
    need_box(tmp_path)
    seen = [Path(__file__).parents[2], model.cache_folder()]
    with Box(tmp_path / "box", seen) as booted:
        yield booted


def test_the_measured_server_becomes_a_proved_service(box: Box, rehearsal, start):
    engine = engine_for(rehearsal.server)
    spec = engine.launch_spec(rehearsal, rehearsal.configuration(LEAN))
    life = start(spec)
    load_s = engine.wait_ready(life.url, life.alive, 120)
    facts = ask_serving(LocalHost(), spec, Questions()).facts
    measured = Measured(spec, (load_s,), engine.info(life.url), "process", facts)
    life.terminate()

    plan = plan_service(box, rehearsal, LEAN, measured, "test-run")
    install(box, plan)
    assert plan_service(box, rehearsal, LEAN, measured, "test-run").unchanged
    proofs = prove(box, rehearsal, plan.target)
    print(*proofs, sep="\n")
    assert {p.name: p.evidence for p in proofs if p.status != "proved"} == {
        "model files": "it was not measured",
        "speed": "the run it was measured in is not here",
    }
    assert verdict(proofs, "warn", rehearsal.service.unit).ok
    uninstall(box, rehearsal.service.unit)
    assert box.list("/etc/systemd/system/multi-user.target.wants") in (None, [])
