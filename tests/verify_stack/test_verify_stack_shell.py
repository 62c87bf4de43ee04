"""What only the operator's shell has: seen with a real interpreter and real files."""

from dataclasses import replace

import pytest
from test_verify_stack_checks import CLONE, SPECS, check, facts

from runbook.hosts import LocalHost
from runbook.launch.spec import LaunchSpec
from runbook.verify_stack.facts import Reading
from runbook.verify_stack.shell import read_shell

PYTHON = str(CLONE / ".venv/bin/python")
SERVED = LaunchSpec((PYTHON, "server.py"), {"PATH": "/usr/bin:/bin"}, "/", "", 16384, None)


@pytest.fixture
def shell(monkeypatch):
    """This shell, with nothing that tells but what the test sets."""
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def seen(spec=SERVED, **told):
    """The check on what a real look at this shell gives."""
    specs = dict.fromkeys(SPECS, spec)
    found = facts({"shell": read_shell(LocalHost(), specs)}, **told)
    return check("shell", found, specs=specs)


def test_patches_that_only_the_shell_has_fail_with_both_files(shell, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("PATCHED = True\n")
    shell.setenv("PYTHONPATH", str(tmp_path))
    told = {"sitecustomize": {"loaded": None, "candidates": []}}
    found = seen(**told)
    assert found.status == "fail" and "PYTHONPATH in server.env" in found.fix
    assert f"with this shell's PYTHONPATH {tmp_path}/sitecustomize.py (" in found.found
    assert "baseline loads no sitecustomize" in found.found
    served = replace(SERVED, env={**SERVED.env, "PYTHONPATH": str(tmp_path)})
    assert seen(served, **told).status == "pass"
    decided = replace(SERVED, env={**SERVED.env, "PYTHONPATH": "/elsewhere"})
    assert seen(decided, **told).status == "warn"


def test_variables_that_only_the_shell_has_warn_and_secrets_are_not_told(shell):
    shell.setenv("NCCL_P2P_LEVEL", "SYS")
    shell.setenv("SGLANG_API_KEY", "abc")
    shell.setenv("EDITOR", "vi")
    found = seen()
    assert found.status == "warn" and found.found.endswith(": NCCL_P2P_LEVEL=SYS")
    assert "server.env" in found.fix
    same = replace(SERVED, env={**SERVED.env, "NCCL_P2P_LEVEL": "SYS"})
    assert seen(same).status == "pass"
    other = replace(SERVED, env={**SERVED.env, "NCCL_P2P_LEVEL": "PHB"})
    assert seen(other).status == "warn"


def test_the_shell_of_another_host_is_not_looked_at():
    away = Reading(reason="the server runs on another host than this shell", absent=True)
    found = check("shell", facts({"shell": away}))
    assert (found.status, found.found) == ("skipped", away.reason)
    assert check("shell", facts()).status == "skipped"
