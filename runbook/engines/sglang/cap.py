"""What must be the same in all configurations for a fair comparison on SGLang. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runbook.checks import Check
from runbook.engines.sglang.case import Case
from runbook.engines.sglang.options import SPEC_V2
from runbook.engines.sglang.releases import SPECULATION_CAP
from runbook.params import Params

_CAP = "sglang_request_cap"
_OPTION = "--max-running-requests"

#: Options that change the speed of any configuration.
_SHARED = (
    "--attention-backend",
    "--prefill-attention-backend",
    "--decode-attention-backend",
    "--mem-fraction-static",
    "--tensor-parallel-size",
    "--data-parallel-size",
    "--page-size",
    "--kv-cache-dtype",
    "--context-length",
    "--chunked-prefill-size",
    "--quantization",
)


def check_cap(params: Params, cases: Sequence[Case]) -> Iterator[Check]:
    """Whether every concurrency asked for can run at once, under the same cap everywhere.

    Speculation without an explicit cap runs at most 48 requests at once; the baseline does not.
    """
    most = max(params.benchmark.concurrencies)
    caps = {case.name: case.options.max_running_requests for case in cases}
    wanted = f"one explicit {_OPTION}, {most} or more, for all"
    fix = f"add {_OPTION} {max(most, SPECULATION_CAP)} to server.args"
    found = "; ".join(f"{name}: {_show(cap)}" for name, cap in caps.items())
    silent = [c.name for c in cases if c.options.speculates and caps[c.name] is None]
    small = [f"{name}: {cap}" for name, cap in caps.items() if cap is not None and cap < most]
    if silent:
        told = f"{', '.join(silent)}: no {_OPTION}, so {SPECULATION_CAP} at once"
        limited = most > SPECULATION_CAP
        told += f", and C={most} would queue where the baseline does not" if limited else ""
        yield Check(_CAP, "fail" if limited else "warn", told, wanted, fix)
    if small:
        told = f"{'; '.join(small)}, and C={most} would queue"
        yield Check(_CAP, "fail", told, wanted, fix)
    elif len(set(caps.values())) > 1 and not silent:
        yield Check(_CAP, "warn", found, wanted, fix)
    elif not silent:
        yield Check(_CAP, "pass", found)


def check_alike(cases: Sequence[Case]) -> Check:
    """Whether the configurations differ in nothing but speculation."""
    variables = sorted({name for case in cases for name in case.env} - {SPEC_V2})
    said = {option: {case.name: case.options.text(option) for case in cases} for option in _SHARED}
    said |= {name: {case.name: case.env.get(name) for case in cases} for name in variables}
    different = [
        f"{what}: " + ", ".join(f"{name} {_show(value)}" for name, value in values.items())
        for what, values in said.items()
        if len(set(values.values())) > 1
    ]
    if not different:
        return Check("sglang_alike", "pass", "nothing differs but speculation")
    return Check(
        "sglang_alike",
        "warn",
        "; ".join(different),
        "the same for all: else the comparison is of several things at once",
        "move it to server.args or server.env",
    )


def _show(value: int | str | None) -> str:
    return "not given" if value is None else str(value)
