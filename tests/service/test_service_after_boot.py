"""What the journal of a boot tells of it, in words and in a real box that was rebooted."""

import dataclasses
import json

from standin_service import UNIT, StandIn

from runbook.install_service import Service, after_boot, install, installed
from runbook.install_service.after_boot import Boot, Start, judge_boot, starts_in

MANIFEST = {"written": "2026-11-30T08:00:00Z"}
BOOTED = Boot("0123456789", 1796027000.0, 5.0, 20.0)


def journal(*entries):
    return "\n".join(
        json.dumps({"__MONOTONIC_TIMESTAMP": str(int(at * 1e6)), **what}) for at, what in entries
    )


STARTING = {"MESSAGE_ID": after_boot._STARTING, "MESSAGE": "Starting"}
PLANNED = {"MESSAGE_ID": after_boot._RESTART_PLANNED, "MESSAGE": "Scheduled restart job"}
READY = {"MESSAGE": "gate: ready after 3.0 s: m served a completion of 16 tokens"}


def test_the_starts_of_a_boot_are_read_in_order():
    text = journal((7, STARTING), (9, PLANNED), (30, STARTING), (33, READY), (40, STARTING))
    assert list(starts_in(text)) == [Start(7, False), Start(30, True, 33), Start(40, False)]
    assert list(starts_in("")) == []


def test_who_started_it_is_told_apart():
    assert judge_boot(BOOTED, [Start(7, False, 10)], MANIFEST).status == "proved"
    assert judge_boot(BOOTED, [Start(7, False), Start(30, True, 33)], MANIFEST).status == "proved"
    by_hand = judge_boot(BOOTED, [Start(7, False), Start(30, False, 33)], MANIFEST)
    assert by_hand.status == "refuted"
    assert "by hand after the boot was over" in by_hand.evidence
    for starts in ([], [Start(7, False)]):
        assert judge_boot(BOOTED, starts, MANIFEST).status == "refuted"
    early = Boot("x", 1000.0, 5.0, 20.0)
    assert judge_boot(early, [Start(7, False, 10)], MANIFEST).status == "not provable here"
    rotated = dataclasses.replace(BOOTED, kept_from_s=3600.0 * 30)
    for starts in ([], [Start(3600.0 * 40, False, 3600.0 * 41)]):
        proof = judge_boot(rotated, starts, MANIFEST)
        assert (proof.status, "30.0 h after the boot" in proof.evidence) == (
            "not provable here",
            True,
        )


def look(deployment):
    target = installed(deployment.box, UNIT)
    return after_boot.prove_after_boot(
        Service(deployment.box, deployment.params, target, StandIn())
    )


def test_a_reboot_is_proved_afterwards_and_a_start_by_hand_is_seen(deployment):
    install(deployment.box, deployment.plan("--load", "1"))
    assert look(deployment).status == "not provable here"
    deployment.box.reboot()
    proof = look(deployment)
    assert proof.status == "proved", proof.evidence
    assert "started by nobody but systemd" in proof.evidence
    deployment.box.run("systemctl", "disable", UNIT)
    deployment.box.reboot()
    assert "started 0 times" in look(deployment).evidence
    deployment.box.run("systemctl", "start", UNIT)
    assert "by hand" in look(deployment).evidence
