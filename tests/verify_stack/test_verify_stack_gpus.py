import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.hosts.base import Done
from runbook.params import Stack
from runbook.verify_stack.commands import host_facts
from runbook.verify_stack.facts import Reading, reading_of
from runbook.verify_stack.gpu_checks import GPU_CHECKS, in_range
from runbook.verify_stack.gpus import gpus_from, parse_gpus

CASES = Path(__file__).parents[1] / "cases" / "verify_stack"
EIGHT = Stack(
    gpus=8,
    gpu_name="RTX PRO 6000 Blackwell",
    gpu_memory_gib=95.0,
    compute_cap="12.0",
    driver_version=">=580",
    pcie_gen=5,
    pcie_width=16,
)

#: What the others do not say for a card that is not told of.
SEVEN = dict.fromkeys(GPU_CHECKS, ("unknown", "told of 7 of 8 GPUs"))
EXPECTED = {
    "eight-idle.csv": {},
    "mig-on-3-domain-1.csv": {"mig": ("fail", "GPU 3: Enabled")},
    "lost-card.csv": {
        **SEVEN,
        "gpus": ("fail", "7 GPUs; Unable to determine the device handle for GPU5"),
    },
    "not-supported.csv": {
        **dict.fromkeys(("gpu_name", "driver"), ("unknown", "told of 1 of 8 GPUs")),
        "gpus": ("fail", "1 GPU"),
        **dict.fromkeys(
            ("gpu_memory", "compute_cap", "mig", "pcie_link", "persistence", "ecc", "power"),
            ("unknown", "GPU 0: the driver does not tell"),
        ),
    },
    "mixed-power-and-names.csv": {
        "gpu_name": ("warn", "GPU 6: NVIDIA RTX PRO 6000 Blackwell Max-Q"),
        "persistence": ("warn", "GPU 7: Disabled"),
        "ecc": ("warn", "GPU 6: Disabled"),
        "power": ("warn", "GPU 7: 450 W"),
    },
    "narrow-link.csv": {"pcie_link": ("fail", "GPU 6: generation 5 x8, now 1 (P8)")},
    "cut-off.csv": {**SEVEN, "gpus": ("fail", "7 GPUs; 7, NVIDIA RTX PRO 6000")},
    "ansi-and-header.csv": {
        **dict.fromkeys(GPU_CHECKS, ("unknown", "told of 1 of 8 GPUs")),
        "gpus": ("fail", "1 GPU"),
    },
}


def read(name: str) -> str:
    return (CASES / name).read_bytes().decode()


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.glob("*.csv")))
def test_captured_output_gives_the_verdicts(name):
    found = parse_gpus(read(name))
    for check_name, judge in GPU_CHECKS.items():
        check = judge(found, EIGHT)
        status, said = EXPECTED[name].get(check_name, ("pass", ""))
        assert (check.name, check.status) == (check_name, status), check
        assert said in check.found
        assert check.fix or check.status in ("pass", "unknown")


def test_who_holds_a_card_is_told_with_its_unit(tmp_path):
    facts = {fact.name: fact for fact in host_facts()}
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\necho {os.getpid()}\necho '[N/A]'\n")
    smi.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    asked = facts["gpu_units"].argv
    out = subprocess.run(asked, env=env, capture_output=True, text=True, check=True).stdout
    own = Path("/proc/self/cgroup").read_text().splitlines()[-1]
    assert f"/proc/{os.getpid()}/cgroup:{own}" in out and out.endswith("/proc/end:\n")
    told = out + "/proc/7/cgroup:0::/system.slice/a.service/sub\n"
    assert facts["gpu_units"].parse(told)["7"] == "a.service"
    assert facts["gpu_units"].parse("/proc/end:\n") == {}
    env["PATH"] = "/nonexistent"
    gone = subprocess.run(["/bin/sh", *asked[1:]], env=env, capture_output=True, text=True)
    assert gone.returncode == 127


@pytest.mark.parametrize("fact", host_facts(), ids=lambda fact: fact.name)
@given(text=st.text())
def test_a_parser_takes_any_text(fact, text):
    try:
        fact.parse(text)
    except ValueError as error:
        assert str(error)


