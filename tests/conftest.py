"""Shared by all tests: this folder on the path, and which of them may run side by side."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from quick import Quick  # noqa: E402

#: What needs the real SGLang runs by ``make test-sglang``, in the environment that has it.
collect_ignore = [] if os.environ.get("RUNBOOK_TEST_SGLANG") else ["real_sglang"]

#: Rooms of whole runs, kernels and servers at the rehearsal's own port: never two at once.
ONE_BY_ONE = ("tests/chain/", "tests/browser/", "tests/test_documents.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out tests that start processes")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        config.pluginmanager.register(Quick(), "quick")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What cannot be split is begun first."""
    items.sort(key=lambda item: not item.nodeid.startswith(ONE_BY_ONE))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Side by side (``-n 2``): a file's tests stay together, they share boxes and servers."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "one by one" if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)
