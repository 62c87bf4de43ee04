"""Links and machines as they are: the speed of a link at work, and cards in a virtual machine."""

import json
import shutil
from pathlib import Path

import pytest

from runbook import params
from runbook.engines import engine_for
from runbook.verify_stack import verify_captured, verify_captured_machine

CLONE = Path(__file__).parents[2]
HOST = CLONE / "tests" / "cases" / "hosts" / "eight-cards"
WANTED = params.load(CLONE / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml")
ENGINE = engine_for(WANTED.server)
SPECS = {one.name: ENGINE.launch_spec(WANTED, one) for one in WANTED.configurations}


@pytest.fixture
def host(tmp_path):
    return Path(shutil.copytree(HOST, tmp_path / "host"))


def checks(folder, stack=None):
    wanted = WANTED.model_copy(update={"stack": WANTED.stack.model_copy(update=stack or {})})
    return {one.name: one for one in verify_captured(wanted, folder, SPECS, ENGINE).checks}


def set_cards(folder, file, column, values):
    """Other values in one column of a CSV, by the index of the card."""
    rows = [line.split(", ") for line in (HOST / file).read_text().splitlines()]
    for row in rows:
        row[column] = values.get(int(row[0]), row[column])
    (folder / file).write_text("".join(", ".join(row) + "\n" for row in rows))


def slow(folder, gen, use, pstate="P0"):
    """Links by card, and how busy the cards are; those named run in ``pstate``."""
    rows = [line.split(", ") for line in (HOST / "nvidia-smi-query.csv").read_text().splitlines()]
    for row in rows:
        row[9], row[10] = pstate, str(gen.get(int(row[0]), 5))
    (folder / "nvidia-smi-query.csv").write_text("".join(", ".join(row) + "\n" for row in rows))
    set_cards(folder, "nvidia-smi-state.csv", 2, use)


@pytest.mark.parametrize(
    ("gen", "use", "stack", "status", "said"),
    [
        ({2: 3}, {2: "97"}, {}, "fail", "GPU 2: generation 5 x16, now 3 (P0); GPU 2 is 97 % busy"),
        ({0: 1, 7: 4}, {0: "100", 7: "99"}, {}, "fail", "GPU 0 is 100 % busy, GPU 7 is 99 % busy"),
        ({0: 1, 7: 4}, {0: "0", 7: "99"}, {}, "fail", "GPU 7 is 99 % busy"),
        ({4: 4}, {4: "60"}, {"busy_percent": 50.0}, "fail", "GPU 4 is 60 % busy"),
        ({4: 4}, {4: "60"}, {}, "warn", "GPU 4: generation 5 x16, now 4 (P0)"),
        ({4: 4}, {4: "[N/A]"}, {}, "warn", "now 4 (P0)"),
        ({4: 4}, {3: "100"}, {}, "warn", "now 4 (P0)"),
        ({4: 4}, {4: "100"}, {"pcie_gen": 4}, "pass", "now 4"),
    ],
)
def test_a_slow_link_of_a_busy_card_has_its_speed_at_work(host, gen, use, stack, status, said):
    slow(host, gen, use)
    found = checks(host, stack)["pcie_link"]
    assert found.status == status and said in found.found, found
    assert ("at work" in found.fix) == (status != "pass")


def test_a_card_that_says_it_rests_is_not_at_work(host):
    slow(host, dict.fromkeys(range(8), 1), dict.fromkeys(range(8), "0"), "P8")
    assert checks(host)["pcie_link"].status == "pass"


def test_without_the_cards_states_a_slow_link_is_read_again(host):
    slow(host, {5: 2}, {})
    (host / "nvidia-smi-state.csv").unlink()
    found = checks(host)["pcie_link"]
    assert (found.status, found.fix) == ("warn", "read it again while the GPUs are at work")


#: How a machine tells that it is a guest, by file.
LSCPU = (HOST / "lscpu.txt").read_text()
KVM_LSCPU = LSCPU.replace("NUMA node(s)", "Hypervisor vendor:                    KVM\nNUMA node(s)")
DMI = "/sys/class/dmi/id/sys_vendor:{}\n/sys/class/dmi/id/product_name:{}\n"
SETTINGS = (HOST / "settings.txt").read_text()
GUESTS = {
    "systemd": ({"systemd-detect-virt.txt": "vmware\n"}, "vmware"),
    "processor": ({"lscpu.txt": KVM_LSCPU}, "KVM"),
    "firmware": (
        {"settings.txt": DMI.format("QEMU", "Standard PC (Q35 + ICH9, 2009)") + SETTINGS},
        "QEMU Standard PC (Q35 + ICH9, 2009)",
    ),
    "cloud": (
        {"settings.txt": DMI.format("Google", "Google Compute Engine") + SETTINGS},
        "Google Compute Engine",
    ),
    "hyper-v": (
        {"settings.txt": DMI.format("Microsoft Corporation", "Virtual Machine") + SETTINGS},
        "Virtual Machine",
    ),
}


def write(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.mark.parametrize(("files", "said"), GUESTS.values(), ids=GUESTS)
def test_a_guest_is_recognised_with_and_without_parameters(host, files, said):
    write(host, files)
    for found in (
        checks(host)["virtual_machine"],
        {one.name: one for one in verify_captured_machine(host).checks}["virtual_machine"],
    ):
        assert found.status == "warn" and said in found.found and "hypervisor" in found.fix


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({}, "pass"),
        ({"systemd-detect-virt.txt": "none\n"}, "pass"),
        ({"systemd-detect-virt.txt": "none\n", "lscpu.txt": KVM_LSCPU}, "pass"),  # runs guests
        ({"settings.txt": DMI.format("Supermicro", "AS -8125GS-TNHR") + SETTINGS}, "pass"),
        ({"lscpu.txt": LSCPU[: LSCPU.index("NUMA node(s)")]}, "unknown"),
        ({"lscpu.txt": LSCPU[: LSCPU.index("NUMA")], "systemd-detect-virt.txt": ""}, "unknown"),
    ],
)
def test_a_machine_that_is_no_guest_or_does_not_tell(host, files, status):
    write(host, files)
    assert checks(host)["virtual_machine"].status == status


