"""The procedure of docs/production.md on a host of eight cards: stand-ins for SGLang and the cards,
all else real, ``host: local`` by a runner inside the box."""

import re

import gpu_host
import pytest
from boxes import need_box

from runbook.hosts.box import Box

#: What a test of its own is, or cannot be one.
NOT_HERE = re.compile(r"apt-get |make host$|cp params/|\$EDITOR |.* --figures ")


def documented():
    """The commands of the page in their order."""
    text = (gpu_host.ROOT / "docs" / "production.md").read_text()
    lines = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    return [line for line in lines if not NOT_HERE.match(line)]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    folder = tmp_path_factory.mktemp("host")
    need_box(folder)
    (folder / "tree").mkdir()
    with Box(folder / "box", [gpu_host.ROOT, folder / "tree"]) as box:
        gpu_host.furnish(box, folder / "tree")
        box.run("cp", f"{gpu_host.CLONE}/params/{gpu_host.PRODUCTION.name}", "/root/as-it-is.yaml")
        values = gpu_host.parameters(concurrencies=[10])
        values["choose"] |= {"mix": [{"concurrency": 10, "share": 1}], "limits": {}}
        values["record"]["formats"] = ["markdown"]
        gpu_host.write_parameters(box, values)
        yield box


def test_the_parameters_as_they_are_committed_are_valid_on_such_a_host(host):
    done = gpu_host.run(host, ".venv/bin/runbook check /root/as-it-is.yaml")
    assert done.code == 0, done.err


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_every_documented_command_up_to_the_plan(host):
    lines = documented()
    plan = next(line for line in lines if " service plan " in line)
    for line in lines[: lines.index(plan) + 1]:
        done = gpu_host.run(host, line)
        assert done.code == 0, f"{line}\n{done.out[-3000:]}{done.err[-3000:]}"
    assert "+    --speculative-eagle-topk 1 \\" in done.out
    assert "SGLANG_ENABLE_SPEC_V2=True" in done.out
    record = gpu_host.run(host, "cat outputs/standin-*/production_v2.md").out
    assert "**DRAFT: the service is not installed yet**" in record
    assert "; worker v2 overlap; " in record
    assert not host.exists("/etc/systemd/system/sglang-kimi.service")


@pytest.mark.timeout(300)
def test_the_documented_emergency_installs_without_a_measurement(host):
    (line,) = [line for line in documented() if "--unmeasured" in line]
    done = gpu_host.run(host, line)
    assert done.code == 0, done.out[-3000:] + done.err[-3000:]
    for verb, said in (("status", "active"), ("logs", "fired up and ready to roll")):
        shown = gpu_host.run(host, f".venv/bin/runbook service {verb} params/mine.yaml")
        assert (shown.code, said in shown.out) == (0, True), shown.out[-2000:] + shown.err
    gpu_host.run(host, "for run in outputs/standin-*Z*; do .venv/bin/runbook export $run; done")
    record = gpu_host.run(host, "cat outputs/standin-*/production_v2.md").out
    (by_hand,) = re.findall(r"\| the same by hand[^|]*\| `([^`]+)` \|", record)
    assert gpu_host.run(host, by_hand).code == 0
    shown = gpu_host.run(host, ".venv/bin/runbook service status params/mine.yaml")
    assert "not installed" in shown.out + shown.err
    assert not host.exists("/var/lib/golive-runbook/sglang-kimi.service")
