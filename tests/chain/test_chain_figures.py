"""Figures in hand become a proved service: a table, one command, on a host of eight cards."""

import json
import re

import gpu_host
import pytest
from boxes import need_box

from runbook.hosts.box import Box

PAGE = (gpu_host.ROOT / "docs" / "production.md").read_text()
#: The table and the command of the page.
(TABLE,) = re.findall(r"```text\n(config,.*?)```", PAGE, re.DOTALL)
(DOCUMENTED,) = re.findall(r"^\.venv/bin/runbook run .* --figures .*", PAGE, re.M)
RUN = DOCUMENTED.partition(" --accept ")[0]
ACCEPT = "--accept 'measured by hand for three weeks' --by 'J. Doe'"
PLAN = "# EAGLE-3: fast verify\n\nNotes of the operator.\n"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    need_box(folder)
    (folder / "tree").mkdir()
    with Box(folder / "box", [gpu_host.ROOT, folder / "tree"]) as box:
        gpu_host.furnish(box, folder / "tree")
        values = gpu_host.parameters(concurrencies=[1, 30, 100])
        values["choose"]["mix"] = [
            {"concurrency": 1, "share": 0.15},
            {"concurrency": 30, "share": 0.6},
            {"concurrency": 100, "share": 0.25},
        ]
        values["record"]["formats"] = ["markdown"]
        gpu_host.write_parameters(box, values)
        box.write(f"{gpu_host.CLONE}/figures.csv", TABLE)
        box.write("/root/eagle-fast-verify.md", PLAN)
        yield box


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "nobody has accepted a choice from these figures"),
        ("--accept 'because'", "--accept without --by"),
        ("--by me", "--by without --accept"),
        (f"{ACCEPT} --resume", "--figures with --from or --resume"),
    ],
)
def test_what_is_missing_is_said_before_anything_begins(host, more, said):
    done = gpu_host.run(host, f"{RUN} {more}")
    assert (done.code, said in done.err) == (2, True), done.out + done.err
    assert gpu_host.run(host, "ls -d outputs/*/").out.split() == []


def test_names_that_the_parameters_do_not_have_are_refused(host):
    host.write(f"{gpu_host.CLONE}/other.csv", TABLE.replace("eagle3-topk1-spec-v2", "mine"))
    done = gpu_host.run(host, f"{RUN.replace('figures.csv', 'other.csv')} {ACCEPT}")
    assert (done.code, "the figures are of mine" in done.err) == (2, True), done.err


@pytest.mark.timeout(400)
def test_a_table_becomes_a_proved_service_a_record_and_a_plan_document(host):
    done = gpu_host.run(host, DOCUMENTED)
    told = done.out[-6000:] + done.err[-3000:]
    assert done.code == 0, told
    (run,) = gpu_host.run(host, "ls -d outputs/*/").out.split()
    folder = f"{gpu_host.CLONE}/{run}"
    steps = json.loads(host.read(f"{folder}/run.json"))["steps"]
    assert {step["status"] for step in steps} <= {"completed", "skipped"}, steps
    proofs = json.loads(host.read(f"{folder}/service/proofs.json"))
    proved = {one["name"]: one for one in proofs}
    assert not [one for one in proofs if one["status"] == "refuted"]
    assert "the figures were measured elsewhere" in proved["speed"]["evidence"]
    assert "all as recorded" in proved["arguments"]["evidence"]
    assert proved["model files"]["status"] == "proved"
    guard = json.loads(host.read(f"{folder}/service/manifest.json"))["guard"]
    assert guard["facts"]["files"], "the guard watches what verify_stack found"
    record = host.read("/root/production_v2.md").decode()
    first_page = record.partition("\n## ")[2].partition("\n## ")[0]
    assert "Accepted by J. Doe (measured by hand for three weeks)" in first_page
    assert "confirming cell of eagle3-topk1-spec-v2: pass" in record
    assert "`eagle3-topk4-v1`: not measured." in record
    assert "figures.csv" in record
    for figure in ("92.7", "759.3", "775"):
        assert figure in record
    plan = host.read("/root/eagle-fast-verify.md").decode()
    assert plan.startswith(PLAN) and "eagle3-topk1-spec-v2" in plan.removeprefix(PLAN)
    shown = gpu_host.run(host, f"{gpu_host.RUNBOOK} service status params/mine.yaml")
    assert "active" in shown.out, shown.out + shown.err


def test_a_second_run_of_the_stages_changes_nothing(host):
    (run,) = gpu_host.run(host, "ls -d outputs/*/").out.split()
    again = f"{gpu_host.RUNBOOK} run {run}params.yaml --out {run}"
    done = gpu_host.run(host, f"{again} --from choose --to install_service --apply")
    assert done.code == 0, done.out[-4000:] + done.err
    assert "installed already, nothing changed" in done.out


def test_figures_that_the_server_does_not_give_stop_the_run(host):
    table = TABLE.replace("86.8", "186.8").replace("92.7", "192.7")
    host.write(f"{gpu_host.CLONE}/faster.csv", table)
    line = f"{RUN.replace('figures.csv', 'faster.csv')} {ACCEPT} --out outputs/faster --apply"
    other_port = f"-p server.port={gpu_host.free_port()}"
    done = gpu_host.run(host, f"{line} {other_port}")
    assert done.code == 1, done.out[-3000:] + done.err
    assert "confirming cell of eagle3-topk1-spec-v2" in done.out
    assert "wanted: 186.8 tok/s at C=1, as given, within 20%" in done.out
    late = f"{gpu_host.RUNBOOK} run outputs/faster/params.yaml --out outputs/faster --from choose"
    done = gpu_host.run(host, late)
    assert (done.code, "was not confirmed" in done.out + done.err) == (1, True), done.out + done.err
