"""The proofs of a stand-in service in a real box, and what they say when something is wrong."""

import dataclasses
import json

import pytest
from standin_service import UNIT, Folder, StandIn, make_params

from runbook.cells import Cell, to_csv
from runbook.errors import ServerFailed
from runbook.hosts import LocalHost
from runbook.install_service import install, plan_service, prove, trials, verdict
from runbook.install_service.measured import UNMEASURED
from runbook.install_service.observe import (
    prove_burst,
    prove_info,
    prove_model_files,
    prove_process,
)
from runbook.install_service.service import Service
from runbook.probe.ask import Questions, ask_serving


class Measurements(Folder):
    """A run with three measured lives at C=4."""

    def __init__(self, path):
        super().__init__(path)
        lives = [Cell("baseline", n, n, 4, output_tok_s=100.0 + n) for n in range(3)]
        (path / "cells.csv").write_text(to_csv(lives))


def proved(deployment, target, host=None, run=None):
    told = []
    proofs = prove(
        host or deployment.box,
        deployment.params,
        target,
        run,
        told.append,
        StandIn(),
        lambda model, concurrency: 101.0,
    )
    assert told == proofs
    return {proof.name: proof for proof in proofs}


MODEL = "/opt/standin.gguf"


def with_model(deployment, *arguments, **more):
    """The plan of a service whose model is a file that was looked at when it was measured."""
    deployment.box.write(MODEL, b"the weights")
    values = deployment.params.model_dump()
    values["server"]["model"] = MODEL
    deployment.params = type(deployment.params).model_validate(values)
    measured = deployment.measured(*arguments, **more)
    asked = Questions(files=(MODEL,), hash_up_to_bytes=1 << 20)
    facts = ask_serving(deployment.box, measured.spec, asked).facts
    measured = dataclasses.replace(measured, facts=facts)
    return plan_service(deployment.box, deployment.params, "baseline", measured, "test-run")


def test_a_service_as_measured_is_proved_through_kill_reboot_and_cut(deployment, tmp_path):
    plan = with_model(deployment, "--workers", "2", env={"NASTY": "a b$c%d\"'\\"})
    install(deployment.box, plan)
    found = proved(deployment, plan.target, run=Measurements(tmp_path))
    assert {p.name: p.evidence for p in found.values() if p.status != "proved"} == {}
    assert len(found) == 24
    assert "2 worker processes have every measured variable" in found["worker environment"].evidence
    assert "answers were given to their end" in found["stop under load"].evidence
    assert " became " in found["back after SIGKILL of a worker"].evidence
    assert "101.0 tok/s at C=4, " in found["speed"].evidence
    assert "200 streamed completions" in found["burst"].evidence
    assert found["model files"].evidence.startswith("11 bytes, SHA-256 ")
    assert deployment.box.why_no_systemd() is None
    stored = json.loads((tmp_path / "service/proofs.json").read_text())
    assert [proof["name"] for proof in stored] == list(found)
    added = json.loads((tmp_path / "service/set_by_server.json").read_text())
    added.pop("LC_CTYPE", None)  # Python's own doing, by its version
    assert added == {"SET_BY_SERVER": "1", "ITS_TOKEN": "(not shown)"}
    journal = (tmp_path / "service/journal.txt").read_text()
    assert journal.count("gate: ready") >= 6
    said = verdict(found.values(), "fail", UNIT)
    assert said.ok
    assert "24 of 24 proved" in said.text


def test_a_server_that_cuts_its_answers_or_ends_badly_is_refuted(deployment):
    """D22: and afterwards it serves again."""
    plan = deployment.plan("--no-drain")
    install(deployment.box, plan)
    service = Service(deployment.box, deployment.params, plan.target, StandIn())
    proof = trials._prove_drain(service)
    assert proof.status == "refuted"
    assert "broken off" in proof.evidence
    assert deployment.serves() == "none"


