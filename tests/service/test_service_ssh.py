"""The whole way over ssh: installed, proved, looked at and removed on a host behind a real sshd."""

import dataclasses

from far import far
from server_lives import free_port
from standin_service import UNIT, StandIn, make_measured, make_params

from runbook.hosts import SshHost
from runbook.install_service import (
    Service,
    drifted,
    install,
    plan_service,
    prove,
    read_drift,
    status,
    uninstall,
)
from runbook.launch.ports import port_holder
from runbook.probe.ask import Questions, ask_serving

__all__ = ["far"]

BOX_ONLY = {"back after reboot", "back after sudden death", "speed"}


def test_a_service_on_a_host_behind_ssh_is_installed_proved_and_removed(far):
    params, port = make_params(free_port()), free_port()
    with SshHost(far.address, config=far.config) as host:
        measured = make_measured(params.server.port, "--workers", "1")
        facts = ask_serving(host, measured.spec, Questions()).facts
        measured = dataclasses.replace(measured, facts=facts)
        plan = plan_service(host, params, "baseline", measured, "test-run")
        install(host, plan)
        assert plan_service(host, params, "baseline", measured, "test-run").unchanged
        proofs = prove(host, params, plan.target, engine=StandIn())
        others = {proof.name: proof.evidence for proof in proofs if proof.status != "proved"}
        assert set(others) == BOX_ONLY, others
        assert {p.status for p in proofs if p.name in BOX_ONLY} == {"not provable here"}
        assert drifted(read_drift(Service(host, params, plan.target, StandIn()))) == []
        assert status(host, UNIT).ok
        uninstall(host, UNIT)
        assert not far.box.exists(f"/etc/systemd/system/{UNIT}")
    with SshHost(far.address, port, far.config):
        assert "(ssh" in port_holder(port)
    assert port_holder(port) is None
