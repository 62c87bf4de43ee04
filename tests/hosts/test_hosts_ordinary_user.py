"""The box of an ordinary user: a real systemd without root, or exactly what is missing."""

import json
import os
import sysconfig
import tempfile
from pathlib import Path

import pytest
from boxes import NOBODY, cgroup2_folder, need_box, python_of_nobody, run_as_nobody

from runbook.errors import NotHere
from runbook.hosts import box_needs, open_for
from runbook.params import load

CLONE = Path(__file__).parents[2]

ASK = """
import json, sys
from pathlib import Path
from runbook.hosts import why_no_box
print(json.dumps(why_no_box(Path(sys.argv[1]))))
"""

SERVE = """
import dataclasses, json, os, sys
from pathlib import Path
from runbook.hosts import Box
from runbook.install_service import install, prove, uninstall
from standin_service import Deployment, StandIn
with Box(Path(sys.argv[1]) / "box", [Path(sys.argv[2])]) as box:
    deployment = Deployment(box)
    plan = deployment.plan("--workers", "1")
    install(box, plan)
    params = deployment.params
    service = params.service.model_copy(update={"burst": 20})
    params = params.model_copy(update={"service": service})
    proofs = prove(box, params, plan.target, engine=StandIn())
    uninstall(box, plan.target.unit)
    print(json.dumps([os.geteuid(), {p.name: [p.status, p.evidence] for p in proofs}]))
    print(json.dumps(deployment.left()))
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder and a cgroup that belong to an ordinary user."""
    need_box(tmp_path_factory.mktemp("need"))
    cgroup = cgroup2_folder() / f"runbook-user-{os.getpid()}"
    cgroup.mkdir()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for path in (cgroup, *cgroup.iterdir(), folder):
            os.chown(path, NOBODY, NOBODY)
        yield Path(folder), cgroup
    cgroup.rmdir()


def test_an_ordinary_user_has_a_real_systemd_in_which_a_service_is_proved(own):
    folder, cgroup = own
    python = python_of_nobody()
    asked = run_as_nobody([python, "-c", ASK, str(folder)], cgroup)
    if reason := json.loads(asked.stdout):
        assert "no private namespaces" in reason, "this kernel does not let it"
        assert "sysctl -w" in reason or "--privileged" in reason
        return
    done = run_as_nobody([python, "-c", SERVE, str(folder), str(CLONE)], cgroup)
    assert done.returncode == 0, done.stderr
    (uid, proofs), left = map(json.loads, done.stdout.splitlines()[-2:])
    assert uid == NOBODY
    assert {n: said for n, said in proofs.items() if said[0] == "refuted"} == {}
    for name in ("arguments", "environment", "stop under load", "back after SIGKILL"):
        assert proofs[name][0] == "proved", proofs[name]
    assert proofs["back after reboot"][0] == proofs["back after sudden death"][0] == "proved"
    assert left == []
    assert [path.name for path in cgroup.iterdir() if path.is_dir()] == []


def test_without_a_cgroup_or_a_folder_of_ones_own_each_is_named(own):
    asked = run_as_nobody([python_of_nobody(), "-c", ASK, "/var/lib/not/mine"])
    assert asked.returncode == 0, asked.stderr
    reason = json.loads(asked.stdout)
    assert "no cgroup in " in reason
    assert "systemd-run --user --scope --property=Delegate=yes" in reason
    assert "no files can be made in /var/lib (Permission denied): use another folder" in reason


def test_where_the_kernel_denies_namespaces_that_is_what_is_said(box):
    """Denied for real, as by a service manager or a container: ``unshare`` fails."""
    python = python_of_nobody()
    limits = ["--property=User=nobody", "--property=RestrictNamespaces=yes"]
    run = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", *limits]
    path = f"PYTHONPATH={CLONE}:{sysconfig.get_path('purelib')}"
    done = box.run(*run, "env", path, python, "-c", ASK, "/var/tmp", check=False)
    assert done.code == 0, done.err
    reason = json.loads(done.out)
    assert "no private namespaces (unshare: unshare failed: Operation not permitted): " in reason
    assert "or run as root" in reason
    assert "no cgroup in /sys/fs/cgroup/system.slice/run-" in reason
    assert "Delegate=yes" in reason


@pytest.mark.parametrize(
    ("name", "off", "on"),
    [
        ("user.max_user_namespaces", "0", "15000"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ],
)
def test_a_setting_of_the_kernel_that_is_in_the_way_is_named_with_its_command(
    tmp_path, monkeypatch, name, off, on
):
    setting = tmp_path / name.replace(".", "/")
    setting.parent.mkdir(parents=True)
    setting.write_text(f"{off}\n")
    assert list(box_needs._switched_off(tmp_path)) == [
        f"{name} is {off}: sudo sysctl -w {name}={on}"
    ]
    setting.write_text(f"{on}\n")
    assert list(box_needs._switched_off(tmp_path)) == []


def test_another_user_in_the_box_of_an_ordinary_one_is_refused_with_the_reason(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    params = load(CLONE / "params/rehearsal.yaml", ["server.user=daemon"])
    with pytest.raises(NotHere, match="user is daemon") as error, open_for(params, tmp_path):
        pass
    assert "one user id" in error.value.found
