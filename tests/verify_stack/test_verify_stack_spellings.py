"""One file of a right host written as other hosts write it, or telling what others tell."""

import shutil
import subprocess
from functools import cache

import pytest
from test_verify_stack_hosts import HOSTS, PRODUCTION, engine_for, verify_captured

from runbook.verify_stack.commands import host_facts

RIGHT = HOSTS / "eight-cards"
SETTINGS, STATES = "settings.txt", "nvidia-smi-state.csv"


def judged(folder):
    engine = engine_for(PRODUCTION.server)
    specs = {one.name: engine.launch_spec(PRODUCTION, one) for one in PRODUCTION.configurations}
    return {
        check.name: check for check in verify_captured(PRODUCTION, folder, specs, engine).checks
    }


@cache
def whole():
    return {name: check.status for name, check in judged(RIGHT).items()}


def written(folder, **files):
    """The right host with the text of some files changed; a file by its name without ending."""
    here = shutil.copytree(RIGHT, folder / "host")
    for name, change in files.items():
        (path,) = here.glob(name.replace("_", "-") + ".*")
        path.write_text(change(path.read_text()))
    return judged(here)


def kernel(line):
    return lambda text: f"{text}2026-11-29T10:00:00+00:00 node7 kernel: {line}\n"


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("pcieport 0000:20:01.1: AER: enabled with IRQ 40", "pass", "0 Xid, 0 PCIe errors"),
        ("pcieport 0000:20:01.1: AER: Multiple Corrected error received", "warn", "1 PCIe error"),
        ("pcieport 0000:20:01.1: AER: Uncorrected (Fatal) error received", "fail", "1 PCIe error"),
        ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", "fail", "1 Xid"),
    ],
)
def test_a_port_that_says_at_boot_that_it_listens_is_no_error(tmp_path, line, status, said):
    found = written(tmp_path, kernel_log=kernel(line))["kernel_log"]
    assert (found.status, said in found.found) == (status, True), found


def test_a_storm_of_corrected_errors_hides_no_xid(tmp_path):
    storm = ["kernel: Linux version 6.8", *["kernel: AER: Corrected error received"] * 3000]
    storm += ["kernel: NVRM: Xid (PCI:0000:01:00): 79", "kernel: AER: Uncorrected (Fatal) error"]
    (tmp_path / "journalctl").write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(storm) + "\nEND\n")
    (tmp_path / "journalctl").chmod(0o755)
    (fact,) = [one for one in host_facts() if one.name == "kernel_log"]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    told = subprocess.run(fact.argv, env=env, capture_output=True, text=True, check=True).stdout
    assert fact.parse(told)[-2:] == storm[-2:] and len(told.splitlines()) == 504


@pytest.mark.parametrize("kept", [1, 2, 3])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_counted_kernel_log_that_ends_at_a_line_is_cut_off(kept, end):
    lines = [f"kernel: {said}{end}" for said in ("Linux version 6.8", "AER: enabled with IRQ 40")]
    (fact,) = [one for one in host_facts() if one.name == "kernel_log"]
    with pytest.raises(ValueError, match="cut off"):
        fact.parse("".join([f"# lines of the kernel log: 3{end}", *lines][:kept]))
    assert fact.parse("".join([f"# lines of the kernel log: 2{end}", *lines])) == []
    assert fact.parse("".join(lines)) == [], "captured before the lines were counted, or by hand"
    fault = "kernel: NVRM: Xid (PCI:0000:01:00): 79\n"
    assert fact.parse(f"# lines of the kernel log: 9\n{fault}") == [fault.strip()]


@pytest.mark.parametrize(
    ("line", "groups", "status"),
    [
        ("iommu=pt", 42, "pass"),
        ("iommu.passthrough=1", 42, "pass"),
        ("amd_iommu=on iommu=soft,pt", 42, "pass"),
        ("iommu=pt iommu=nopt", 42, "fail"),
        ("amd_iommu=pt", 42, "fail"),  # the kernel knows no such value
        ("amd_iommu=off", 0, "pass"),
        ("amd_iommu=off", 42, "fail"),  # of another maker's processor: it is on
        ("intel_iommu=off intel_iommu=on", 0, "warn"),
        ("iommu.passthrough=0", 42, "fail"),
    ],
)
def test_the_iommu_as_the_kernel_reads_its_command_line(tmp_path, line, groups, status):
    found = written(
        tmp_path,
        proc_cmdline=lambda text: f"BOOT_IMAGE=/vmlinuz ro {line}\n",
        settings=lambda text: text.replace("iommu_groups:0", f"iommu_groups:{groups}"),
    )["iommu"]
    assert found.status == status and line in found.found, found


def test_memory_that_no_process_is_seen_to_hold_is_not_idle(tmp_path):
    def change(text):
        return text.replace("2, 0, 0, 4,", "2, 0, 0, 80000,")

    found = written(tmp_path, nvidia_smi_state=change)["idle"]
    assert found.status == "fail" and found.found == "GPU 2: 80000 MiB held without a process"
    assert "container" in found.fix


def test_states_with_their_units_are_read(tmp_path):
    def change(text):
        return text.replace("0, 0, 4, 2430", "0, 0 %, 4 MiB, 2430 MHz")

    found = written(tmp_path, nvidia_smi_state=change)
    assert {found[name].status for name in ("idle", "clocks", "ecc_errors")} == {"pass"}
    assert found["clocks"].found == "8 x 2430 MHz"


def test_a_shells_warning_before_the_cards_is_no_card(tmp_path):
    def change(text):
        return f"bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)\n{text}"

    found = written(tmp_path, nvidia_smi_query=change, nvidia_smi_state=change)
    assert {name: check.status for name, check in found.items()} == whole()


def test_a_card_that_is_told_twice_is_not_two(tmp_path):
    def change(text):
        first, second, *others = text.splitlines()
        twice = second.replace(second.split(", ")[2], first.split(", ")[2])
        return "\n".join([first, twice, *others]) + "\n"

    found = written(tmp_path, nvidia_smi_query=change)["gpus"]
    assert found.status == "fail" and "is told 2 times" in found.found


@pytest.mark.parametrize(
    "said",
    [
        "zsh: command not found: {}",
        "Command '{}' not found, but can be installed with:\nsudo apt install something",
        "fish: Unknown command: {}",
        "env: '{}': No such file or directory",
        "sh: 1: {}: not found",
    ],
)
def test_a_program_that_is_not_there_in_the_words_of_each_shell(tmp_path, said):
    found = written(
        tmp_path,
        nvidia_smi_query=lambda text: said.format("nvidia-smi"),
        nvcc_version=lambda text: said.format("nvcc"),
    )
    assert found["gpus"].status == "fail" and "no NVIDIA driver" in found["gpus"].found
    assert found["nvcc"].status == "warn" and "nvcc is not there" in found["nvcc"].found


@pytest.mark.parametrize("value", ["garbage", "-1", "60"])
def test_a_swappiness_that_is_none_is_no_pass(tmp_path, value):
    found = written(tmp_path, settings=lambda text: text.replace("ness:10", f"ness:{value}"))
    assert found["cpu_settings"].status == "warn"


def test_options_of_the_driver_over_two_lines(tmp_path):
    asked = "/etc/modprobe.d/nvidia.conf:options nvidia "

    def change(text):
        return text.replace(
            asked + "NVreg_EnableResizableBar=1",
            f"{asked}\\\n/etc/modprobe.d/nvidia.conf:  NVreg_EnableResizableBar=0",
        )

    found = written(tmp_path, settings=change)["driver_options"]
    assert found.status == "warn" and "EnableResizableBar=0 in modprobe.d" in found.found
