"""Whether a draft tree can be run as asked: its sizes, its attention backend, its pages. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from runbook.checks import Status, counted
from runbook.engines.sglang.case import Case, Finding
from runbook.engines.sglang.releases import Release


def judge_tree(case: Case) -> Iterator[Finding]:
    """Sizes that the server changes, and attention backends that get a tree wrong."""
    options = case.options
    if not options.has_worker or options.topk is None:
        return
    if options.topk == 1:
        asked, steps = options.draft_tokens, options.steps
        if asked is not None and steps is not None and asked != steps + 1:
            yield Finding(
                "warn",
                f"{counted(asked, 'draft token')} asked, effective {steps + 1}: a chain of "
                f"{counted(steps, 'step')}",
                f"--speculative-num-draft-tokens {steps + 1}",
                "write what is run",
            )
        return
    backends = {
        options.text(f"--{part}attention-backend") for part in ("", "prefill-", "decode-")
    } - {None}
    if "trtllm_mha" in backends:
        yield _change("fail", "trtllm_mha with topk above 1", "topk 1 with trtllm_mha")
    if backends & {"flashinfer", "flashmla"} and case.target.mla:
        mla_draft = case.draft.mla_draft
        found = "flashinfer for a model with latent attention and topk above 1"
        why = "it only supports topk 1" if mla_draft else "its verify step ignores the tree's mask"
        yield _change("fail" if mla_draft else "warn", f"{found}: {why}", "a backend with trees")
    if (options.number("--page-size") or 1) > 1:
        yield from _judge_paged_tree(case.release, backends)


def _judge_paged_tree(release: Release | None, backends: set[str | None]) -> Iterator[Finding]:
    if release is None:
        found = "topk above 1 with a page size above 1 is not known of this release"
        yield Finding("warn", found, "page size 1", "set --page-size 1")
        return
    for backend in backends or {None}:
        if backend in release.paged_trees:
            continue
        unsure = backend is None or backend in release.paged_trees_unsure
        said = backend or "the default attention backend"
        yield Finding(
            "warn" if unsure else "fail",
            f"topk above 1 with a page size above 1 on {said}: results may be wrong",
            f"page size 1, or one of {', '.join(release.paged_trees)}",
            "set --page-size 1",
        )


def _change(status: Status, found: str, wanted: str) -> Finding:
    return Finding(status, found, wanted, "set --attention-backend triton in server.args")
