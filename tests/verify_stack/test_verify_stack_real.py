"""The stage on this machine, by its own interpreter."""

import hashlib
import socket
from pathlib import Path

import pytest

from runbook import params, verify_stack
from runbook.engines.llamacpp import LlamaCpp
from runbook.errors import BadInput
from runbook.hosts import LocalHost, box_needs
from runbook.hosts.base import Host

CLONE = Path(__file__).parents[2]
ENGINE = LlamaCpp()


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rehearsal(model: Path, port: int, *overrides: str) -> params.Params:
    """The rehearsal's own parameters, with a small file in the place of its model."""
    fixed = [f"server.model={model}", f"server.port={port}"]
    return params.load(CLONE / "params" / "rehearsal.yaml", [*fixed, *overrides])


def verify(wanted: params.Params, host: Host) -> verify_stack.StackReport:
    specs = {one.name: ENGINE.launch_spec(wanted, one) for one in wanted.configurations}
    return verify_stack.verify(wanted, host, specs, ENGINE)


def by_name(report):
    return {check.name: check for check in report.checks}


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


def test_the_rehearsal_is_positive_here(model, free_port):
    report = verify(rehearsal(model, free_port), LocalHost())
    assert report.verdict.ok, [check for check in report.checks if check.status == "fail"]
    checks = by_name(report)
    assert checks["model"].found.endswith(hashlib.sha256(b"weights").hexdigest())
    assert checks["gpus"].status == "skipped"
    assert checks["engine_version"].status == "pass"
    files = [facts.facts["files"][str(model)] for facts in report.facts.serving.values()]
    assert len(files) == 3 and files[0] == files[1] == files[2]


def test_a_held_port_and_a_lost_model_are_negative(model):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        report = verify(rehearsal(model.with_name("gone"), port), LocalHost())
    checks = by_name(report)
    assert not report.verdict.ok
    assert checks["port"].status == "fail" and "pid" in checks["port"].found
    assert checks["model"].status == "fail" and "No such file" in checks["model"].found


def test_sitecustomize_of_one_configuration_is_found_by_running_it(model, free_port, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nos.environ.setdefault('NCCL_PROTO', 'LL')\n"
    )
    override = f"configurations[name=ngram-lean].env.PYTHONPATH={tmp_path}"
    check = by_name(verify(rehearsal(model, free_port, override), LocalHost()))["sitecustomize"]
    assert check.status == "fail"
    assert f"ngram-lean: {tmp_path}/sitecustomize.py" in check.found


def test_asked_gpus_are_negative_where_there_is_no_driver(model, free_port):
    report = verify(rehearsal(model, free_port, "stack.gpus=8"), LocalHost())
    if by_name(report)["gpus"].status == "pass":
        pytest.skip("this machine has eight GPUs")
    assert not report.verdict.ok
    assert by_name(report)["gpus"].status == "fail"


def test_nothing_is_asked_when_a_check_is_unknown(model, free_port):
    class Untouched(LocalHost):
        def execute(self, argv, stdin, timeout_s):
            raise AssertionError("the host was asked")

    with pytest.raises(BadInput, match="there is no check 'prot'"):
        verify(rehearsal(model, free_port, "stack.checks.prot=off"), Untouched())


def test_where_no_box_can_be_made_the_reason_is_told(model, free_port, monkeypatch):
    monkeypatch.setitem(box_needs._PROGRAMS, "systemd-absent", "systemd")
    report = verify(rehearsal(model, free_port), LocalHost())
    systemd = by_name(report)["systemd"]
    assert systemd.status == "warn"
    assert systemd.found.startswith("no box can be made: systemd-absent is missing")


def test_in_a_box_systemd_passes(box, free_port):
    wanted = rehearsal(Path("/etc/hostname"), free_port)
    report = verify(wanted, box)
    assert report.verdict.ok, [check for check in report.checks if check.status == "fail"]
    systemd = by_name(report)["systemd"]
    assert systemd.status == "pass" and "throw-away box" in systemd.found
