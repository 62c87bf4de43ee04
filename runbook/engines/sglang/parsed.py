"""What SGLang's own parser made of the configurations, and whether the server runs so. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runbook.checks import Check
from runbook.engines.base import ServerInfo
from runbook.engines.sglang.info import UNKNOWN, read_info
from runbook.engines.sglang.log import find_worker
from runbook.engines.sglang.observed import (
    Asked,
    check_sizes,
    check_speculation,
    check_worker,
)
from runbook.engines.sglang.releases import NO_OVERLAP

PARSED_CHECK = "sglang_arguments"

#: What only a running server knows, or only the parser.
_NOT_COMPARED = (
    "version",
    "launch_command",
    "env_vars",
    "worker",
    "ranks_differ",
    "cuda_graph_max_bs",
)
_WANTED = "a command line that SGLang itself takes"


def check_parsed(
    asked: Sequence[Asked],
    parsed: Mapping[str, Mapping[str, Any]] | None,
    version: str | None = None,
) -> list[Check]:
    """One check a configuration that is refused, changed or cannot be told; else one for all."""
    if parsed is None:
        fix = "runbook facts PARAMS, on the host"
        return [Check(PARSED_CHECK, "unknown", "SGLang's own parser was not asked", _WANTED, fix)]
    found = [check for one in asked for check in _judge(one, parsed.get(one.name) or {}, version)]
    names = ", ".join(one.name for one in asked)
    return found or [Check(PARSED_CHECK, "pass", f"SGLang's own parser takes {names} as asked")]


def _judge(asked: Asked, answer: Mapping[str, Any], version: str | None) -> Iterator[Check]:
    if "refused" in answer:
        fix = "correct server.args or the configuration's args; options differ between releases"
        found = f"{asked.name}: {answer['refused']}"
        yield Check(PARSED_CHECK, "fail", found, _WANTED, fix)
        return
    info = read_info({**answer.get("resolved", {}), "version": version})
    if info is None:
        why = answer.get("unknown") or "no answer"
        fix = "run it with the interpreter, and on the machine, that will serve"
        yield Check(PARSED_CHECK, "unknown", f"{asked.name}: {why}", _WANTED, fix)
        return
    checks = [check_speculation(info, asked)]
    if asked.options.speculates:
        checks += check_sizes(info, asked)
    if asked.options.has_worker:
        worker = info.settings["worker"]
        if worker in (UNKNOWN, NO_OVERLAP):
            worker = find_worker("\n".join(answer["said"])) or worker
        checks.append(check_worker(worker, asked))
    for check in checks:
        if check.status != "pass":
            found = f"{asked.name}: {check.name}: {check.found}"
            yield Check(PARSED_CHECK, check.status, found, check.wanted, check.fix)


def check_as_parsed(info: ServerInfo, expected: ServerInfo) -> Check:
    """Whether a running server has the settings that its parser resolved before the start."""
    running, parsed = ({**one.settings, "algorithm": one.speculation} for one in (info, expected))
    names = [
        name
        for name, value in parsed.items()
        if name not in _NOT_COMPARED and value is not None and running.get(name) is not None
    ]
    different = [
        f"{name} {running[name]}, parsed {parsed[name]}"
        for name in names
        if running[name] != parsed[name]
    ]
    if different:
        fix = "see the start of its log: the server changed it when it came up"
        return Check("as parsed", "warn", "; ".join(different), "what the parser resolved", fix)
    return Check("as parsed", "pass", f"{len(names)} settings as the parser resolved them")
