"""Checks on an SGLang server that runs: whether it took what was asked. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runbook.checks import Check, Status
from runbook.engines.base import SUSPICIOUS_ACCEPTANCE, Counters, ServerInfo
from runbook.engines.sglang.info import UNKNOWN
from runbook.engines.sglang.models import ModelFacts
from runbook.engines.sglang.options import NO_SPECULATION, Options
from runbook.engines.sglang.releases import NO_OVERLAP

_LOOK = "this release does not tell: see the start of its log"


@dataclass(frozen=True)
class Asked:
    """What a configuration asks for; ``worker``: ``v1`` or ``v2`` where it means one."""

    name: str
    options: Options
    worker: str | None

    @property
    def overlap(self) -> bool:
        """Whether the overlap scheduler may run."""
        return not self.options.no_overlap


def check_info(info: ServerInfo, asked: Asked) -> Iterator[Check]:
    """All checks on what the server says of itself."""
    yield check_speculation(info, asked)
    if asked.options.speculates:
        yield check_worker(str(info.settings["worker"]), asked)
        yield from check_sizes(info, asked)
    yield _check_cap(info, asked)
    yield _check_attention(info, asked)
    differ = info.settings["ranks_differ"]
    if differ:
        fix = "see the logs of all ranks: they must have been started alike"
        yield Check("ranks", "warn", "; ".join(differ), "the same on all ranks", fix)


def check_speculation(info: ServerInfo, asked: Asked) -> Check:
    """Whether the algorithm is the one asked for."""
    wanted = asked.options.algorithm
    if info.speculation == wanted:
        return Check("speculation", "pass", info.speculation, wanted)
    status: Status = "unknown" if info.speculation == UNKNOWN else "fail"
    fix = f"see --speculative-algorithm in server.args and in configuration {asked.name}"
    return Check("speculation", status, info.speculation, wanted, fix)


def check_worker(found: str, asked: Asked, name: str = "worker") -> Check:
    """Whether the worker that runs is the one meant. A v2 worker without overlap is not what a
    configuration of that name compares, unless it switches overlap off itself."""
    if asked.worker is None:
        status: Status = "unknown" if found == UNKNOWN else "pass"
        return Check(name, status, found, "v1 or v2", "" if status == "pass" else _LOOK)
    wanted = asked.worker + (" overlap" if asked.worker == "v2" and asked.overlap else "")
    if found == wanted:
        return Check(name, "pass", found, wanted)
    untold = found == NO_OVERLAP and wanted in ("v1", "v2")
    status = "unknown" if untold or found == UNKNOWN else "fail"
    fix = "see SGLANG_ENABLE_SPEC_V2, topk and the release in the checks of the stack"
    return Check(name, status, found, wanted, fix)


def check_sizes(info: ServerInfo, asked: Asked) -> Iterator[Check]:
    """Branches, depth and size of the draft tree, where they were asked for."""
    options, settings = asked.options, info.settings
    sizes = {
        "topk": ("speculative_eagle_topk", options.topk),
        "steps": ("speculative_num_steps", options.steps),
        "draft tokens": ("speculative_num_draft_tokens", options.draft_tokens),
    }
    steps = settings["speculative_num_steps"]
    for name, (key, wanted) in sizes.items():
        found = settings[key]
        if wanted is None:
            continue
        if found is None:
            yield Check(name, "unknown", UNKNOWN, str(wanted), _LOOK)
        elif found == wanted:
            yield Check(name, "pass", str(found), str(wanted))
        elif name == "draft tokens" and options.topk == 1 and found == (steps or 0) + 1:
            told = f"effective {found}, asked {wanted}: with topk 1 the draft is a chain"
            yield Check(name, "warn", told, str(wanted), f"ask for {found}")
        else:
            fix = "the server changed it: see the start of its log"
            yield Check(name, "fail", str(found), str(wanted), fix)


def _check_cap(info: ServerInfo, asked: Asked) -> Check:
    wanted, cap = asked.options.max_running_requests, info.max_concurrency
    fix = "give all configurations the same --max-running-requests, and the memory it needs"
    if cap is None:
        return Check("request cap", "unknown", UNKNOWN, str(wanted or "one that is told"), fix)
    if wanted is not None and cap < wanted:
        return Check("request cap", "warn", f"{cap} at once", f"{wanted} as asked", fix)
    if wanted is None and asked.options.speculates:
        found = f"{cap} at once, set by the server: the baseline has another cap"
        return Check("request cap", "warn", found, "an explicit one", fix)
    return Check("request cap", "pass", f"{cap} at once", str(wanted or "any"))


def _check_attention(info: ServerInfo, asked: Asked) -> Check:
    """The backends that run, against those that were asked for."""
    names = [f"{part}attention_backend" for part in ("", "prefill_", "decode_")]
    found = {name: info.settings[name] for name in names}
    wanted = {name: asked.options.text("--" + name.replace("_", "-")) for name in names}
    said, asked_for = (
        ", ".join(
            f"{name.partition('attention')[0]}{value}" for name, value in one.items() if value
        )
        for one in (found, wanted)
    )
    open_ones = [name for name, value in wanted.items() if value and found[name] != value]
    status: Status = "pass"
    if open_ones:
        status = "unknown" if all(found[name] is None for name in open_ones) else "warn"
    fix = "see the start of its log: the server took another" if open_ones else ""
    return Check("attention backend", status, said or UNKNOWN, asked_for, fix)


def acceptance_length(cell: Counters) -> float | None:
    """``(output tokens - requests) / verify steps``: the first token of a request is its
    prefill's. Where steps are not counted, as the log of the cell tells. ``None`` when not known,
    and without speculation."""
    if cell.verify_steps is None:
        return cell.accept_length
    if not cell.verify_steps or cell.predicted is None or cell.requests is None:
        return None
    return (cell.predicted - cell.requests) / cell.verify_steps


def check_use(cell: Counters, asked: Asked, draft: ModelFacts) -> Check:
    """Whether the draft was used over a cell exactly where speculation was asked for."""
    steps = cell.verify_steps
    if not asked.options.speculates:
        if steps:
            found = f"{steps} verify steps"
            return Check("draft used", "fail", found, NO_SPECULATION, "see server.args")
        return Check("draft used", "pass", "no verify steps", NO_SPECULATION)
    wanted = f"drafts by {asked.options.algorithm}"
    if steps is None and cell.accept_length is None:
        fix = "add --enable-metrics to server.args; older releases tell in their log alone"
        return Check("draft used", "unknown", "no count of verify steps", wanted, fix)
    length = acceptance_length(cell)
    if steps == 0 and cell.predicted:
        fix = "the server decoded without its draft: see its log"
        return Check("draft used", "fail", "no verify steps", wanted, fix)
    if length is None:
        return Check("draft used", "unknown", f"{steps} verify steps", wanted, "measure longer")
    return _check_length(length, asked, draft, wanted)


def _check_length(length: float, asked: Asked, draft: ModelFacts, wanted: str) -> Check:
    found = f"acceptance length {length:.2f}"
    misfit = asked.options.algorithm == "EAGLE" and draft.eagle3
    if length < 1.005 and misfit:
        fix = "set --speculative-algorithm EAGLE3: the draft is one of EAGLE-3"
        return Check("draft used", "fail", f"{found}: nothing accepted", wanted, fix)
    if length < 1.005:
        fix = "see that draft and target belong together: speculation may only cost"
        return Check("draft used", "warn", f"{found}: nothing accepted", "above 1", fix)
    steps = asked.options.steps
    if steps is not None and length >= SUSPICIOUS_ACCEPTANCE * (steps + 1):
        fix = "read the answers: repetition and ignored ends accept everything"
        return Check("draft used", "warn", f"{found} of {steps + 1}", "answers as in use", fix)
    return Check("draft used", "pass", found, wanted)
