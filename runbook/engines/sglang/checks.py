"""Whether the configurations can exist on a release of SGLang, before anything is started. Pure.

One check a subject; where nothing is wrong it passes for all configurations at once, else there is
one a fault, and ``found`` begins with the configuration's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from runbook.checks import Check
from runbook.engines.base import Seen
from runbook.engines.sglang.cap import check_alike, check_cap
from runbook.engines.sglang.cards import check_cards
from runbook.engines.sglang.case import Case, Finding, grouped
from runbook.engines.sglang.models import ModelFacts
from runbook.engines.sglang.options import (
    SPEC_V2,
    effective_env,
    intended_worker,
    options_of,
    read_switch,
)
from runbook.engines.sglang.packages import check_packages
from runbook.engines.sglang.pcie import check_pcie
from runbook.engines.sglang.releases import (
    RELEASES,
    Release,
    expected_worker,
    find_release,
    releases_where,
)
from runbook.engines.sglang.tree import judge_tree
from runbook.engines.sglang.variables import judge_simulation, judge_variables, say_sets
from runbook.params import BASELINE, Params

_LOOK = "correct its path in server; or, on the host: runbook facts PARAMS"
_OBSERVE = "decide by the start-up log and by /server_info alone"


def check_releases(
    params: Params,
    version: str | None,
    target: ModelFacts | None = None,
    draft: ModelFacts | None = None,
    seen: Seen | None = None,
) -> list[Check]:
    """All checks of the configurations against the installed ``version`` (``None``: unknown)."""
    release, seen = find_release(version) if version else None, seen or Seen()
    cases = [
        Case(
            configuration=configuration,
            options=options_of(params.server, configuration),
            env=effective_env(params.server, configuration, set_later),
            written={**params.server.env, **configuration.env, **set_later},
            set_later=set_later,
            release=release,
            version=version,
            target=target or ModelFacts(),
            draft=draft or ModelFacts(),
        )
        for configuration in params.configurations
        for set_later in [seen.variables(configuration.name)]
    ]
    checks = [_check_release(version, release)]
    for name, judge, summary in _RULES:
        faults = grouped(name, cases, judge)
        checks += faults or [Check(name, "pass", summary(cases))]
    checks += [*check_cap(params, cases), check_alike(cases)]
    checks += check_packages(params, version, release, seen)
    checks += [*check_cards(params, cases, seen), *check_pcie(params, cases, seen.links)]
    return checks


def _check_release(version: str | None, release: Release | None) -> Check:
    wanted = f"one that was read: {RELEASES[0].first} to {RELEASES[-1].last}"
    if version is None:
        fix = "name the interpreter that has SGLang in server.interpreter"
        return Check("sglang_release", "unknown", "no version of sglang is known", wanted, fix)
    if release is None:
        return Check("sglang_release", "warn", f"{version} was not read", wanted, _OBSERVE)
    return Check("sglang_release", "pass", f"{version}, which behaves as {release}")


def _judge_worker(case: Case) -> Iterator[Finding]:
    release, options = case.release, case.options
    if not options.has_worker:
        return
    if release is None:
        found = "which worker runs is not known of this release"
        yield Finding("unknown", found, "a release that was read", _OBSERVE)
        return
    switch = read_switch(case.env.get(SPEC_V2))
    got = expected_worker(release, options.topk, switch, options.no_overlap)
    named = intended_worker(case.configuration, None)
    meant = named or (
        intended_worker(case.configuration, switch) if release.variable == "worker" else None
    )
    wide = (options.topk or 1) > 1
    if got == "refused":
        yield Finding(
            "fail",
            f"topk {options.topk} with {SPEC_V2} on: SGLang {case.version} refuses to start",
            "topk 1 on the v2 worker, or topk above 1 on v1",
            f"topk above 1 on the v2 worker exists on {releases_where(_runs_trees)}; "
            f"here set {SPEC_V2} to False, or topk to 1",
        )
    elif got is None:
        told = "the worker cannot be told beforehand"
        yield Finding("warn", told, f"the {meant or 'v1 or v2'} worker", _OBSERVE)
    elif meant == "v1" and not release.v1_worker:
        yield _no_v1(case)
    elif meant == "v2" and got == "v1" and wide:
        yield Finding(
            "fail" if named else "warn",
            f"topk {options.topk}: SGLang {case.version} runs it on the v1 worker",
            "the v2 worker",
            f"topk above 1 on the v2 worker exists on {releases_where(_runs_trees)}",
        )
    elif meant and not got.startswith(meant):
        yield Finding(
            "warn",
            f"this runs on the {got} worker: its name says {meant}",
            f"the {meant} worker",
            f"set {SPEC_V2} to {meant == 'v2'} in the environment of {case.name}",
        )


def _no_v1(case: Case) -> Finding:
    def exists(release: Release) -> bool:
        return release.v1_worker and (release.kimi_eagle3 or not case.target.kimi_k25)

    return Finding(
        "fail",
        f"it asks for the v1 worker, which SGLang {case.version} does not have",
        f"a release with it: {releases_where(exists)}",
        "the nearest honest comparison on this release: topk 4 against topk 1, both on the v2 "
        "worker, with and without --disable-overlap-schedule, under names that say so",
    )


def _runs_trees(release: Release) -> bool:
    return release.tree_on_v2 == "runs"


def _say_workers(cases: Sequence[Case]) -> str:
    said = []
    for case in cases:
        worker: str | None = "no speculation"
        if case.options.speculates:
            worker = case.options.algorithm
        if case.release and case.options.has_worker:
            switch = read_switch(case.env.get(SPEC_V2))
            worker = expected_worker(
                case.release, case.options.topk, switch, case.options.no_overlap
            )
        said.append(f"{case.name}: {worker}")
    return "; ".join(said)


def _judge_model(case: Case) -> Iterator[Finding]:
    release = case.release
    if not case.options.has_worker:
        return
    if release is None:
        found = "what this release can do with the model is not known"
        yield Finding("unknown", found, "a release that was read", _OBSERVE)
    elif not case.target.known:
        found = "the target's config.json could not be read"
        yield Finding("unknown", found, "a config.json of the target", _LOOK)
    elif case.target.kimi_k25 and not release.kimi_eagle3:
        yield Finding(
            "fail",
            f"SGLang {case.version} has no EAGLE-3 hooks for Kimi-K2.5",
            f"a release with them: {releases_where(lambda row: row.kimi_eagle3)}",
            "install one of these releases",
        )
    elif case.target.kimi_k25 and case.draft.mla_draft and not release.mla_draft:
        yield Finding(
            "fail",
            f"SGLang {case.version} lacks the draft's class ({_names(case.draft)})",
            f"a release with it: {releases_where(lambda row: row.mla_draft)}",
            "install one of these releases, or take a draft of class LlamaForCausalLMEagle3",
        )


def _judge_draft(case: Case) -> Iterator[Finding]:
    options, draft = case.options, case.draft
    if case.name == BASELINE and options.speculates:
        yield Finding("fail", options.algorithm, "no speculation", "move it out of server.args")
    if not options.needs_draft:
        return
    if not options.text("--speculative-draft-model-path"):
        if options.algorithm != "EAGLE":
            yield Finding(
                "fail",
                f"{options.algorithm} without a draft: SGLang would load the target as its draft",
                "a draft",
                "set server.draft",
            )
        return
    if not draft.known:
        found = "the draft's config.json could not be read"
        yield Finding("unknown", found, "a config.json of the draft", _LOOK)
    elif options.algorithm == "EAGLE" and draft.eagle3:
        yield Finding(
            "warn" if draft.mla_draft else "fail",
            f"algorithm EAGLE with a draft of EAGLE-3 ({_names(draft)}): nothing of it is accepted",
            "EAGLE3",
            "set --speculative-algorithm EAGLE3",
        )
    elif options.algorithm == "EAGLE3" and not draft.eagle3:
        yield Finding(
            "warn",
            f"the draft is of class {_names(draft)}",
            "a draft of EAGLE-3",
            "see that acceptance is above 1, or take the algorithm of this draft",
        )
    quantization = options.text("--speculative-draft-model-quantization")
    if case.target.quantized and draft.quantized is False and quantization != "unquant":
        yield Finding(
            "warn",
            "the target is quantised, the draft is not, and it inherits the target's setting",
            "a draft loaded as it is",
            "set --speculative-draft-model-quantization unquant",
        )


def _names(model: ModelFacts) -> str:
    return ", ".join(model.architectures or ()) or "no class named"


def _say(text: str) -> Callable[[Sequence[Case]], str]:
    return lambda cases: text


_RULES: tuple[
    tuple[str, Callable[[Case], Iterator[Finding]], Callable[[Sequence[Case]], str]], ...
] = (
    ("sglang_worker", _judge_worker, _say_workers),
    ("sglang_model", _judge_model, _say("the release knows target and draft")),
    ("sglang_draft", _judge_draft, _say("draft and algorithm fit")),
    ("sglang_tree", judge_tree, _say("the draft trees can be run as asked")),
    ("sglang_variables", judge_variables, say_sets),
    ("sglang_acceptance", judge_simulation, _say("nothing makes acceptance up")),
)


#: Names of all checks here.
STACK_CHECKS = (
    "sglang_release",
    *(name for name, _judge, _summary in _RULES),
    "sglang_request_cap",
    "sglang_alike",
    "sglang_packages",
    "sglang_cards",
    "sglang_pcie",
)
