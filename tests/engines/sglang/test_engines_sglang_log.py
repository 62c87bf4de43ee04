"""What a log says: why a start failed, which worker runs, and the lines on decode batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_answers import case

from runbook.engines.sglang.engine import SGLang
from runbook.engines.sglang.log import (
    DecodeBatch,
    find_cause,
    find_worker,
    read_decode_batch,
    running_at_once,
)
from runbook.params import Configuration

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
STAMP = "[2026-11-30 01:03:53 TP3] "


@pytest.mark.parametrize(
    ("line", "name", "fix"),
    [
        (OOM, "out of memory", "--mem-fraction-static"),
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            "weights leave no room for the KV cache",
            "raise --mem-fraction-static",
        ),
        (
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 1 GiB",
            "out of memory at graph capture",
            "--cuda-graph-max-bs",
        ),
        (
            "ValueError: rpc_port at 11236 is not available in 30 seconds. rpc_port is used by a "
            "process already.",
            "port in use",
            "ss -ltnp",
        ),
        (
            "ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): "
            "address already in use",
            "port in use",
            "leftover scheduler",
        ),
        (
            "ValueError: metrics_port at 9000 is not available in 30 seconds.",
            "port in use",
            "ss -ltnp",
        ),
        (
            "ValueError: Spec v2 currently only supports topk = 1 for speculative decoding.",
            "refused combination",
            "topk 1",
        ),
        (
            "launch_server.py: error: unrecognized arguments: --speculative-eagle-topkk 4",
            "unknown option",
            "server.args",
        ),
        (
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x256 and 384x128)",
            "draft does not fit",
            "made for this target",
        ),
        ("ValueError: Cannot find the config file for gptq", "draft does not fit", "unquant"),
        (
            "    assert not get_global_server_args().disable_chunked_prefix_cache",
            "a long prompt under EAGLE-3",
            "--disable-chunked-prefix-cache",
        ),
        (
            "node7:4121:4388 [3] NCCL WARN Failed to CUDA calloc 10485760 bytes",
            "no memory for NCCL",
            "--mem-fraction-static",
        ),
        ("ModuleNotFoundError: No module named 'sgl_kernel'", "missing kernel", "sglang-kernel"),
        (
            "CUDA error: no kernel image is available for execution on the device",
            "missing kernel",
            "these cards",
        ),
        ("RuntimeError: Could not find nvcc and default cuda_home", "missing kernel", "PATH"),
        ("OSError: [Errno 28] No space left on device", "no space on disk", "/dev/shm"),
        (
            "OSError: Can't load config for '/shared/kimi'. Make sure that",
            "model path",
            "server.model",
        ),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
            "model path",
            "pointer",
        ),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: header too large",
            "model path",
            "pointer",
        ),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: incomplete "
            "metadata, file not fully covered",
            "model path",
            "server.model",
        ),
        (
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
            "processes.",
            "out of memory",
            "nvidia-smi",
        ),
        (
            "ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'",
            "missing kernel",
            "nvcc",
        ),
        ("No such file or directory: '/usr/local/cuda/bin/nvcc'", "missing kernel", "nvcc"),
        (
            "/tmp/main.cpp:4:10: fatal error: cuda_runtime.h: No such file or directory",
            "missing kernel",
            "nvcc",
        ),
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: "
            "147456, Hardware limit: 101376.",
            "kernel too large for these cards",
            "backend",
        ),
        ("Fatal Python error: Bus error", "no space on disk", "/dev/shm"),
        (
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit "
            "code is -9 (SIGKILL), a common cause is the OS OOM killer.",
            "killed from outside",
            "journalctl -k",
        ),
        (
            "ValueError: EAGLE is not supported in decode attention backend torch_native",
            "attention backend of the draft",
            "--speculative-draft-attention-backend",
        ),
        (
            "ValueError: Currently Flashinfer MLA only supports topk=1 for speculative decoding",
            "attention backend of the draft",
            "triton",
        ),
        (
            "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin",
            "no accelerator",
            "nvidia-smi",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.cpp:94, unhandled "
            "system error",
            "NCCL",
            "nccl.conf",
        ),
    ],
)
def test_causes(line, name, fix):
    log = f"{STAMP}Load weight begin.\nTraceback (most recent call last):\n{STAMP}{line}\n"
    cause = find_cause(log)
    assert (cause.name, fix in cause.fix) == (name, True)
    assert cause.line.endswith(line[:200]) or line[:200] in cause.line
    assert find_cause(log.replace("\n", "\r\n")) == cause


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("AttributeError: 'KimiK25' object has no attribute 'set_embed'", "target loaded as its"),
        ("AttributeError: no attribute 'hot_token_id'", "target loaded as its own draft"),
        ("No space left on device", "no space on disk"),
        ("[3] NCCL WARN Failed to CUDA calloc 10485760 bytes", "no memory for NCCL"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_running_out_of_memory_hides_no_other_cause(line, name, first):
    lines = [line, OOM] if first else [OOM, line]
    assert find_cause("\n".join(lines)).name.startswith(name)


def test_a_start_that_stops_at_the_group_of_processes_is_suspected_to_hang():
    begin = f"{STAMP}Init torch distributed begin.\n"
    quiet = begin + f"{STAMP}NCCL version 2.27.5\n"
    cause = find_cause(quiet)
    assert cause.name == "NCCL hang suspected" and "NCCL version 2.27.5" in cause.line
    assert "NCCL_P2P_DISABLE" in cause.fix
    assert find_cause(quiet + f"{STAMP}Init torch distributed ends. elapsed=3.1 s") is None


def test_what_follows_from_nccl_without_memory_is_not_its_cause():
    log = [
        "[3] alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'",
        "[3] alloc.h:235 NCCL WARN Failed to CUDA calloc 10485760 bytes",
        "DistBackendError: NCCL error in: NCCLUtils.cpp:94, unhandled cuda error",
        "torch.OutOfMemoryError: CUDA out of memory.",
    ]
    cause = find_cause("\n".join(log))
    assert (cause.name, cause.line) == ("no memory for NCCL", log[1])
    assert "0.95 to 0.93" in cause.fix and "graph file" in cause.fix


@pytest.mark.parametrize("name", ["log-baseline.txt", "log-eagle3-topk1.txt"])
def test_a_start_that_went_well_has_no_cause(name):
    assert find_cause(case(name)) is None


@given(st.text())
def test_any_log_is_read(text):
    find_cause(text)
    find_worker(text)
    assert read_decode_batch(text) is None or "Decode batch" in text


def test_the_engine_explains_in_one_sentence():
    said = SGLang().explain_log(f"x\n{OOM}\n")
    assert said.startswith("out of memory (torch.OutOfMemoryError") and "nvidia-smi" in said
    assert SGLang().explain_log("all is well") == ""


# --- the worker ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "worker"),
    [
        (
            "Spec v2 is enabled for eagle/eagle3 speculative decoding and overlap schedule is "
            "turned on.",
            "v2 overlap",
        ),
        ("Spec v2 is enabled by default for eagle/eagle3 speculative decoding", "v2 overlap"),
        ("Overlap spec v2 is enabled by default for eagle", "v2 overlap"),
        ("Overlap scheduler is disabled when spec v2 is off", "no overlap"),
        ("Spec v1 is used for eagle because spec v2 currently only supports topk = 1", "v1"),
        ("Non-overlap (synchronous) spec v2 is used for eagle/eagle3/standalone", "v2"),
        ("Max running requests is reset to 48 for speculative decoding.", None),
    ],
)
def test_worker_lines(line, worker):
    assert find_worker(f"{STAMP}x\n{STAMP}{line}\n{STAMP}y") == worker


def test_the_worker_as_captured():
    assert find_worker(case("log-eagle3-topk1.txt")) == "v2"
    assert find_worker(case("log-baseline.txt")) is None


def test_two_workers_in_one_log_are_none():
    assert find_worker("Spec v1 is used\nSpec v2 is enabled by default") is None


@pytest.mark.parametrize(
    ("name", "args", "statuses"),
    [
        ("a-spec-v2", ["--speculative-algorithm", "EAGLE3"], ["fail"]),
        (
            "a-spec-v2",
            ["--speculative-algorithm", "EAGLE3", "--disable-overlap-schedule"],
            ["pass"],
        ),
        ("a-v1", ["--speculative-algorithm", "EAGLE3"], ["fail"]),
        ("a", ["--speculative-algorithm", "EAGLE3"], ["pass"]),
        ("ngram", ["--speculative-algorithm", "NGRAM"], []),
        ("baseline", [], []),
    ],
)
def test_the_log_proves_the_worker(name, args, statuses):
    checks = SGLang().check_log(case("log-eagle3-topk1.txt"), Configuration(name=name, args=args))
    assert [check.status for check in checks] == statuses


def test_a_log_without_its_start_leaves_the_worker_unknown():
    args = ["--speculative-algorithm", "EAGLE3"]
    (check,) = SGLang().check_log("x", Configuration(name="a-spec-v2", args=args))
    assert check.status == "unknown"


# --- decode batches ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "batch"),
    [
        (
            "[2026-11-30 01:04:57] Decode batch, #running-req: 4, #token: 139, token usage: 0.02, "
            "accept len: 2.43, accept rate: 0.48, cpu graph: False, gen throughput (token/s): "
            "9.61, #queue-req: 0",
            DecodeBatch(4, 0, 9.61, 2.43),
        ),
        (
            "[2026-01-05 10:00:00 DP0 TP0 EP0] Decode batch. #running-req: 48, #token: 96000, "
            "token usage: 0.41, accept len: 2.17, accept rate: 0.54, cuda graph: True, "
            "gen throughput (token/s): 775.00, #queue-req: 1526, ",
            DecodeBatch(48, 1526, 775.0, 2.17),
        ),
        (
            "[2026-11-30 00:57:16] Decode batch, #running-req: 4, #token: 240, token usage: 0.03, "
            "cpu graph: False, gen throughput (token/s): 12.57, #queue-req: 0",
            DecodeBatch(4, 0, 12.57, None),
        ),
        (
            "[2026-11-30 TP0] Decode batch [40], #running-req: 1, #full token: 9, pre-allocated "
            "usage: 0.10, #queue-req: 2, gen throughput (token/s): 7",
            DecodeBatch(1, 2, 7.0, None),
        ),
        ("[x] Decode batch, #running-req: 3", DecodeBatch(3, None, None, None)),
        ("[x] Decode batch, #token: 3", None),
        ("[x] Prefill batch, #new-seq: 1, #running-req: 0, #queue-req: 0", None),
    ],
)
def test_decode_batches_old_and_new(line, batch):
    assert read_decode_batch(line) == batch
    assert read_decode_batch(f"\x1b[33m{line}\x1b[0m\r") == batch


def test_every_decode_batch_of_a_captured_log_is_read():
    lines = [line for line in case("log-baseline.txt").splitlines() if "Decode batch" in line]
    batches = [read_decode_batch(line) for line in lines]
    assert len(batches) == len(lines) > 5 and None not in batches
    assert max(batch.running for batch in batches) == 4


NUMBER = st.integers(0, 9999)


@given(NUMBER, NUMBER, st.floats(0, 1e6), st.none() | st.floats(1, 9), st.sampled_from(".,"))
def test_a_decode_batch_reads_back(running, queued, speed, length, mark):
    accept = "" if length is None else f"accept len: {length:.2f}, accept rate: 0.5, "
    line = f"{STAMP}Decode batch{mark} #running-req: {running}, #token: 1, {accept}"
    line += f"gen throughput (token/s): {speed:.2f}, #queue-req: {queued}, "
    batch = read_decode_batch(line)
    assert (batch.running, batch.queued) == (running, queued)
    assert batch.tokens_per_s == pytest.approx(speed, abs=0.006)
    assert batch.accept_length == (None if length is None else pytest.approx(length, abs=0.006))


def test_what_ran_at_once_is_the_median_of_the_log_over_all_ranks():
    """128 were asked for and 107 ran: the cache was full, and the others waited."""

    def line(running, rank="TP0"):
        return f"[2026-01-05 10:00:00 {rank}] Decode batch, #running-req: {running}, #token: 9"

    alone = [line(n) for n in (3, 106, 107, 107, 108, 12)]
    assert running_at_once("\n".join(["Prefill batch, #new-seq: 1", *alone])) == 106.5
    both = [line(6, f"DP{rank} TP0 EP0") for rank in range(8)]
    assert running_at_once("\n".join(both)) == 48
    assert running_at_once("nothing of that kind") is None
