"""Good restarts never stop production; a broken server still stops after its tries."""

import pytest
from boxes import wait_until
from standin_service import UNIT, Deployment

from runbook.install_service import install, logs
from runbook.probe.tries import is_ordered, was_starting

#: More than the tries that a broken server has (``service.start_limit_burst``: 3).
MANY = 10


@pytest.mark.parametrize(
    ("jobs", "ordered"),
    [
        ("", False),
        ("625 standin.service start running\n", False),
        ("625 standin.service restart running\n", True),
        (" 7 standin.service stop waiting\n", True),
        ("8 other.service stop running\n9 standin.service start running\n", False),
        ("No jobs running.", False),
    ],
)
def test_an_order_to_stop_is_told_from_a_start_that_failed(jobs, ordered):
    assert is_ordered(jobs, UNIT) is ordered


@pytest.mark.parametrize(("woken", "entered", "starting"), [(9, 0, True), (9, 5, True), (5, 9, 0)])
def test_a_start_is_under_way_until_the_unit_is_active(woken, entered, starting):
    shown = f"ActiveEnterTimestampMonotonic={entered}\nInactiveExitTimestampMonotonic={woken}\n"
    assert was_starting(shown) is bool(starting)


def state(deployment: Deployment) -> str:
    return deployment.show("ActiveState")


def is_new(deployment: Deployment, before: str) -> bool:
    return state(deployment) == "active" and deployment.show("MainPID") not in ("0", before)


def test_ten_good_restarts_and_ten_crashes_leave_a_service_that_serves(deployment: Deployment):
    box = deployment.box
    install(box, deployment.plan())
    assert deployment.params.service.start_limit_burst < MANY
    for _ in range(MANY):  # systemctl returns when a completion was served
        box.run("systemctl", "restart", UNIT)
    assert deployment.serves() == "none"
    for _ in range(MANY):
        before = deployment.show("MainPID")
        box.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", UNIT)
        wait_until(lambda b=before: is_new(deployment, b), 20, lambda: state(deployment))
    assert deployment.serves() == "none"
    assert "repeated too quickly" not in logs(box, UNIT, lines=None)


def test_who_restarts_again_while_it_loads_uses_up_no_tries(deployment: Deployment):
    """A restart every minute of a server that takes longer to load: nothing has failed."""
    box = deployment.box
    install(box, deployment.plan("--load", "1"))
    for _ in range(6):
        before = deployment.show("MainPID")
        box.run("systemctl", "restart", "--no-block", UNIT)
        wait_until(
            lambda b=before: (
                deployment.show("SubState") == "start-post"
                and deployment.show("MainPID") not in ("0", b)
            ),
            20,
            lambda: deployment.show("SubState"),
        )
    wait_until(lambda: state(deployment) == "active", 20, lambda: state(deployment))
    assert deployment.serves() == "none"
    assert "it counts as no try" in logs(box, UNIT)


def test_a_broken_server_stops_after_its_tries_and_two_orders_start_it_again(
    deployment: Deployment,
):
    box, broken = deployment.box, "/run/standin-broken"
    plan = deployment.plan("--stumble-while", broken)
    install(box, plan)
    box.run("systemctl", "restart", UNIT)
    box.write(broken, "")
    box.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", UNIT)
    wait_until(lambda: state(deployment) == "failed", 30, lambda: state(deployment))
    burst = deployment.params.service.start_limit_burst
    began = [line for line in logs(box, UNIT, lines=None).splitlines() if "stumbled" in line]
    assert len(began) == burst, "the start that served is not among them"
    assert box.run("systemctl", "start", UNIT, check=False).code, "its tries are used up"
    box.remove(broken)
    box.run("systemctl", "reset-failed", UNIT)
    assert state(deployment) == "inactive", "to reset starts nothing"
    box.run("systemctl", "start", UNIT)
    assert deployment.serves() == "none"