FLAT = """\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tPHB\t0-63\t0\t\tN/A
GPU1\tPHB\t X \t0-63\t0\t\tN/A
"""
REDIRECTS = (HOST / "lspci-acs.txt").read_text().replace("ReqRedir-", "ReqRedir+")
OF_A_GUEST = {
    "acs": ({"lspci-acs.txt": REDIRECTS}, "unknown", "setpci"),
    "iommu": ({"proc-cmdline.txt": "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro\n"}, "unknown", "GRUB"),
    "topology": ({"nvidia-smi-topo-m.txt": FLAT}, "fail", "reset or a reboot"),
    "p2p": (
        {"nvidia-smi-topo-p2p-r.txt": (HOST / "nvidia-smi-topo-p2p-r.txt").read_text()},
        None,
        "see ACS, IOMMU and the driver's options",
    ),
}
OF_A_GUEST["p2p"][0]["nvidia-smi-topo-p2p-r.txt"] = OF_A_GUEST["p2p"][0][
    "nvidia-smi-topo-p2p-r.txt"
].replace("\tOK", "\tCNS")


@pytest.mark.parametrize("name", OF_A_GUEST)
def test_advice_in_a_guest_is_for_its_hypervisor(host, name):
    files, status, of_bare_metal = OF_A_GUEST[name]
    settings = "".join(
        line for line in SETTINGS.splitlines(True) if not line.startswith("/sys/kernel/iommu")
    )
    write(host, {**files, "settings.txt": f"{settings}/sys/kernel/iommu_groups:0\n"})
    before = checks(host)[name]
    assert before.status in ("warn", "fail") and of_bare_metal in before.fix
    (host / "systemd-detect-virt.txt").write_text("kvm\n")
    found = checks(host)[name]
    assert found.status == (status or before.status), found
    assert of_bare_metal not in found.fix and "hypervisor" in found.fix and "kvm" in found.found


def test_a_guest_with_an_iommu_of_its_own_is_judged_by_it(host):
    (host / "systemd-detect-virt.txt").write_text("kvm\n")
    (host / "proc-cmdline.txt").write_text("BOOT_IMAGE=/vmlinuz ro intel_iommu=on\n")
    text = SETTINGS.replace("/sys/kernel/iommu_groups:0", "/sys/kernel/iommu_groups:14")
    (host / "settings.txt").write_text(text)
    found = checks(host)["iommu"]
    assert found.status == "fail" and "hypervisor" in found.fix


def test_the_all_reduce_of_a_guest_is_believed_as_on_any_machine(host):
    (host / "systemd-detect-virt.txt").write_text("kvm\n")
    assert checks(host)["collective"].status == "pass"
    told = json.loads((host / "serving.json").read_text())
    for one in told.values():
        wrong = {"elements": 65537, "sender": 3, "rank": 4, "at": 9, "found": 0, "wanted": 50}
        one["facts"]["collective"]["wrong"] = [wrong]
    (host / "serving.json").write_text(json.dumps(told))
    found = checks(host)["collective"]
    assert found.status == "fail"
    assert "rank 4 from rank 3, 524296 bytes, first wrong element 9: 0, not 50" in found.found
