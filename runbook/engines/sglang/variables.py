"""Environment variables of SGLang and NCCL: those that do nothing, and those that mislead. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runbook.engines.sglang.case import Case, Finding
from runbook.engines.sglang.options import SPEC_V2, read_switch
from runbook.engines.sglang.releases import OVERWRITES, SETS_IF_UNSET

_NCCL_LEVELS = {
    "NCCL_P2P_LEVEL": ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS"),
    "NCCL_NET_GDR_LEVEL": ("LOC", "PIX", "PXB", "PHB", "SYS"),
}


def judge_variables(case: Case) -> Iterator[Finding]:
    """Variables without effect, under old names, or with values of unclear meaning."""
    yield from _judge_switch(case)
    for name, value in OVERWRITES.items():
        if case.env.get(name, value) != value:
            found = f"{name}={case.env[name]} has no effect: SGLang sets {value} itself"
            yield Finding("warn", found, f"{name} left out", f"take {name} out of env")
    for name in sorted(case.written):
        if name.startswith("SGL_"):
            new = "SGLANG_" + name.removeprefix("SGL_")
            both = f", and {new} is set as well" if new in case.written else ""
            yield Finding("warn", f"{name} is an old name{both}", new, f"write {new}")
    for name, levels in _NCCL_LEVELS.items():
        level = case.env.get(name)
        if level and level not in levels:
            why = "what the number means differs between NCCL releases"
            found = f"{name}={level}: {why if level.isdigit() else 'NCCL documents no such level'}"
            yield Finding("warn", found, " or ".join(levels), "write the name")


def _judge_switch(case: Case) -> Iterator[Finding]:
    text = case.env.get(SPEC_V2)
    if text is None:
        return
    fix = f"take {SPEC_V2} out of env; overlap is switched off by --disable-overlap-schedule"
    if read_switch(text) is None:
        yield Finding("warn", f"{SPEC_V2}={text} is no truth value", "True or False", "correct it")
    elif case.release is None:
        return
    elif case.release.variable in ("warns", "silent"):
        silently = "silently ignores" if case.release.variable == "silent" else "ignores"
        yield Finding(
            "warn", f"SGLang {case.version} {silently} {SPEC_V2}", "no such variable", fix
        )
    elif case.release.variable == "overlap" and read_switch(text) is False:
        found = f"{SPEC_V2}={text} means the v2 worker without overlap on SGLang {case.version}"
        yield Finding("warn", found, "no such variable", fix)


def judge_simulation(case: Case) -> Iterator[Finding]:
    """A leftover of tests that fakes the acceptance of drafts."""
    for name in sorted(case.env):
        if name.startswith("SGLANG_SIMULATE_ACC"):
            old = name.replace("SGLANG_", "SGL_", 1)
            later = not case.set_later.keys().isdisjoint({name, old})
            found = f"{name}={case.env[name]} makes the acceptance up"
            found += " (set at the start of Python)" * later
            place = "sitecustomize.py" if later else "env"
            yield Finding("fail", found, "acceptance as it is", f"take {name} out of {place}")


def say_sets(cases: Sequence[Case]) -> str:
    """What SGLang does to the environment by itself."""
    always = ", ".join(f"{name}={value}" for name, value in OVERWRITES.items())
    unset = ", ".join(f"{name}={value}" for name, value in SETS_IF_UNSET.items())
    return f"SGLang itself sets {always} always, and {unset} where unset"
