"""The verb ``facts``: what a host is, here or from captured files, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from runbook import hosts, scratch, verify_stack
from runbook.engines import engine_for
from runbook.errors import BadInput, NotHere
from runbook.hosts.base import Host
from runbook.hosts.local import LocalHost, WithoutSystemd
from runbook.params import Params
from runbook.verify_stack import StackReport


def find_facts(
    parameters: Params | None, captured: Path | None, capture: Path | None
) -> StackReport:
    """The report on the host of ``parameters``, or on this machine alone without them.

    ``captured``: read this folder, ask nobody. ``capture``: keep in this folder what was told.
    """
    if captured is not None and capture is not None:
        raise BadInput("both --from and --capture", "one of them", "leave one out")
    if parameters is None and captured is not None:
        return verify_stack.verify_captured_machine(captured)
    if parameters is None:
        return verify_stack.verify_machine(LocalHost(), capture)
    engine = engine_for(parameters.server)
    specs = {one.name: engine.launch_spec(parameters, one) for one in parameters.configurations}
    if captured is not None:
        return verify_stack.verify_captured(parameters, captured, specs, engine)
    with _opened(parameters) as host:
        return verify_stack.verify(parameters, host, specs, engine, capture)


@contextmanager
def _opened(parameters: Params) -> Iterator[Host]:
    """The host of ``parameters``; where no box can be made, this machine, which says why."""
    with ExitStack() as stack:
        state = stack.enter_context(scratch.folder("runbook-run-"))
        try:
            host = stack.enter_context(hosts.open_for(parameters, state))
        except NotHere as error:
            host = WithoutSystemd(error.found)
        yield host


def as_text(report: StackReport) -> str:
    """The checks that did not pass, a line each; those of one answer together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for check in report.checks:
        if check.status != "pass":
            fix = f" ({check.fix})" if check.fix else ""
            groups.setdefault((check.status, check.found + fix), []).append(check.name)
    return "\n".join(
        f"{status:<8} {', '.join(names)}: {said}" for (status, said), names in groups.items()
    )
