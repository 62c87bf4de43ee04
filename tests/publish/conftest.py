"""One finished run for all tests of the room, and copies of it that a test may change."""

import shutil
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager
from synthetic_run import build_run, execute_notebook

from runbook.run import STAGES, Run


@pytest.fixture(scope="session")
def kernel(tmp_path_factory):
    """A running kernel that executes the notebooks of all tests here."""
    socket = tmp_path_factory.mktemp("k") / "s"
    manager = KernelManager(transport="ipc", ip=str(socket), kernel_name="python3")
    manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.fixture(scope="session")
def finished(tmp_path_factory, kernel) -> Path:
    """A complete run with its five notebooks executed. Copy it before changing it."""
    run = build_run(tmp_path_factory.mktemp("publish") / "rehearsal-20261130T000000Z")
    for stage in STAGES:
        execute_notebook(run, stage, kernel)
    return run.path


@pytest.fixture
def run(finished, tmp_path) -> Run:
    """A copy of the finished run that a test may change."""
    shutil.copytree(finished, tmp_path / finished.name)
    return Run.open(tmp_path / finished.name)
