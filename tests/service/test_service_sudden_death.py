"""Kill -9 of the installing process, and of the whole box, after each step of an apply.

Whatever the step, what boots is the older service or the newer one, and the next install ends
what was begun.
"""

import contextlib
import dataclasses
import os
import re
import signal
import time

import pytest
from boxes import wait_until
from standin_service import UNIT, Deployment, StandIn

from runbook import probe
from runbook.install_service import install, status
from runbook.install_service.facts import read_facts
from runbook.install_service.places import Places
from runbook.install_service.plan import make_plan, make_target

OLD, NEW = "none", "eagle"
BOOT = f"write {Places(UNIT).boot_unit}"
WRITES = ("generation", "write guard.py", "write guard.json", BOOT, f"write {UNIT}")
CHANGE = (*WRITES, "daemon-reload", "restart", "current", "prune")
FIRST = (*WRITES, "daemon-reload", "enable", "start", "current", "prune")


def new_plan(deployment: Deployment):
    """The newer service: another configuration, another guard that expects more."""
    guard = probe.guard_program() + "# newer\n"
    facts = {"usercustomize": {"loaded": None}}
    measured = dataclasses.replace(deployment.measured(speculation=NEW), facts=facts)
    target = make_target(
        deployment.params, "fast", measured, guard, measured.spec.interpreter, "test-run"
    )
    return make_plan(target, read_facts(deployment.box, UNIT))


def plain(step):
    """The name of a step without the hash of what it wrote."""
    return re.sub(r"-[0-9a-f]{12}", "", step)


def killed_after(box, plan, wanted):
    """Install in a process of its own, which is killed when ``wanted`` has been done."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):

            def step(name):
                if plain(name) == wanted:
                    os.write(tell, b"x")
                    time.sleep(600)

            install(box, plan, step=step)
        os._exit(1)
    os.close(tell)
    reached = os.read(told, 1)
    os.close(told)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert reached == b"x", f"never came to {wanted}"


def serves(deployment, timeout_s=30):
    """What is served once the unit is active."""
    wait_until(lambda: deployment.show("ActiveState") == "active", timeout_s, deployment.left)
    StandIn().wait_ready(f"http://127.0.0.1:{deployment.port}", lambda: True, 20)
    return deployment.serves()


def finish(deployment):
    install(deployment.box, new_plan(deployment))
    assert deployment.serves() == NEW
    assert status(deployment.box, UNIT).ok
    assert new_plan(deployment).unchanged
    root = f"/var/lib/golive-runbook/{UNIT}"
    known = {path for path in new_plan(deployment).facts.files if path.startswith(root)}
    guards = [path for path in known if path.startswith(f"{root}/guard-") and path.endswith("py")]
    generations = deployment.box.list(f"{root}/generations")
    assert 1 <= len(guards) <= len(generations) <= 2


def test_no_step_is_left_out_here(deployment: Deployment):
    """What an apply does, each step of it, and in this order."""
    steps = []
    install(deployment.box, new_plan(deployment), step=steps.append)
    assert tuple(map(plain, steps)) == FIRST
    steps.clear()
    install(deployment.box, deployment.plan(speculation=OLD), step=steps.append)
    assert tuple(map(plain, steps)) == CHANGE


@pytest.mark.parametrize("step", CHANGE)
def test_after_any_step_of_a_change_the_box_boots_old_or_new(deployment: Deployment, step):
    install(deployment.box, deployment.plan(speculation=OLD))
    killed_after(deployment.box, new_plan(deployment), step)
    deployment.box.cut()
    expected = OLD if step in WRITES[:-1] else NEW
    assert serves(deployment) == expected
    finish(deployment)


@pytest.mark.parametrize("step", [WRITES[-1], "restart"], ids=["not loaded", "not current"])
def test_a_change_that_was_broken_off_is_ended_by_the_next_without_a_boot(deployment, step):
    """The manager knows the older unit still; or the newer one runs and is not noted as such."""
    install(deployment.box, deployment.plan(speculation=OLD))
    killed_after(deployment.box, new_plan(deployment), step)
    assert serves(deployment) in (OLD, NEW)
    finish(deployment)


@pytest.mark.parametrize("step", FIRST)
def test_after_any_step_of_a_first_install_it_boots_whole_or_not_at_all(deployment, step):
    killed_after(deployment.box, new_plan(deployment), step)
    deployment.box.cut()
    if step in FIRST[FIRST.index("enable") :]:
        assert serves(deployment) == NEW
    else:
        assert deployment.show("ActiveState") == "inactive"
    finish(deployment)
