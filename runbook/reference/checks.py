"""``docs/checks.md``: every check by its name, and what it looks at."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping

from runbook.engines import engine_named
from runbook.params import Server
from runbook.publish.tables import Code, Markdown, table
from runbook.verify_stack import CHECKS
from runbook.verify_stack.wanted import WANTED

_HEAD = """# Checks
*Made by `make reference` from the checks themselves; a test holds it current.*

A check says what was found, what was wanted and what to do. `fail` stops the run; `warn` does not;
`unknown` means that the fact could not be had, and is never a pass; `skipped` was not asked for.
`stack.checks` sets a level by name: `fail` (a warning and an unknown fail too), `warn` (a failure
only warns) or `off`. What makes a check of the stack fail or warn stands in
[the stack](stack.md).
"""

#: What each check looks at. Complete for ``CHECKS`` and for the engines: a test says so.
LOOKS_AT: Mapping[str, str] = {
    **WANTED,
    "sglang_release": "The release is one whose source was read ([which](sglang.md)).",
    "sglang_worker": "The worker that each configuration claims exists on the release.",
    "sglang_model": "The release knows target and draft.",
    "sglang_draft": "Draft and algorithm fit; the baseline has none.",
    "sglang_tree": "The draft tree can be run as asked: its size, its attention backend.",
    "sglang_variables": "No variable is without effect, under an old name or of unclear value.",
    "sglang_acceptance": "No variable makes the acceptance of drafts up.",
    "sglang_request_cap": "Every concurrency can run at once, under the same cap everywhere.",
    "sglang_alike": "The configurations differ in nothing but speculation.",
    "sglang_packages": "Torch and kernels are what the installed release itself requires.",
    "sglang_cards": "The ranks of a server have their cards; NCCL's graph is for as many.",
    "sglang_pcie": "Nothing is asked for that does nothing without NVLink; lists what applies.",
    "sglang_arguments": "SGLang's own parser takes every command line as it was meant.",
}

#: Checks on a server that runs, by name.
OF_SERVERS: Mapping[str, str] = {
    "speculation": "The algorithm that runs is the one asked for.",
    "draft used": "Over a cell: drafts were proposed and accepted exactly where asked for.",
    "worker": "SGLang: the worker that runs, by `/server_info`.",
    "worker in the log": "SGLang: the worker that runs, by the start of the log.",
    "topk": "SGLang: the effective width of the draft tree.",
    "steps": "SGLang: the effective number of draft steps.",
    "draft tokens": "SGLang: the effective number of draft tokens.",
    "as parsed": "SGLang: the settings are those its own parser resolved before the start.",
    "request cap": "SGLang: how many requests run at once.",
    "longest prompt": "It answers a prompt of `stack.context_tokens`, where that is set.",
    "ranks": "SGLang: all ranks run with the same settings.",
}


def checks() -> str:
    """The page, whole."""
    parts = [_HEAD, "## Of the stack, before a start", str(table(_rows(CHECKS))), ""]
    for name in engines():
        named = engine_named(name).stack_checks
        if named:
            parts += [f"## Of {name}, before a start", str(table(_rows(named))), ""]
    rows = [{"check": Code(name), "looks at": Markdown(text)} for name, text in OF_SERVERS.items()]
    parts += ["## Of a server that runs", str(table(rows)), ""]
    return "\n".join(parts)


def engines() -> tuple[str, ...]:
    """The names of the engines."""
    return typing.get_args(Server.model_fields["engine"].annotation)


def _rows(names: Iterable[str]) -> list[dict[str, object]]:
    return [{"check": Code(name), "looks at": Markdown(LOOKS_AT[name])} for name in names]
