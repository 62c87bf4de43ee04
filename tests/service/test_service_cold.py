"""A cold start of an installed service: stopped, its model dropped from the page cache, started."""

import os
from pathlib import Path

import pytest
from standin_service import UNIT, Deployment, StandIn

from runbook.install_service import Service, install
from runbook.install_service.cold import announce, prove_cold_start
from runbook.install_service.measured import cold_start
from runbook.install_service.plan import start_timeout

MODEL = "/opt/standin-model"


def served(deployment, model):
    server = deployment.params.server.model_copy(update={"model": model})
    deployment.params = deployment.params.model_copy(update={"server": server})
    plan = deployment.plan("--load", "0.3")
    install(deployment.box, plan)
    return Service(deployment.box, deployment.params, plan.target, StandIn())


def test_one_cold_start_is_measured_and_told_apart(deployment: Deployment):
    box = deployment.box
    box.write(MODEL, os.urandom(2**20))
    service = served(deployment, MODEL)
    assert "nobody answers until it has served" in announce(service)
    before = deployment.show("MainPID")
    proof, found = prove_cold_start(service)
    assert proof.status == "proved", proof.evidence
    assert found["seconds"] >= 0.3
    assert (found["files"], found["bytes"], found["configuration"]) == (1, 2**20, "baseline")
    assert deployment.show("MainPID") not in ("0", before)
    box.write("/dev/shm/standin-model", b"x" * 9000)
    service = served(deployment, "/dev/shm/standin-model")
    proof, found = prove_cold_start(service)
    assert (proof.status, found) == ("not provable here", None)
    assert "stayed in memory" in proof.evidence and "it served after" in proof.evidence
    box.remove("/dev/shm/standin-model")
    proof, found = prove_cold_start(service)
    assert (proof.status, found) == ("not provable here", None)
    assert "No such file" in proof.evidence
    assert box.run("systemctl", "is-active", UNIT).out.strip() == "active"


class Stored:
    """A run folder with what ``verify --cold`` has written."""

    def __init__(self, found):
        self.found = found
        self.path = Path("/")

    def read_json(self, name, kind=dict):
        return self.found


@pytest.mark.parametrize(
    ("proved", "launch", "seconds"),
    [
        (None, {}, None),
        ({"configuration": "fast", "seconds": 300.0}, {}, 300.0),
        ({"configuration": "baseline", "seconds": 300.0}, {"cold_s": 200.0}, 200.0),
        ({"configuration": "fast", "seconds": 300.0}, {"cold_s": 400.0}, 400.0),
    ],
)
def test_the_slowest_cold_start_counts_for_the_limit_of_a_start(proved, launch, seconds):
    from standin_service import make_params

    found = cold_start(Stored(proved), "fast", launch)
    assert found == seconds
    limit_s, said = start_timeout(make_params(1), (40.0, 42.0), found)
    assert limit_s == 3 * max(42.0, found or 0)
    assert f"{max(42.0, found or 0):.1f} s" in said
