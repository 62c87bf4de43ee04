"""The whole way over ssh: installed, proved, looked at and removed on a host behind a real sshd."""

import dataclasses
from pathlib import Path

from server_lives import free_port
from standin_service import SERVER, UNIT, StandIn, make_measured, make_params

from runbook.engines.assemble import own_program
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
from runbook.launch import systemd
from runbook.launch.ports import port_holder
from runbook.launch.systemd import UnitLauncher
from runbook.params import ApiKey, Host
from runbook.probe.ask import Questions, ask_serving

SECRET = "s3cret-of-the-test"
SLEEPS = ("/bin/sleep", "600")
BOX_ONLY = {"back after reboot", "back after sudden death", "model files", "speed"}


STATE = "/var/lib/golive-runbook"


def keyed(params, key):
    """The parameters with an API key, in a file of the same name here and there."""
    server = params.server.model_copy(update={"api_key": ApiKey(file=str(key))})
    return params.model_copy(update={"server": server, "host": Host(kind="ssh", address="x")})


def test_a_service_on_a_host_behind_ssh_is_measured_installed_proved_and_removed(far, tmp_path):
    """With an API key, and a server that is a program of the runbook: it goes along."""
    key = tmp_path / "key"
    key.write_text(SECRET)
    far.box.make_dir(tmp_path)
    far.box.write(key, SECRET, 0o600)
    params, port = keyed(make_params(free_port()), key), free_port()
    program, files = own_program(params, Path(SERVER))
    engine = StandIn(str(key))
    with SshHost(far.address, config=far.config) as host:
        measured = make_measured(params.server.port, "--workers", "1")
        words = (measured.spec.argv[0], program, *measured.spec.argv[2:])
        credentials = {"api-key": str(key)}
        spec = dataclasses.replace(measured.spec, argv=words, files=files, credentials=credentials)
        measured = dataclasses.replace(measured, spec=spec)
        with UnitLauncher(host).start(spec, "measured", 20, 5):
            engine.wait_ready(f"http://127.0.0.1:{params.server.port}", lambda: True, 20)
            assert far.box.exists(program)
        assert not far.box.exists(STATE)
        facts = ask_serving(host, measured.spec, Questions()).facts
        measured = dataclasses.replace(measured, facts=facts)
        plan = plan_service(host, params, "baseline", measured, "test-run")
        install(host, plan)
        assert plan_service(host, params, "baseline", measured, "test-run").unchanged
        proofs = prove(host, params, plan.target, engine=engine)
        others = {proof.name: proof.evidence for proof in proofs if proof.status != "proved"}
        assert set(others) == BOX_ONLY, others
        assert {p.status for p in proofs if p.name in BOX_ONLY} == {"not provable here"}
        assert drifted(read_drift(Service(host, params, plan.target, engine))) == []
        assert status(host, UNIT).ok
        with UnitLauncher(host).start(dataclasses.replace(spec, argv=SLEEPS), "other", 20, 5):
            pass
        assert far.box.exists(program), "the service's own stays"
        seen = far.box.run("sh", "-c", f"cat /proc/[0-9]*/cmdline; grep -r . {STATE} /etc/systemd")
        assert SECRET not in seen.out + plan.describe() + str(systemd.show(host, UNIT))
        uninstall(host, UNIT)
        assert not far.box.exists(f"/etc/systemd/system/{UNIT}")
        assert not far.box.exists(STATE)
    with SshHost(far.address, port, far.config):
        assert "(ssh" in port_holder(port)
    assert port_holder(port) is None
