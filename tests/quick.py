"""``--quick``: what a test does before it starts a process, and nothing after.

No list says which tests are quick. The first process that a test or one of its fixtures starts is
refused, and the test is left to ``make test``. So a quick run boots no box and starts no server,
kernel or browser, whatever is added to the tests. Properties are tried on fewer examples.
"""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

#: Programs that answer at once and leave nothing running.
ANSWERS = frozenset({"git", "realpath", "test"})
#: Where whole runs are made, rendered and looked at.
WHOLE_RUNS = (
    "tests/chain/",
    "tests/browser/",
    "tests/publish/test_publish_assembly.py",
    "tests/publish/test_publish_records.py",
    "tests/publish/test_publish_sections.py",
)
#: Python's own events of a process that is started: where in their arguments the program stands.
STARTS = {
    "subprocess.Popen": 0,
    "os.posix_spawn": 0,
    "os.exec": 0,
    "os.fork": None,
    "os.forkpty": None,
    "os.system": None,
}
LEFT = "starts a process"


class Quick:
    """The plugin behind ``--quick``."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self.refused: set[str] = set()
        sys.addaudithook(self.refuse)
        settings.register_profile("quick", max_examples=25)
        settings.load_profile("quick")

    def refuse(self, event: str, arguments: tuple[object, ...]) -> None:
        """Leave the current test at its first process."""
        if event not in STARTS or self.item is None:
            return
        at = STARTS[event]
        if at is not None and Path(os.fsdecode(arguments[at])).name in ANSWERS:
            return
        self.refused.add(self.item.nodeid)
        raise pytest.skip.Exception(LEFT)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        left = [item for item in items if item.nodeid.startswith(WHOLE_RUNS)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.nodeid.startswith(WHOLE_RUNS)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        self.item = item
        try:
            return (yield)
        finally:
            self.item = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> pytest.TestReport:
        """Also where the test caught the refusal, and then passed or failed."""
        report: pytest.TestReport = yield
        swallowed = report.failed or report.when == "call"
        if item.nodeid in self.refused and swallowed and not report.skipped:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, LEFT)
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        left = {
            report.nodeid
            for report in terminalreporter.getreports("skipped")
            if LEFT in str(report.longrepr)
        }
        terminalreporter.write_line(f"{len(left)} tests start processes: make test runs them too")
