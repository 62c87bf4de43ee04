"""What an install costs and survives: a stand-in server in a box with a real systemd.

    python benchmarks/service.py [--load 20] [--folder DIR]

Prints install to proved, downtime of a switch-over and of a hand-over, rollback, the guard's own
time, what a second apply changes, the time from `start` to the first completion against the bare
load of the same server, and a table of faults. Needs what a box needs (root). About six minutes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "service")]

from boxes import wait_until  # noqa: E402
from server_lives import free_port  # noqa: E402
from standin_service import SERVER, UNIT, Deployment, StandIn, make_params  # noqa: E402
from test_service_handover import STEPS  # noqa: E402
from test_service_sudden_death import CHANGE, FIRST, killed_after, new_plan  # noqa: E402

from runbook.errors import NotProved, RunbookError  # noqa: E402
from runbook.hosts import Box, why_no_box  # noqa: E402
from runbook.install_service import (  # noqa: E402
    Plan,
    install,
    logs,
    plan_rollback,
    prove,
    status,
    take_back,
    uninstall,
)

OLD = "old.service"


class Figures:
    """The stand-in's deployment in one box, and what was measured of it."""

    def __init__(self, box: Box) -> None:
        self.deployment = Deployment(box)
        self.box = box

    def say(self, name: str, text: str) -> None:
        print(f"{name:<44} {text}", flush=True)

    def clear(self) -> None:
        if self.box.exists(f"/etc/systemd/system/{UNIT}"):
            uninstall(self.box, UNIT, keep_edits=False)
        self.box.remove("/var/lib/golive-runbook")
        self.box.remove("/run/golive-runbook")

    def install_and_prove(self) -> None:
        began = time.monotonic()
        plan = self.deployment.plan("--workers", "2")
        applied = install(self.box, plan)
        installed_s = time.monotonic() - began
        proofs = prove(self.box, self.deployment.params, plan.target, engine=StandIn())
        took_s = time.monotonic() - began
        good = sum(proof.status == "proved" for proof in proofs)
        refuted = [proof.name for proof in proofs if proof.status == "refuted"]
        self.say("install until it serves", f"{installed_s:.1f} s (start {applied.served_s:.1f} s)")
        self.say("install to proved", f"{took_s:.1f} s, {good} of {len(proofs)}, refuted {refuted}")
        again = self.deployment.plan("--workers", "2")
        changed = sum(not change.same for change in again.files) + len(again.actions)
        said = install(self.box, again).changed
        self.say("second apply", f"{changed} changes planned, changed: {said}")
        guard = re.findall(r"guard: .* in ([0-9.]+) s", logs(self.box, UNIT) or "")
        self.say(
            "guard before a start", f"{max(map(float, guard)):.2f} s at most, {len(guard)} starts"
        )

    def switch_and_back(self) -> None:
        applied = install(self.box, self.deployment.plan(configuration="fast", env={"X": "1"}))
        self.say("switch-over to another configuration", f"{applied.downtime_s:.2f} s down")
        began = time.monotonic()
        install(self.box, plan_rollback(self.box, UNIT))
        self.say("rollback", f"{time.monotonic() - began:.2f} s")

    @contextmanager
    def another(self) -> Iterator[None]:
        """A unit of somebody else that serves on the port, and starts at boot."""
        self.clear()
        port, path = self.deployment.port, f"/etc/systemd/system/{OLD}"
        unit = f"[Service]\nExecStart={sys.executable} {SERVER} {port}\n"
        self.box.write(path, f"{unit}[Install]\nWantedBy=multi-user.target\n")
        self.box.run("systemctl", "daemon-reload")
        self.box.run("systemctl", "enable", "--now", OLD)
        StandIn().wait_ready(f"http://127.0.0.1:{port}", lambda: True, 20)
        try:
            yield
        finally:
            self.clear()
            self.box.run("systemctl", "disable", "--now", OLD)
            self.box.remove(path)

    def replacing(self) -> Plan:
        params = make_params(self.deployment.port, replaces=[OLD])
        return self.deployment.plan(params=params)

    def hand_over(self) -> None:
        with self.another():
            applied = install(self.box, self.replacing())
            self.say("hand-over from a unit of somebody else", f"{applied.downtime_s:.2f} s down")

    def start_against_bare(self, load_s: float) -> None:
        port = free_port()
        command = [sys.executable, SERVER, str(port), "--load", str(load_s)]
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            StandIn().wait_ready(f"http://127.0.0.1:{port}", lambda: True, load_s + 30)
            bare_s = time.monotonic() - began
        finally:
            process.kill()
            process.wait()
        plan = self.deployment.plan(
            "--load",
            str(load_s),
            params=make_params(self.deployment.port, start_timeout_s=load_s + 30),
        )
        served_s = install(self.box, plan).served_s or 0.0
        guard_s = float(re.findall(r"guard: .* in ([0-9.]+) s", logs(self.box, UNIT))[-1])
        self.say(
            f"start to first completion, load {load_s:g} s",
            f"{served_s:.2f} s, bare {bare_s:.2f} s: ratio {served_s / bare_s:.3f}, "
            f"{served_s - bare_s:+.2f} s, of it guard {guard_s:.2f} s",
        )
        self.clear()

    # --- faults ------------------------------------------------------------------------------

    def faults(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for step in CHANGE:
            yield f"sudden death of the box after: {step}", lambda step=step: self.cut(step)
        for step in FIRST:
            yield f"the same in a first install: {step}", lambda step=step: self.cut_first(step)
        for step in STEPS:
            yield f"the same in a hand-over: {step}", lambda step=step: self.cut_handover(step)
        yield "a proof that is refuted", self.refuted
        yield "a configuration that dies at once", lambda: self.broken("--exit", "5")
        yield "one that never becomes ready", lambda: self.broken("--dead-inside")
        yield "SIGKILL of the main process", self.kill

    def serves(self) -> None:
        wait_until(lambda: self.deployment.show("ActiveState") == "active", 30)
        StandIn().wait_ready(f"http://127.0.0.1:{self.deployment.port}", lambda: True, 20)

    def cut(self, step: str) -> None:
        install(self.box, self.deployment.plan(speculation="none"))
        killed_after(self.box, new_plan(self.deployment), step)
        self.box.cut()
        self.serves()
        install(self.box, new_plan(self.deployment))
        assert status(self.box, UNIT).ok

    def cut_first(self, step: str) -> None:
        killed_after(self.box, new_plan(self.deployment), step)
        self.box.cut()
        install(self.box, new_plan(self.deployment))
        assert status(self.box, UNIT).ok

    def cut_handover(self, step: str) -> None:
        with self.another():
            killed_after(self.box, self.replacing(), step)
            self.box.cut()
            StandIn().wait_ready(f"http://127.0.0.1:{self.deployment.port}", lambda: True, 30)

    def refuted(self) -> None:
        install(self.box, self.deployment.plan(speculation="none"))
        install(self.box, self.deployment.plan(speculation="eagle"))
        take_back(self.box, UNIT)
        self.serves()
        assert self.deployment.serves() == "none" and status(self.box, UNIT).ok

    def broken(self, *words: str) -> None:
        install(self.box, self.deployment.plan())
        params = make_params(self.deployment.port, start_timeout_s=2.0)
        try:
            install(self.box, self.deployment.plan(*words, params=params))
        except NotProved:
            self.serves()
            assert status(self.box, UNIT).ok
        else:
            raise AssertionError("it was installed")

    def kill(self) -> None:
        install(self.box, self.deployment.plan())
        before = self.deployment.show("MainPID")
        self.box.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", UNIT)
        wait_until(lambda: self.deployment.show("MainPID") not in ("0", before), 30)
        self.serves()

    def try_faults(self) -> int:
        lost = 0
        print()
        for name, fault in self.faults():
            began = time.monotonic()
            try:
                fault()
                said = "survived"
            except (AssertionError, RunbookError) as error:
                said, lost = f"LOST: {error}", lost + 1
            self.say(name, f"{said} ({time.monotonic() - began:.1f} s)")
            self.clear()
        print(f"\nfaults lost: {lost}")
        return lost


@contextmanager
def opened(folder: Path | None) -> Iterator[Box]:
    with tempfile.TemporaryDirectory(prefix="service-", dir=folder) as state:
        reason = why_no_box(Path(state))
        if reason:
            sys.exit(f"no box can be made here: {reason}")
        with Box(Path(state) / "box", [ROOT]) as box:
            yield box


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--load", type=float, default=20.0, help="seconds of the long load")
    parser.add_argument("--folder", type=Path, help="where the box's files go")
    given = parser.parse_args()
    with opened(given.folder) as box:
        figures = Figures(box)
        figures.install_and_prove()
        figures.switch_and_back()
        figures.hand_over()
        for load_s in (2.0, given.load):
            figures.start_against_bare(load_s)
        return 1 if figures.try_faults() else 0


if __name__ == "__main__":
    sys.exit(main())
