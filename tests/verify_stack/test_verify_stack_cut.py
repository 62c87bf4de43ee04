"""Output that ends anywhere: what was in the lost part is never a pass."""

import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import params
from runbook.engines import engine_for
from runbook.verify_stack import verify_captured, verify_captured_machine
from runbook.verify_stack.captured import read_folder
from runbook.verify_stack.checks import CARD_CHECKS
from runbook.verify_stack.commands import host_facts
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


#: The facts that stand in a file; those of a launch are all told by its interpreter.
FACTS = {fact.file: {fact.name} for fact in host_facts()}
FACTS["systemctl-is-system-running.txt"] |= {"systemd"}


@cache
def whole_facts():
    return read_folder(HOST, list(SPECS), ("sglang",))


def judge_others(here, file):
    """What the other files tell is as it was; what this one tells no more has a reason."""
    found = read_folder(here, list(SPECS), ("sglang",))
    own = FACTS.get(file, set())
    for name, reading in found.host.items():
        if name not in own:
            assert reading == whole_facts().host[name]
        assert reading.value is not None or reading.reason
    for name, serving in found.serving.items():
        if not file.endswith(".json"):
            assert serving == whole_facts().serving[name]
        for fact in whole_facts().serving[name].facts:
            assert fact in serving.facts or serving.why_unknown(fact)


#: What a full disk, a copy between encodings or an editor leaves in a file.
GARBAGE = st.binary(min_size=1, max_size=40) | st.sampled_from(
    [b"\xff\xfe", b"\0" * 512, b"{", b"]", b'"', b"\n\n", b"[N/A]", b"<<<<<<< HEAD\n", b"1e999"]
)


@pytest.mark.parametrize("file", FILES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_file_with_garbage_anywhere(file, data, here):
    content = (HOST / file).read_bytes()
    at = data.draw(st.integers(0, len(content)))
    garbage = data.draw(GARBAGE)
    lost = data.draw(st.sampled_from([0, len(garbage), len(content)]))
    (here / file).write_bytes(content[:at] + garbage + content[at + lost :])
    try:
        statuses(here)
        verify_captured_machine(here)
        judge_others(here, file)
    finally:
        (here / file).write_bytes(content)


@pytest.mark.parametrize("host", ["slow-links", "acs-on", "mig-on-one-card", "untuned", "wedged"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_what_was_no_pass_is_none_with_bytes_that_are_no_text(host, data, tmp_path_factory):
    here = tmp_path_factory.mktemp("garbled") / "host"
    shutil.copytree(HOST.parent / host, here)
    before = statuses(here)
    file = here / data.draw(st.sampled_from(sorted(set(FACTS) & {p.name for p in here.iterdir()})))
    content = file.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    lost = data.draw(st.sampled_from([0, 1, len(content)]))
    file.write_bytes(
        content[:at] + data.draw(st.sampled_from([b"\xff", b"\0"])) + content[at + lost :]
    )
    after = statuses(here)
    good = ("pass", "skipped")
    assert {n for n in after if after[n] == "pass" and before.get(n) not in good} == set()


BROKEN = {
    "cut in the middle": lambda text: text[: len(text) // 2],
    "empty": lambda text: b"",
    "another form": lambda text: b'["sglang", "0.5.10"]',
    "a number": lambda text: b"7",
    "no UTF-8": lambda text: text.replace(b"sglang", b"sgl\xffang", 1),
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "nested": lambda text: b"[" * 100_000,
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("file", ["python-packages.json", "serving.json"])
def test_a_broken_list_costs_its_own_facts_alone(file, broken, here):
    content = (HOST / file).read_bytes()
    (here / file).write_bytes(broken(content))
    try:
        found = {one.name: one for one in verify_captured(WANTED, here, SPECS, ENGINE).checks}
        (here / "serving.json").rename(here / "serving.away")
        alone = {one.name: one for one in verify_captured(WANTED, here, SPECS, ENGINE).checks}
    finally:
        (here / "serving.away").rename(here / "serving.json")
        (here / file).write_bytes(content)
    assert {name for name in CARD_CHECKS if found[name].status != whole()[name]} == set()
    if file == "serving.json":
        assert found["engine_version"].status == "pass", "from python-packages.json"
        assert found["python"].status == "unknown" and file in found["python"].found
    else:
        assert found["engine_version"].status == "pass", "from serving.json"
        assert alone["engine_version"].status == "unknown"
        assert file in alone["engine_version"].found


def test_a_file_that_may_not_be_read_is_named(here):
    (here / "lscpu.txt").rename(here / "lscpu.away")
    (here / "lscpu.txt").mkdir()
    try:
        found = {one.name: one for one in verify_captured(WANTED, here, SPECS, ENGINE).checks}
    finally:
        (here / "lscpu.txt").rmdir()
        (here / "lscpu.away").rename(here / "lscpu.txt")
    assert found["numa"].status == "unknown"
    assert "lscpu.txt: Is a directory" in found["numa"].found


def judge_cut(here, file, content, lost):
    (here / file).write_bytes(content)
    try:
        found = statuses(here)
        verify_captured_machine(here)
        judge_others(here, file)
    finally:
        (here / file).write_bytes((HOST / file).read_bytes())
    assert {name for name in lost if found[name] == "pass"} == set()
    assert {
        n for n in found if found[n] == "pass" and whole()[n] not in ("pass", "skipped")
    } == set()