def test_a_server_that_is_dead_inside_after_a_workers_death_is_refuted(deployment):
    """D13, C1: health says 200, the process lives, and nothing is ever answered."""
    plan = deployment.plan("--children", "1", "--hang-after", "1")
    install(deployment.box, plan)
    params = make_params(deployment.port, start_timeout_s=1.0)
    service = Service(deployment.box, params, plan.target, StandIn())
    with pytest.raises(ServerFailed):
        trials._prove_worker_kill(service)
    assert deployment.show("ActiveState") == "active"


def test_what_is_not_as_measured_is_refuted_by_name(deployment):
    install(deployment.box, deployment.plan(env={"A": "1"}))
    other = deployment.plan("--drain", "0.1", speculation="eagle", env={"A": "2", "B": "3"})
    service = Service(deployment.box, deployment.params, other.target, StandIn())
    found = {proof.name: proof for proof in [*prove_process(service), prove_info(service)]}
    assert "measured 'eagle', serves with 'none'" in found["arguments"].evidence
    assert "measured '--drain', serves with nothing" in found["arguments"].evidence
    assert "A is '1', measured '2'" in found["environment"].evidence
    assert "B is missing" in found["environment"].evidence
    assert "speculation is 'none', measured 'eagle'" in found["server info"].evidence
    refuted = {name for name, proof in found.items() if proof.status == "refuted"}
    assert refuted == {"arguments", "environment", "server info"}


def test_model_files_are_read_again_and_compared(deployment):
    plan = with_model(deployment)
    install(deployment.box, plan)
    service = Service(deployment.box, deployment.params, plan.target, StandIn())
    assert prove_model_files(service).status == "proved"
    deployment.box.write(MODEL, b"THE WEIGHTS")
    refuted = prove_model_files(service)
    assert refuted.status == "refuted"
    assert ", measured 11 bytes, SHA-256 " in refuted.evidence
    deployment.box.remove(MODEL)
    assert prove_model_files(service).status == "refuted"
    nothing = deployment.plan()
    service = Service(deployment.box, deployment.params, nothing.target, StandIn())
    assert prove_model_files(service).status == "not provable here"


def test_what_was_not_measured_is_called_declared(deployment):
    measured = dataclasses.replace(deployment.measured(env={"A": "1"}), launch=UNMEASURED)
    plan = plan_service(deployment.box, deployment.params, "baseline", measured, "test-run")
    install(deployment.box, plan)
    service = Service(deployment.box, deployment.params, plan.target, StandIn())
    told = {proof.name: proof.evidence for proof in prove_process(service)}
    assert "all as declared" in told["arguments"] and "all as declared" in told["environment"]
    assert not [text for text in told.values() if "measured" in text]


def test_a_server_that_hangs_in_the_burst_is_not_proved(deployment):
    plan = deployment.plan("--hang-after", "20")
    install(deployment.box, plan)
    values = deployment.params.model_dump()
    values["server"]["timeouts"]["request_s"] = 2.0
    values["service"]["burst"] = 30
    params = type(deployment.params).model_validate(values)
    proof = prove_burst(Service(deployment.box, params, plan.target, StandIn()))
    assert proof.status == "refuted"
    assert "of 30 failed" in proof.evidence


def test_where_no_systemd_runs_the_rest_is_said_to_be_unprovable(deployment, tmp_path):
    host = LocalHost()
    reason = host.why_no_systemd()
    if reason is None:
        pytest.skip("systemd runs on this machine")
    plan = plan_service(host, deployment.params, "baseline", deployment.measured(), "test-run")
    found = proved(deployment, plan.target, host=host, run=Folder(tmp_path))
    assert found["unit"].status in ("proved", "refuted")
    others = [proof for name, proof in found.items() if name != "unit"]
    assert {proof.status for proof in others} == {"not provable here"}
    assert {proof.evidence for proof in others} == {reason}
    assert not verdict(found.values(), "fail", UNIT).ok
    assert verdict(found.values(), "warn", UNIT).ok is (found["unit"].status == "proved")
