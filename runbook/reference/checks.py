"""``docs/checks.md``: every check by its name, and what it looks at."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping

from runbook.engines import engine_named
from runbook.params import Server
from runbook.publish.tables import Code, Markdown, table
from runbook.verify_stack import CHECKS

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
    "interpreter": "The serving interpreter runs as its user, in its folder, with its environment.",
    "python": "Its version is in `stack.python`.",
    "engine_version": "The server's version, as that interpreter finds it, is in "
    "`stack.engine_version`.",
    "packages": "The packages of `stack.packages` are there in their ranges.",
    "model": "The model is there, readable and whole, with `stack.model_sha256` where given.",
    "draft": "The draft is there, readable and whole.",
    "draft_fits": "The draft has hidden size, vocabulary and positions for the target.",
    "cores": "`stack.min_cores` processors may be used.",
    "memory": "`stack.min_memory_gib` are available.",
    "disk": "`stack.min_disk_gib` are free at `server.cwd`.",
    "shm": "`stack.min_shm_gib` are free in `/dev/shm`.",
    "limits": "Open files and locked memory can be had as the service asks for them.",
    "tools": "The programs of `stack.tools` are on the server's `PATH`.",
    "environment": "No variable is reserved or empty, none is changed at the start of Python.",
    "torch": "Torch has kernels for the cards, and the driver is new enough for its CUDA.",
    "kernels": "The packages with kernels (FlashInfer, SGLang's own) belong together.",
    "nccl": "One NCCL is found, and it is in `stack.nccl`.",
    "nccl_conf": "No file of NCCL settings acts beside the environment.",
    "nccl_graph": "A graph file that is given can be read and is for these cards.",
    "collective": "A trial all-reduce over all cards answers, and is not slow.",
    "loaded_link": "Every link reaches its generation and width while that runs.",
    "sitecustomize": "Which `sitecustomize` Python loads, which it shadows, what it sets; the same "
    "for every configuration.",
    "port": "`server.port` is free; who holds it is named, and not ended.",
    "systemd": "A systemd takes orders: of the host, or in a throw-away box.",
    "gpus": "As many GPUs answer as `stack.gpus` wants.",
    "gpu_name": "Every GPU is of `stack.gpu_name`, and all of one model.",
    "gpu_memory": "Every GPU has `stack.gpu_memory_gib`.",
    "compute_cap": "Every GPU has `stack.compute_cap`.",
    "mig": "MIG is off on every GPU.",
    "driver": "The driver is in `stack.driver_version`.",
    "pcie_link": "Every link reaches `stack.pcie_gen` and `stack.pcie_width`.",
    "persistence": "Persistence mode is on.",
    "ecc": "ECC is alike on all GPUs.",
    "power": "Power limits are alike, and those the cards come with.",
    "topology": "The cards are connected as `stack.topology` says, and as NCCL was tuned for.",
    "p2p": "Cards may read one another's memory.",
    "acs": "No PCIe bridge above a card redirects what goes from card to card.",
    "iommu": "The IOMMU does not translate what goes from card to card.",
    "bar1": "The whole memory of a card can be addressed from the others.",
    "kernel_driver": "Kernel module and nvidia-smi are of one version.",
    "nvcc": "The compiler of CUDA is in `stack.nvcc`, and of torch's release.",
    "driver_options": "What modprobe.d asks of the driver is loaded.",
    "numa": "All processors are on line; the server may run on those near its cards.",
    "cpu_settings": "Frequency governor, NUMA balancing and swappiness are as asked.",
    "huge_pages": "Huge pages, for the record.",
    "kernel_log": "The kernel told of no GPU error (Xid) and no PCIe error.",
    "ecc_errors": "No card counts uncorrected memory errors.",
    "clocks": "No card is slowed down; all have the same clocks.",
    "idle": "Nobody uses the cards.",
    "sglang_release": "The release is one whose source was read ([which](sglang.md)).",
    "sglang_worker": "The worker that each configuration claims exists on the release.",
    "sglang_model": "The release knows target and draft.",
    "sglang_draft": "Draft and algorithm fit; the baseline has none.",
    "sglang_tree": "The draft tree can be run as asked: its size, its attention backend.",
    "sglang_variables": "No variable is without effect, under an old name or of unclear value.",
    "sglang_acceptance": "No variable makes the acceptance of drafts up.",
    "sglang_request_cap": "Every concurrency can run at once, under the same cap everywhere.",
    "sglang_alike": "The configurations differ in nothing but speculation.",
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
