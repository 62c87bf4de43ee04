"""Broken off while the service is installed or proved: nothing is left, and a resume finishes."""

import json
import secrets
import shutil
import signal

import pytest
from boxes import need_box, orphans, wait_until
from command import (
    SHORT,
    end,
    overrides,
    runbook,
    short_parameters,
    start_runbook,
    wait_for_line,
    wait_nothing_left,
)
from unpacking import contents

from runbook.run import Run

#: What no file of a run folder may hold: the value of a secret.
KEY = secrets.token_hex(16)


def holds_key(data):
    return KEY.encode() in data


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """A run that has measured and chosen, and has not touched the service yet."""
    folder = tmp_path_factory.mktemp("chosen")
    need_box(folder)
    key = folder / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    path, port = short_parameters(folder, api_key={"file": str(key)})
    words = ["run", path, "--out", folder / "run", "--to", "choose", *overrides(*SHORT)]
    ended = runbook(*words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return path, port, folder / "run"


@pytest.fixture
def copied(chosen, tmp_path):
    path, port, folder = chosen
    shutil.copytree(folder, tmp_path / "run", ignore=shutil.ignore_patterns("box"))
    return path, port, tmp_path / "run"


def go_on(path, out, *more):
    return ["run", path, "--resume", "--out", out, *overrides(*SHORT), *more]


def test_without_apply_the_service_is_planned_and_left_out(copied):
    path, port, out = copied
    ended = runbook(*go_on(path, out))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = Run.open(out)
    assert run.step("install_service").status == "skipped"
    assert run.step("boot").status == "skipped"
    assert "daemon-reload" in (out / "service" / "diff.txt").read_text()
    assert "not installed" in (out / "production_v2.md").read_text()
    wait_nothing_left(port)


@pytest.mark.parametrize(
    ("number", "code", "status", "at", "last"),
    [
        (signal.SIGTERM, 143, "failed", "install_service:", "install_service"),
        (signal.SIGINT, 130, "failed", "listener: proved", "install_service"),
        (signal.SIGKILL, -9, "interrupted", "installed (generation", "publish"),
    ],
    ids=["sigterm-at-the-start", "ctrl-c-in-the-proofs", "sigkill-after-the-install"],
)
def test_a_runner_that_is_ended_in_the_service_stage(copied, number, code, status, at, last):
    path, port, out = copied
    before = set(orphans())
    runner = start_runbook(*go_on(path, out, "--apply"))
    try:
        wait_for_line(runner, at)
        runner.send_signal(number)
        assert runner.wait(120) == code
    finally:
        end(runner)
    wait_nothing_left(port)
    wait_until(lambda: not set(orphans()) - before, 10)  # those of other tests end soon
    assert Run.open(out).step("install_service").status == status

    ended = runbook(*go_on(path, out, "--apply", "--to", last))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert Run.open(out).step("install_service").status == "completed"
    assert Run.open(out).finished == (last == "publish")
    proofs = json.loads((out / "service" / "proofs.json").read_text())
    others = [proof["name"] for proof in proofs if proof["status"] != "proved"]
    assert others == ["speed"], proofs
    kept = [one for one in out.rglob("*") if one.is_file() and not one.is_symlink()]
    assert len(kept) > 30
    assert {"answers.jsonl.gz", "04_install_service.ipynb"} <= {one.name for one in kept}
    assert [one for one in kept if any(map(holds_key, contents(one.read_bytes())))] == []
    assert KEY not in ended.stdout + ended.stderr


def test_a_service_that_cannot_start_is_taken_back(copied):
    path, port, out = copied
    launches = json.loads((out / "launches.json").read_text())
    launches["ngram-lean"]["spec"]["argv"][1] = "/absent/serve.py"
    (out / "launches.json").write_text(json.dumps(launches))
    ended = runbook(*go_on(path, out, "--apply"))
    assert ended.returncode == 1
    run = Run.open(out)
    assert run.step("install_service").status == "failed"
    assert "FAILED at install_service" in (out / "production_v2.md").read_text()
    status = runbook("service", "status", path, "--run", out)
    assert status.returncode == 1
    assert "not installed" in status.stdout
    wait_nothing_left(port)
