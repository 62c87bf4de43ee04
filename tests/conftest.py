"""Shared by all tests: this folder on the path, and which of them may run side by side."""

import os
import signal
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from quick import Quick  # noqa: E402

# A script starts its background jobs with SIGINT ignored, and children inherit that. Tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: What needs the real SGLang runs by ``make test-sglang``, in the environment that has it.
collect_ignore = [] if os.environ.get("RUNBOOK_TEST_SGLANG") else ["real_sglang"]

#: What uses the rehearsal's own port, or a browser: never two at once.
ONE_BY_ONE = ("notebooks/", "tests/browser/", "tests/test_documents.py")
#: What takes longest, begun first so that no worker ends long after the other.
LONG = ("tests/chain/", *ONE_BY_ONE, "tests/service/", "tests/benchmark/", "tests/hosts/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--documented",
        action="store_true",
        help="test_chain_rehearsal.py: `make rehearse`, seven minutes, in place of a short run",
    )
    parser.addoption("--quick", action="store_true", help="leave out tests that start processes")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        config.pluginmanager.register(Quick(), "quick")


@pytest.fixture(autouse=True)
def nothing_remembered():
    """A secret that one test sends is not taken out of what another one reads."""
    from runbook import redaction

    before = set(redaction._sent)
    yield
    redaction._sent &= before


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest is begun first."""

    def rank(item: pytest.Item) -> int:
        found = [at for at, start in enumerate(LONG) if item.nodeid.startswith(start)]
        return found[0] if found else len(LONG)

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Side by side (``-n 2``): a file's tests stay together, they share boxes and servers."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "one by one" if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)