def test_fields_of_an_idle_card():
    card = parse_gpus(read("eight-idle.csv")).gpus[1]
    assert (card.index, card.bus_id, card.driver_version) == (1, "00000000:11:00.0", "580.126.20")
    assert (card.memory_mib, card.power_limit_w) == (97887.0, 600.0)
    assert (card.pstate, card.link_gen, card.link_gen_max, card.link_width) == ("P8", 1, 5, 16)


def test_an_awake_card_with_a_slow_link_warns_alone():
    text = read("eight-idle.csv").replace("P8, 1, 5", "P0, 4, 5", 1)
    check = GPU_CHECKS["pcie_link"](parse_gpus(text), EIGHT)
    assert (check.status, check.found) == ("warn", "GPU 0: generation 5 x16, now 4 (P0)")


@pytest.mark.parametrize(
    "field",
    [
        "[N/A]",
        "N/A",
        "[Not Supported]",
        "[Unknown Error]",
        "[GPU is lost]",
        "[Insufficient Permissions]",
        "[Requested functionality has been deprecated]",
        "",
    ],
)
def test_what_says_nothing_is_none_and_never_a_pass(field):
    fields = read("eight-idle.csv").splitlines()[0].split(", ")
    text = ", ".join([fields[0], *[field] * (len(fields) - 1)])
    found = parse_gpus(text)
    assert set(asdict(found.gpus[0]).values()) == {0, None}
    for name, judge in GPU_CHECKS.items():
        if name != "gpus":
            assert judge(found, EIGHT).status == "unknown"


@given(st.text())
def test_any_text_is_parsed_and_survives_json(text):
    found = parse_gpus(text)
    assert gpus_from(asdict(found)) == found
    for judge in GPU_CHECKS.values():
        judge(found, EIGHT)


@given(
    st.lists(st.sampled_from([*read("eight-idle.csv").splitlines(), "[N/A]"]), max_size=9),
    st.data(),
)
def test_cut_anywhere_never_counts_more_cards_than_are_whole(lines, data):
    text = "\n".join(lines)
    at = data.draw(st.integers(0, len(text)))
    found = parse_gpus(text[:at])
    whole = parse_gpus(text)
    assert len(found.gpus) <= len(whole.gpus)


def read_as(name: str, code: int, out: str, err: str = "") -> Reading:
    fact = next(one for one in host_facts() if one.name == name)
    return reading_of(fact, Done(fact.argv, code, out, err))


def test_absent_driver_is_absent_and_a_broken_one_is_unknown():
    absent = read_as("gpus", 127, "", "nvidia-smi: No such file or directory")
    assert absent.absent and absent.value is None and "no NVIDIA driver" in absent.reason
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    broken = read_as("gpus", 9, text)
    assert not broken.absent
    found = gpus_from(broken.value)
    assert found.gpus == () and GPU_CHECKS["gpus"](found, EIGHT).status == "fail"
    silent = read_as("gpus", 255, "", "boom")
    assert silent.value == {"gpus": [], "faults": ["boom"]}
    none = read_as("gpus", 6, "No devices were found\n")
    assert none.value == {"gpus": [], "faults": []}
    assert GPU_CHECKS["gpus"](gpus_from(none.value), EIGHT).status == "fail"
    shell = read_as("gpus", 0, "bash: line 1: nvidia-smi: command not found\r\n")
    assert shell == absent


@pytest.mark.parametrize(
    ("code", "out", "value"),
    [
        (0, "systemd 252 (252.38-1~deb12u1)\n+PAM +AUDIT", 252),
        (0, "systemd 255 (255.4-1ubuntu8.4)\n", 255),
        (0, "", None),
        (1, "System has not been booted with systemd as init system", None),
        (127, "", None),
    ],
)
def test_systemd_version(code, out, value):
    reading = read_as("systemd_version", code, out)
    assert reading.value == value
    assert (value is None) == bool(reading.reason)


def test_versions_of_any_spelling():
    assert in_range("2.11.0+cu130", ">=2.11,<3") is True
    assert in_range("580.126.20", ">=580") is True
    assert in_range("0.5.12.post1", ">=0.5.10,<0.5.13") is True
    assert in_range("0.5.13", ">=0.5.10,<0.5.13") is False
    assert in_range("weird", ">=1") is None
    assert in_range("weird", "") is True
