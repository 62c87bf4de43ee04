"""What the journal of a boot tells of it, in words and in a real box that was rebooted."""

import dataclasses
import json
import subprocess

import pytest
from boxes import wait_until
from standin_service import UNIT, StandIn

from runbook.install_service import Service, after_boot, install, installed, status
from runbook.install_service.after_boot import Boot, Start, judge_boot, parse_boot
from runbook.probe import boot

MANIFEST = {"written": "2026-11-30T08:00:00Z"}
BOOTED = Boot("0123456789", 1796027000.0, 5.0, 20.0, 0.1, 1796027030.0, ())
RECORD = {
    "probe": "boot",
    **{"boot_id": "b", "at": 1.0, "began_s": 2.0, "over_s": None, "kept_from_s": 0.0},
    **{"read_at": 9.0, "starts": [{"at_s": 3.0, "planned": True, "served_s": 4.0}]},
}


def journal(*entries):
    return [
        json.dumps({"__MONOTONIC_TIMESTAMP": str(int(at * 1e6)), **what}) for at, what in entries
    ]


STARTING = {"MESSAGE_ID": boot.STARTING, "MESSAGE": "Starting"}
PLANNED = {"MESSAGE_ID": boot.RESTART_PLANNED, "MESSAGE": "Scheduled restart job"}
READY = {"MESSAGE": "gate: ready after 3.0 s: m served a completion of 16 tokens"}
BYTES = {"MESSAGE": [0, 255]}


def test_the_starts_of_a_boot_are_read_in_order():
    lines = [(7, STARTING), (8, BYTES), (9, PLANNED), (30, STARTING), (33, READY), (34, READY)]
    starts = [Start(**one) for one in boot.starts_in(journal(*lines, (40, STARTING)))]
    assert starts == [Start(7, False), Start(30, True, 33), Start(40, False)]
    assert list(boot.starts_in([])) == []


def test_what_a_server_has_logged_since_it_served_is_not_read():
    def endless():
        yield from journal((7, STARTING), (9, READY))
        raise AssertionError("months of it")

    assert [one["served_s"] for one in boot.until_served(boot.starts_in(endless()))] == [9]


def test_a_journal_that_cannot_be_read_is_not_taken_for_an_empty_one():
    with pytest.raises(subprocess.CalledProcessError):
        list(boot.printed_by("sh", "-c", "echo half; exit 1"))
    assert next(boot.printed_by("yes")) == "y\n"


def judged(*starts, **more):
    return judge_boot(dataclasses.replace(BOOTED, starts=starts, **more), MANIFEST)


def test_who_started_it_is_told_apart():
    assert judged(Start(7, False, 10)).status == "proved"
    assert judged(Start(7, False), Start(30, True, 33)).status == "proved"
    by_hand = judged(Start(7, False), Start(30, False, 33))
    assert by_hand.status == "refuted"
    assert "by hand after the boot was over" in by_hand.evidence
    for starts in ([], [Start(7, False)]):
        assert judged(*starts).status == "refuted"
    assert judged(Start(7, False, 10), at=1000.0).status == "not provable here"
    for starts in ([], [Start(3600.0 * 40, False, 3600.0 * 41)]):
        proof = judged(*starts, kept_from_s=3600.0 * 30)
        assert proof.status == "not provable here"
        assert "30.0 h after the boot" in proof.evidence
    recorded = judged(Start(7, False, 10), recorder="x-boot.service")
    assert recorded.evidence.endswith("recorded by x-boot.service at 2026-11-30T08:23:50Z")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", json.dumps({**RECORD, "x": 1})])
def test_half_a_record_is_none(text):
    assert parse_boot(text) is None
    whole = parse_boot(json.dumps(RECORD), "u")
    assert whole is not None
    assert (whole.served, whole.recorder) == (Start(3.0, True, 4.0), "u")


def look(deployment):
    target = installed(deployment.box, UNIT)
    return after_boot.prove_after_boot(
        Service(deployment.box, deployment.params, target, StandIn())
    )


def test_a_reboot_is_recorded_and_a_start_by_hand_is_seen(deployment):
    box = deployment.box
    stumble = "/var/lib/golive-runbook/stumble"
    install(box, deployment.plan("--load", "1", "--stumble", stumble))
    places = installed(box, UNIT).places
    verified = box.run("systemd-analyze", "verify", places.boot_file, check=False)
    assert (verified.code, verified.err) == (0, "")
    assert look(deployment).status == "not provable here"
    assert not box.exists(places.boot_record)

    def result():
        shown = box.run("systemctl", "show", "-P", "ActiveState,Result", places.boot_unit).out
        return shown.split()

    box.write(stumble, "")
    box.reboot()
    wait_until(lambda: box.exists(places.boot_record), 30, deployment.left)
    wait_until(lambda: sorted(result()) == ["active", "success"], 10, deployment.left)
    proof = look(deployment)
    assert proof.status == "proved", proof.evidence
    assert "started by nobody but systemd" in proof.evidence
    assert f"recorded by {places.boot_unit} at" in proof.evidence
    record = parse_boot((box.read(places.boot_record) or b"").decode())
    assert record is not None
    seen = [(start.planned, start.served_s is None) for start in record.starts]
    assert seen == [(False, True), (True, False)]
    box.run("journalctl", "--rotate")
    box.run("journalctl", "--vacuum-time=1s", check=False)
    assert look(deployment) == proof
    told = json.loads(box.read(places.boot_record))
    box.write(places.boot_record, json.dumps({**told, "at": 1000.0}))  # before its clock was set
    assert look(deployment) == proof

    box.run("systemctl", "disable", places.boot_unit)
    assert f"{places.boot_unit} is not enabled" in " ".join(status(box, UNIT).drift)
    box.run("systemctl", "disable", UNIT)
    assert not box.exists(places.boot_link)
    box.reboot()
    assert "started 0 times" in look(deployment).evidence
    box.run("systemctl", "start", UNIT)
    proof = look(deployment)
    assert "by hand" in proof.evidence
    assert "recorded" not in proof.evidence
