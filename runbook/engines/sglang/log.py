"""What SGLang's log says: why a start failed, which worker runs, how full its batches are. Pure."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass

from runbook.engines.sglang.releases import NO_OVERLAP, WORKER_LINES


@dataclass(frozen=True)
class Cause:
    """Why a server did not start: a short name, the line that says so, and what to do."""

    name: str
    line: str
    fix: str


#: From the particular to the general: running out of memory is often only what follows from
#: another cause, and a child's end is what follows from every one.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        "unknown option",
        r"error: unrecognized arguments|error: argument --|error: ambiguous option",
        "correct server.args or the configuration's args; options differ between releases",
    ),
    (
        "refused combination",
        r"Spec v2 currently only supports topk = 1",
        "topk 1 with SGLANG_ENABLE_SPEC_V2, or the variable off: see the checks of the stack",
    ),
    (
        "target loaded as its own draft",
        r"set_embed|hot_token_id",
        "name the draft in server.draft: without one the target is loaded twice",
    ),
    (
        "attention backend of the draft",
        r"(?i)draft[^\n]*attention backend|attention backend[^\n]*draft"
        r"|EAGLE[^\n]* not supported in[^\n]*attention backend"
        r"|MLA only supports topk\s*=\s*1",
        "set --speculative-draft-attention-backend, or --attention-backend triton",
    ),
    (
        "a long prompt under EAGLE-3",
        r"assert not [^\n]*disable_chunked_prefix_cache",
        "reported to help: --disable-chunked-prefix-cache with SGLANG_ENABLE_SPEC_V2=True, for all "
        "configurations alike; or another release",
    ),
    (
        "draft does not fit",
        r"(?i)Cannot find the config file for|mat1 and mat2 shapes cannot be multiplied"
        r"|(?:size mismatch|shape mismatch)[^\n]*(?:draft|eagle|midlayer|fc\.weight)"
        r"|KeyError:[^\n]*(?:eagle|midlayer|draft|d2t|weight_packed|weight_scale)"
        r"|(?:Eagle|Draft)\w* (?:is|are) not supported",
        "a draft made for this target; a draft that is not quantised needs "
        "--speculative-draft-model-quantization unquant",
    ),
    (
        "missing kernel",
        r"No module named '(?:sgl_kernel|flashinfer|vllm|deep_gemm|cutlass)[\w.]*'"
        r"|no kernel image is available|undefined symbol|nvcc[^\n]*not found"
        r"|Could not find nvcc|Unsupported gpu architecture|FlashInfer requires GPUs"
        r"|ptxas fatal|fatal error: [\w/.]+: No such file"
        r"|No such file or directory: '(?:[^'\n]*/)?(?:nvcc|ninja|ptxas)'",
        "install the kernels that belong to this release (sglang-kernel, flashinfer, both for this "
        "CUDA and these cards), and put nvcc on server.env.PATH",
    ),
    (
        "port in use",
        r"port at \d+ is not available|[Aa]ddress already in use"
        r"|error while attempting to bind on address",
        "find who holds it (ss -ltnp); a leftover scheduler holds GPU memory as well",
    ),
    (
        "kernel too large for these cards",
        r"out of resource: shared memory",
        "another attention or MoE backend in server.args: this one is for cards with more shared "
        "memory",
    ),
    (
        "no space on disk",
        r"No space left on device|Disk quota exceeded|Bus error",
        "make room in /dev/shm, /tmp and the compile caches (df -h)",
    ),
    (
        "model path",
        r"(?:Repo id must be|is not a local folder|does not appear to have a file named"
        r"|Can't load (?:the )?(?:config|tokenizer)|Cannot find any model weights"
        r"|No such file or directory: '[^'\n]*(?:safetensors|config\.json|tokenizer)"
        r"|Incorrect path_or_model_id|Error while deserializing header)",
        "correct server.model or server.draft; a file under 1 KB is a pointer, not weights",
    ),
    (
        "out of memory at graph capture",
        r"Capture (?:cuda|CUDA) graph failed|[Cc]apture[^\n]*(?:out of memory|OutOfMemory)",
        "reduce --cuda-graph-max-bs or --mem-fraction-static, the latter alike in all "
        "configurations",
    ),
    (
        "no memory for NCCL",
        r"Failed to CUDA (?:calloc|malloc)",
        "lower --mem-fraction-static a little (0.95 to 0.93), alike in all configurations: NCCL "
        "takes its buffers beside it, and about 10 MB a card more with a graph file",
    ),
    (
        "out of memory",
        r"(?i)cuda out of memory|OutOfMemoryError|Not enough memory\. Please try|oom-kill"
        r"|out of memory|memory capacity is unbalanced",
        "see that nothing else holds the cards (nvidia-smi); else lower --mem-fraction-static, "
        "--max-running-requests or --context-length in server.args",
    ),
    (
        "no accelerator",
        r"No accelerator \(CUDA|NVIDIA driver on your system is too old|no CUDA-capable device"
        r"|CUDA driver version is insufficient",
        "see nvidia-smi as the service's user, and the driver against this build of torch",
    ),
    (
        "NCCL",
        r"Watchdog caught collective operation timeout|NCCL error|ncclSystemError"
        r"|ncclUnhandledCudaError|unhandled (?:system|cuda) error",
        "see NCCL_* in the environment, /etc/nccl.conf and the graph file; try NCCL_P2P_DISABLE=1",
    ),
    (
        "killed from outside",
        r"terminated with -9\b|exit code:? -9\b",
        "see whether the kernel did it for want of memory: journalctl -k -g oom",
    ),
)

_HANG_BEGIN = re.compile(r"Init torch distributed begin")
_HANG_END = re.compile(r"Init torch distributed ends|Load weight begin")
_HANG = (
    "NCCL hang suspected",
    "look at the cards: full utilisation at low power and a silent log mean a deadlock; see "
    "NCCL_P2P_LEVEL, ACS and IOMMU, and try NCCL_P2P_DISABLE=1",
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HARMLESS = re.compile(r"Ignore import error when loading|UserWarning:")


def find_cause(log: str) -> Cause | None:
    """Why a start failed, ``None`` where the log holds nothing that is known."""
    lines = [line.strip() for line in _ANSI.sub("", log).splitlines()]
    lines = [line for line in lines if line and not _HARMLESS.search(line)]
    for name, pattern, fix in _CAUSES:
        for line in lines:
            if re.search(pattern, line):
                return Cause(name, line[:300], fix)
    begins = [place for place, line in enumerate(lines) if _HANG_BEGIN.search(line)]
    if begins and not any(_HANG_END.search(line) for line in lines[begins[0] :]):
        return Cause(_HANG[0], lines[-1][:300], _HANG[1])
    return None


def find_worker(log: str) -> str | None:
    """The worker that the log names: ``v1``, ``v2``, ``v2 overlap``, or ``no overlap`` where it
    says no more; ``None`` where it names none, or several."""
    lines = log.splitlines()
    found = {
        worker for pattern, worker in WORKER_LINES if any(re.search(pattern, x) for x in lines)
    }
    exact = found - {NO_OVERLAP} or found
    return exact.pop() if len(exact) == 1 else None


@dataclass(frozen=True)
class DecodeBatch:
    """One line on the decode batch; ``None`` where the line does not tell (no speculation)."""

    running: int
    queued: int | None
    tokens_per_s: float | None
    accept_length: float | None


def find_acceptance(log: str) -> float | None:
    """The mean over the decode batches of a log, each weighed by its requests; ``None`` where none
    tells. A line is of the steps since the last one."""
    batches = [found for line in log.splitlines() if (found := read_decode_batch(line))]
    told = [(one.accept_length, one.running) for one in batches if one.accept_length is not None]
    weight = sum(running for _, running in told)
    return sum(length * running for length, running in told) / weight if weight else None


_RANK = re.compile(r"\bDP\d+\b")
_DECODE = re.compile(r"Decode batch(?: \[\d+\])?[.,]")
_FIELD = {
    "running": re.compile(r"#running-req: (\d+)\b"),
    "queued": re.compile(r"#queue-req: (\d+)\b"),
    "tokens_per_s": re.compile(r"gen throughput \(token/s\): (\d+(?:\.\d+)?)"),
    "accept_length": re.compile(r"accept len: (\d+(?:\.\d+)?)"),
}


def read_decode_batch(line: str) -> DecodeBatch | None:
    """A decode batch as any release writes it, whatever stands before it or between its fields."""
    line = _ANSI.sub("", line)
    start = _DECODE.search(line)
    if not start:
        return None
    said = {
        name: match.group(1) if (match := pattern.search(line, start.end())) else None
        for name, pattern in _FIELD.items()
    }
    if said["running"] is None:
        return None
    return DecodeBatch(
        int(said["running"]),
        None if said["queued"] is None else int(said["queued"]),
        None if said["tokens_per_s"] is None else float(said["tokens_per_s"]),
        None if said["accept_length"] is None else float(said["accept_length"]),
    )


def running_at_once(log: str) -> float | None:
    """The median of ``#running-req`` over decode batches, ranks of data parallelism summed."""
    ranks: dict[str, list[int]] = {}
    for line in log.splitlines():
        if batch := read_decode_batch(line):
            rank = _RANK.search(line)
            ranks.setdefault(rank.group() if rank else "", []).append(batch.running)
    return float(sum(statistics.median(own) for own in ranks.values())) if ranks else None
