"""Output that ends anywhere: what was in the lost part is never a pass."""

import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import params
from runbook.engines import engine_for
from runbook.errors import BadInput
from runbook.verify_stack import verify_captured, verify_captured_machine
from runbook.verify_stack.gpu_checks import GPU_CHECKS

CLONE = Path(__file__).parents[2]
HOST = CLONE / "tests" / "cases" / "hosts" / "eight-cards"
WANTED = params.load(CLONE / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml")
ENGINE = engine_for(WANTED.server)
SPECS = {one.name: ENGINE.launch_spec(WANTED, one) for one in WANTED.configurations}
FILES = sorted(path.name for path in HOST.iterdir() if path.name != "expected.json")
END = None  # the very end of the file

#: Of each file what a check must have seen to pass: up to the last place of a text.
NEEDS = {
    "nvidia-smi-query.csv": {**dict.fromkeys(GPU_CHECKS, ", 600.00,"), "ecc": "Enabled"},
    "nvidia-smi-state.csv": {
        **dict.fromkeys(("idle", "ecc_errors"), "Not Active,"),
        "clocks": "Not Active",
    },
    "nvidia-smi-compute-apps.csv": {"idle": END},
    "nvidia-smi-compute-apps-cgroups.txt": {},
    "nvidia-smi-q-memory.txt": {"bar1": "131072 MiB"},
    "nvidia-smi-topo-m.txt": {"topology": "PIX\t X", "numa": "192-255\t1"},
    "nvidia-smi-topo-p2p-r.txt": {"p2p": "OK\tX"},
    "nvidia-smi-topo-p2p-w.txt": {"p2p_write": "OK\tX"},
    "nvcc-version.txt": {"nvcc": "release 13.0"},
    "proc-cmdline.txt": {"iommu": "iommu=pt"},
    "lspci-acs.txt": {"acs": "CmpltRedir-"},
    "settings.txt": {
        "kernel_driver": "20:15:09 UTC 2026\n",
        "driver_options": END,
        "nccl_conf": END,
        "cpu_settings": "swappiness:10\n",
        "huge_pages": "HugePages_Total:       0\n",
    },
    "lscpu.txt": {"numa": END, "virtual_machine": END},
    "kernel-log.txt": {"kernel_log": END},
    "systemctl-version.txt": {},
    "systemctl-is-system-running.txt": {"systemd": "running"},
    "python-packages.json": {},
    "serving.json": {},
}


@cache
def whole():
    return statuses(HOST)


def statuses(folder):
    """Status of each check; of one that answers several times, the worst."""
    order = ("pass", "skipped", "warn", "unknown", "fail")
    found = {}
    for check in verify_captured(WANTED, folder, SPECS, ENGINE).checks:
        before = found.get(check.name, "pass")
        found[check.name] = max(before, check.status, key=order.index)
        assert check.status in ("pass", "skipped") or (check.found and check.wanted and check.fix)
    return found


def test_every_file_of_the_host_is_cut():
    assert set(NEEDS) == set(FILES)
    assert {check for needs in NEEDS.values() for check in needs} <= whole().keys()
    assert {name for name, status in whole().items() if status not in ("pass", "skipped")} == {
        "topology",  # pairs across NUMA nodes
        "port",  # cannot be captured
    }


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return Path(shutil.copytree(HOST, tmp_path_factory.mktemp("cut") / "host"))


@pytest.mark.parametrize("file", FILES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_file_that_ends_anywhere(file, data, here):
    content = (HOST / file).read_bytes()
    wanted = {
        name: len(content) if text is END else content.rindex(text.encode()) + len(text)
        for name, text in NEEDS[file].items()
    }
    near = [end - 1 for end in wanted.values()] + [len(content) - 1, 0]
    cut = data.draw(st.integers(0, len(content)) | st.sampled_from(near))
    judge_cut(here, file, content[:cut], {n for n, end in wanted.items() if cut < end})


def judge_cut(here, file, content, lost):
    (here / file).write_bytes(content)
    try:
        found = statuses(here)
        verify_captured_machine(here)
    except BadInput as error:
        assert file.endswith(".json") and error.wanted and error.do
        return
    finally:
        (here / file).write_bytes((HOST / file).read_bytes())
    assert {name for name in lost if found[name] == "pass"} == set()
    assert {
        n for n in found if found[n] == "pass" and whole()[n] not in ("pass", "skipped")
    } == set()
