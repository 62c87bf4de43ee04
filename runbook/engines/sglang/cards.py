"""Whether the ranks of a server have their cards, and NCCL's graph is made for as many. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runbook.checks import Check, counted
from runbook.engines.base import Seen
from runbook.engines.sglang.case import Case, Finding, grouped
from runbook.engines.sglang.options import Options
from runbook.params import Params

_NAME = "sglang_cards"


def check_cards(params: Params, cases: Sequence[Case], seen: Seen) -> list[Check]:
    """Where GPUs are asked for: no more ranks than cards, and a graph of one group's ranks."""
    if params.stack.gpus == 0:
        return []
    faults = grouped(_NAME, cases, lambda case: _judge(case, params.stack.gpus, seen))
    ranks = dict.fromkeys(counted(ranks_of(case.options), "rank") for case in cases)
    said = f"{', '.join(ranks)} on {counted(params.stack.gpus, 'GPU')}"
    return faults or [Check(_NAME, "pass", said)]


def _judge(case: Case, gpus: int, seen: Seen) -> Iterator[Finding]:
    ranks, group = ranks_of(case.options), _size(case.options, "tensor")
    if ranks > gpus and not case.options.number("--nnodes"):
        found = f"{counted(ranks, 'rank')} on {counted(gpus, 'GPU')}"
        fix = "correct --tensor-parallel-size in server.args, or stack.gpus"
        yield Finding("fail", found, f"{counted(gpus, 'rank')} at most", fix)
    graph = seen.fact(case.name, "nccl_graph") or {}
    if graph.get("gpus") not in (None, group):
        found = f"NCCL_GRAPH_FILE={graph['path']} is of {counted(graph['gpus'], 'GPU')}"
        fix = "write it again with NCCL_GRAPH_DUMP_FILE on the ranks that serve, or leave it out"
        yield Finding("fail", found, f"a graph of {counted(group, 'rank')}", fix)


def ranks_of(options: Options) -> int:
    """Cards that one server takes. With DP attention its data ranks share those of the tensors."""
    data = 1 if options.has("--enable-dp-attention") else _size(options, "data")
    return _size(options, "tensor") * _size(options, "pipeline") * data


def _size(options: Options, kind: str) -> int:
    return options.number(f"--{kind}-parallel-size") or 1
