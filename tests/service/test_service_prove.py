"""The proofs of a stand-in service in a real box, and what they say when something is wrong."""

import json

import pytest
from standin_service import UNIT, Folder, StandIn

from runbook.hosts import LocalHost
from runbook.install_service import install, plan_service, prove, verdict
from runbook.install_service.observe import prove_burst, prove_info, prove_process
from runbook.install_service.service import Service


def proved(deployment, target, host=None, run=None):
    told = []
    proofs = prove(host or deployment.box, deployment.params, target, run, told.append, StandIn())
    assert told == proofs
    return {proof.name: proof for proof in proofs}


def test_a_service_as_measured_is_proved_through_kill_reboot_and_cut(deployment, tmp_path):
    plan = deployment.plan("--children", "2", env={"NASTY": "a b$c%d\"'\\"})
    install(deployment.box, plan)
    found = proved(deployment, plan.target, run=Folder(tmp_path))
    assert {p.name: p.evidence for p in found.values() if p.status != "proved"} == {}
    assert len(found) == 18
    assert "200 streamed completions" in found["burst"].evidence
    assert deployment.box.why_no_systemd() is None
    stored = json.loads((tmp_path / "service/proofs.json").read_text())
    assert [proof["name"] for proof in stored] == list(found)
    added = json.loads((tmp_path / "service/set_by_server.json").read_text())
    added.pop("LC_CTYPE", None)  # Python's own doing, by its version
    assert added == {"SET_BY_SERVER": "1", "ITS_TOKEN": "(not shown)"}
    journal = (tmp_path / "service/journal.txt").read_text()
    assert journal.count("gate: ready") >= 4
    said = verdict(found.values(), "fail", UNIT)
    assert said.ok
    assert "18 of 18 proved" in said.text


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
