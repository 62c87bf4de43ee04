"""Why a start failed: of whole logs, by the exception of the rank that failed first."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.engines.sglang.causes import CAUSES, Known
from runbook.engines.sglang.engine import SGLang
from runbook.engines.sglang.log import find_cause
from runbook.launch.spec import LaunchSpec

HEAD = "Traceback (most recent call last):"
DURING = "During handling of the above exception, another exception occurred:"
DIRECT = "The above exception was the direct cause of the following exception:"
SIGQUIT = "[2026-09-14 21:07:33] Received sigquit from a child process. It usually means the child"
HINTS = """Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs to a smaller value (e.g., 16)
3. disable torch compile by not using --enable-torch-compile
4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)
Open an issue on GitHub"""


def traceback(raised: str, module: str = "srt/managers/scheduler", code: str = "run()") -> str:
    """One traceback of two frames that ends with ``raised``."""
    place = "/srv/venv/lib/python3.12/site-packages/sglang"
    return "\n".join(
        (
            HEAD,
            f'  File "{place}/srt/managers/scheduler.py", line 3611, in run_scheduler_process',
            "    scheduler = Scheduler(",
            "                ^^^^^^^^^^",
            f'  File "{place}/{module}.py", line 77, in prepare',
            f"    {code}",
            raised,
        )
    )


def hit(rank: str, *tracebacks: str, link: str = DURING, at: str = "21:07:31") -> str:
    """A scheduler's record of what ended it."""
    chained = f"\n\n{link}\n\n".join(tracebacks)
    return f"[2026-09-14 {at}{rank}] Scheduler hit an exception: {chained}\n"


def logged(rank: str, text: str, at: str = "21:07:02") -> str:
    """One line that a rank logged."""
    return f"[2026-09-14 {at}{rank}] {text}"


def captured(inner: str, what: str = "cuda") -> str:
    """What SGLang makes of an exception at the capture of graphs."""
    return f"Exception: Capture {what} graph failed: {inner}\n{HINTS}"


BEGIN = logged(" TP0", "Load weight begin. avail mem=94.02 GB")
POOL = logged(" TP0", "KV Cache is allocated. #tokens: 401233, KV size: 21.07 GB")
GRAPHS = logged(" TP0", "Capture cuda graph begin. This can take up to several minutes.")

#: What is raised, and the cause that it is.
KNOWN: list[tuple[str, str]] = [
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 5 has",
        "out of memory",
    ),
    ("RuntimeError: CUDA error: out of memory", "out of memory"),
    (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.44 GiB",
        "out of memory",
    ),
    (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "weights leave no room for the KV cache",
    ),
    (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current "
        "value: self.server_args.mem_fraction_static=0.62",
        "weights leave no room for the KV cache",
    ),
    (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under "
        "--mem-fraction-static=0.5. Raise --mem-fraction-static above 0.713 (minimum viable = 1 - "
        "available/pre = 0.7122). If using speculative decoding, draft weights are now counted.",
        "weights leave no room for the KV cache",
    ),
    (
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the "
        "device",
        "missing kernel",
    ),
    (
        "RuntimeError: No supported CUDA architectures found for major versions [10, 11].",
        "missing kernel",
    ),
    ("RuntimeError: FlashInfer requires GPUs with sm75 or higher", "missing kernel"),
    (
        "ImportError: /srv/venv/lib/python3.12/site-packages/sgl_kernel/common_ops.abi3.so: "
        "undefined symbol: _ZN3c104cuda9SetDeviceEa",
        "missing kernel",
    ),
    ("ModuleNotFoundError: No module named 'deep_gemm'", "missing kernel"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "missing kernel"),
    (
        "FileNotFoundError: [Errno 2] No such file or directory: ':/opt/cuda-12.4/bin/nvcc'",
        "missing kernel",
    ),
    (
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        "no C compiler",
    ),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'g++'", "no C compiler"),
    (
        "torch._inductor.exc.InvalidCxxCompiler: No working C++ compiler found in "
        "torch._inductor.config.cpp.cxx: (None, 'g++')",
        "no C compiler",
    ),
    (
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "shared library not found",
    ),
    (
        "OSError: libnccl.so.2: cannot open shared object file: No such file or directory",
        "shared library not found",
    ),
    (
        "ImportError: libmpi.so.40: cannot open shared object file: No such file or directory",
        "shared library not found",
    ),
    (
        "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found "
        "(required by /srv/venv/lib/tvm_ffi.so)",
        "shared library too old",
    ),
    (
        "PermissionError: [Errno 13] Permission denied: '/root/.triton'",
        "cache that cannot be written",
    ),
    (
        "OSError: [Errno 30] Read-only file system: '/home/llm/.cache/flashinfer'",
        "cache that cannot be written",
    ),
    (
        "PermissionError: [Errno 13] Permission denied: '/nonexistent'",
        "cache that cannot be written",
    ),
    (
        "PermissionError: [Errno 13] Permission denied: '/shared/kimi/model-00003.safetensors'",
        "no right to a file",
    ),
    (
        "ImportError: /tmp/torchinductor_llm/x.so: failed to map segment from shared object",
        "folder without the right to execute",
    ),
    (
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 163840, "
        "Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
        "kernel too large for these cards",
    ),
    ("OSError: [Errno 28] No space left on device: '/root/x.cubin'", "no space on disk"),
    (
        "ValueError: EAGLE is not supported in attention backend aiter",
        "attention backend of the draft",
    ),
    (
        "ValueError: Currently FlashMLA only supports topk=1 for speculative decoding",
        "attention backend of the draft",
    ),
    (
        "ValueError: TRTLLM MLA backend is only supported on Blackwell GPUs (SM100). Please use a "
        "different backend.",
        "attention backend not for these cards",
    ),
    ("KeyError: 'midlayer.self_attn.qkv_proj.weight_packed'", "draft does not fit"),
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. port: 30507, useIpv6: false, code: -98, name: EADDRINUSE",
        "port in use",
    ),
    (
        "Exception: User-specified context_length (262144) is greater than the derived "
        "context_length (131072).",
        "context longer than the model's",
    ),
    ("RuntimeError: CUDA error: invalid device ordinal", "fewer cards than ranks"),
    ("RuntimeError: No CUDA GPUs are available", "no accelerator"),
    (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled "
        "cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.28.9",
        "NCCL",
    ),
]


@pytest.mark.parametrize(("raised", "name"), KNOWN)
def test_an_exception_is_its_cause_however_it_is_reported(raised, name):
    plain = f"{BEGIN}\n{POOL}\n{traceback(raised)}\n"
    assert find_cause(plain).name == name
    assert find_cause(f"{BEGIN}\n{POOL}\n{hit(' TP0', traceback(raised))}{SIGQUIT}").name == name
    by_capture = hit(" TP5", traceback(raised), traceback(captured(raised.partition(": ")[2])))
    at_capture = find_cause(f"{BEGIN}\n{POOL}\n{GRAPHS}\n{by_capture}{SIGQUIT}")
    wanted = "out of memory at graph capture" if name == "out of memory" else name
    assert at_capture.name == wanted
    assert at_capture.line == raised[:300]


@pytest.mark.parametrize(
    "inner",
    [
        "RuntimeError: the size of tensor a (64) must match the size of tensor b (128)",
        "AssertionError",
        "TypeError: rmsnorm() got an unexpected keyword argument 'enable_pdl'",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ],
)
def test_an_unknown_exception_has_no_cause_whatever_is_printed_around_it(inner):
    warnings = [
        logged(" TP1", "Overriding draft attention backend to triton."),
        logged(" TP1", "The memory capacity is unbalanced. Some GPUs may be occupied by other"),
        logged(" TP1", "Ignore import error when loading x: No module named 'vllm'"),
        "/srv/venv/torch/utils.py:12: UserWarning: nvcc not found, undefined symbol",
    ]
    wrapped = hit(" TP1", traceback(inner), traceback(captured(inner.partition(": ")[2])))
    later = hit(" TP0", traceback(KNOWN[0][0]), at="21:07:32")
    assert find_cause("\n".join([BEGIN, *warnings, wrapped, later, SIGQUIT])) is None


def test_the_rank_that_failed_first_counts():
    first = hit(" TP3", traceback("ModuleNotFoundError: No module named 'flashinfer.comm'"))
    gone = [
        hit(f" TP{rank}", traceback(raised))
        for rank, raised in enumerate(
            (
                "torch.distributed.DistBackendError: [0] is setting up NCCL communicator and "
                "retrieving ncclUniqueId from [0] via c10d key-value store: Connection reset",
                "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:41021",
                "torch.distributed.DistBackendError: NCCL error: remote process exited or there "
                "was a network error, ncclRemoteError",
            )
        )
    ]
    for order in ([first, *gone], [gone[0], first, *gone[1:]], [*gone, first]):
        assert find_cause("".join(order)).name == "missing kernel"
    own = hit(" TP6", traceback("RuntimeError: CUDA error: out of memory"))
    assert find_cause(first + own).name == "missing kernel"
    assert find_cause(own + first).name == "out of memory"


def test_a_rank_that_goes_on_has_not_failed():
    tried = "[2026-09-14 21:06:59 TP2] Failed to load the fused kernel: " + traceback(
        "ImportError: libfoo.so.1: cannot open shared object file: No such file"
    )
    on = logged(" TP2", "Load weight end. elapsed=61.02 s, avail mem=17.71 GB")
    failed = hit(" TP2", traceback("OSError: [Errno 28] No space left on device"))
    assert find_cause(f"{tried}\n{on}\n{failed}").name == "no space on disk"
    assert find_cause(f"{tried}\n{on}\n") is None
    ignored = "Exception ignored in: <function Pool.__del__ at 0x7f>\n" + traceback(KNOWN[9][0])
    assert find_cause(f"{ignored}\n{failed}").name == "no space on disk"


def test_what_a_library_printed_on_the_way_is_not_what_ended_the_start():
    printed = traceback("ModuleNotFoundError: No module named 'flash_attn'")
    on = logged(" TP7", "Load weight end. elapsed=61.02 s, avail mem=17.71 GB")
    failed = hit(" TP7", traceback("OSError: [Errno 28] No space left on device"))
    assert find_cause(f"{printed}\n{on}\n{failed}").name == "no space on disk"
    told = logged(" TP1", "ImportError: libfoo.so.1: cannot open shared object file: No such file")
    died = "RuntimeError: Rank 1 scheduler died during initialization (exit code: {}). If exit code"
    killed = [BEGIN, POOL, told, logged(" TP1", "Using sampling backend pytorch")]
    for code, name in ((-9, "killed from outside"), (1, None)):
        cause = find_cause("\n".join([*killed, traceback(died.format(code))]))
        assert getattr(cause, "name", None) == name


def test_a_log_that_begins_in_the_middle_tells_what_is_there():
    whole = hit(
        " TP4",
        traceback("RuntimeError: No supported CUDA architectures found for major versions [9]."),
        traceback(captured("No supported CUDA architectures found for major versions [9].")),
    ).splitlines()
    names = {getattr(find_cause("\n".join(whole[cut:])), "name", None) for cut in range(len(whole))}
    assert names == {"missing kernel", None}
    outer = f"{DURING}\n\n{traceback('RuntimeError: CUDA error: out of memory')}"
    assert find_cause(outer) is None  # what came before it was another exception
    assert find_cause("e)\n    ^^^\n" + KNOWN[0][0]).name == "out of memory"


REMOTE = 'multiprocessing.pool.RemoteTraceback: \n"""\n{inner}\n"""\n\n' + DIRECT + "\n\n{outer}"
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/srv/venv/bin/serve.py", line 8, in <module>
  |     main()
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/srv/venv/lib/python3.12/site-packages/sglang/x.py", line 9, in run
    |     load()
    | {raised}
    +------------------------------------
"""
ELASTIC = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
sglang.launch_server FAILED
Root Cause (first observed failure):
[0]: rank : 3 (local_rank: 3) exitcode : 1 (pid: 4711) error_file: <N/A>
"""


@pytest.mark.parametrize(("raised", "name"), KNOWN[6:30:4])
def test_what_only_carries_an_exception_is_never_the_cause(raised, name):
    one = traceback(raised)
    rank = (
        "RuntimeError: Rank 3 scheduler died during initialization (exit code: 1). If exit code is "
    )
    forms = [
        REMOTE.format(inner=one, outer=one),
        GROUP.format(raised=raised),
        f"{one}\n{traceback(ELASTIC)}",
        f"Process SpawnProcess-4:\n{one}\n{traceback(rank + '-9 (SIGKILL), a common')}",
        f"{one}\n\n{DIRECT}\n\n{traceback('RuntimeError: worker 3 could not be made')}",
        "ray.exceptions.RayTaskError(RuntimeError): ray::Scheduler() (pid=88, ip=10.1.1.2)\n"
        + one.partition("\n")[2],
        f"torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n{raised}",
        traceback(f"torch._inductor.exc.InductorError: {raised}"),
    ]
    for form in forms:
        assert find_cause(form).name == name, form


NINJA = """RuntimeError: Ninja build failed. Ninja output:
ninja: Entering directory `/root/.cache/flashinfer/0.6.7/120a/cached_ops'
[1/3] /usr/local/cuda-12.4/bin/nvcc -gencode=arch=compute_120a -c /x/norm.cu -o norm.cuda.o
FAILED: norm.cuda.o
{said}
ninja: build stopped: subcommand failed."""


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120a'", "missing kernel"),
        ("sh: 1: /usr/local/cuda-12.4/bin/nvcc: not found", "missing kernel"),
        ("/x/norm.cu:3:10: fatal error: cuda_fp8.h: No such file or directory", "missing kernel"),
        (
            "/x/bind.cc:1:10: fatal error: Python.h: No such file or directory",
            "headers or libraries for compiling are missing",
        ),
        (
            "/usr/bin/ld: cannot find -lcudart: No such file or directory",
            "headers or libraries for compiling are missing",
        ),
        ("gcc: fatal error: cannot execute 'cc1plus': execvp: No such file", "no C compiler"),
        ('x.cu(9): error: expected a ";"', None),
    ],
)
def test_a_build_that_failed_is_explained_by_what_its_compiler_said(said, name):
    ended = (
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1."
    )
    log = hit(" TP0", traceback(ended), traceback(NINJA.format(said=said)), link=DIRECT)
    assert getattr(find_cause(log), "name", None) == name
    printed = f"{said}\n{hit(' TP0', traceback(ended))}"
    if name not in (None, "no C compiler"):
        assert find_cause(printed).name == name


def test_memory_that_nccl_lacks_is_told_by_nccl_alone():
    nccl = hit(" TP1", traceback(KNOWN[-1][0]))
    full = (
        "node3:97:812 [1] misc/shmutils.cc:87 NCCL WARN Call to posix_fallocate failed : No space "
    )
    assert find_cause(nccl).name == "NCCL"
    assert find_cause(f"{full}left on device\n{nccl}").name == "no space on disk"
    little = "node3:97:812 [1] alloc.h:228 NCCL WARN Failed to CUDA malloc 4194304 bytes"
    assert find_cause(f"{little}\n{nccl}").name == "no memory for NCCL"


@pytest.mark.parametrize(
    ("before", "name", "fix"),
    [
        ([BEGIN], "out of memory", "fewer weights a card"),
        ([BEGIN, POOL, BEGIN], "out of memory", "lower --mem-fraction-static"),
        ([BEGIN, POOL, GRAPHS], "out of memory at graph capture", "--cuda-graph-max-bs"),
        (
            [BEGIN, POOL, GRAPHS, GRAPHS.replace("begin", "end")],
            "out of memory",
            "lower --mem-fraction-static",
        ),
        (
            [POOL, logged(" TP0", "Capture draft extend cuda graph begin.")],
            "out of memory at graph capture",
            "--cuda-graph-max-bs",
        ),
    ],
)
def test_what_to_do_without_memory_depends_on_when_it_ran_out(before, name, fix):
    for raised, known in KNOWN[:3]:
        assert known == "out of memory"
        cause = find_cause("\n".join([*before, hit(" TP0", traceback(raised))]))
        assert (cause.name, fix in cause.fix) == (name, True)


def test_more_memory_is_advised_where_the_weights_leave_none_and_never_less():
    for (raised, _), least in zip(KNOWN[3:6], ["", " above 0.62", " above 0.713"], strict=True):
        fix = find_cause(hit(" TP0", traceback(raised))).fix
        assert fix.startswith(f"raise --mem-fraction-static{least}, alike")
        assert "fewer weights a card" in fix
        assert not {"lower", "reduce", "smaller"} & set(fix.replace("-", " ").split())


def launched(*words: str, **env: str) -> LaunchSpec:
    """A launch with these arguments and variables."""
    return LaunchSpec(("/srv/venv/bin/python", "-m", "sglang.launch_server", *words), env, "/")


@pytest.mark.parametrize(
    ("raised", "launch", "left_out", "kept"),
    [
        (
            "ValueError: EAGLE is not supported in decode attention backend torch_native",
            launched("--speculative-draft-attention-backend", "fa4"),
            "--speculative-draft-attention-backend",
            "triton",
        ),
        (
            "ValueError: EAGLE is not supported in decode attention backend torch_native",
            launched("--attention-backend=triton"),
            "triton",
            "--speculative-draft-attention-backend",
        ),
        (
            "KeyError: 'midlayer.mlp.down_proj.weight_scale'",
            launched("--speculative-draft-model-quantization", "unquant"),
            "unquant",
            "made for this target",
        ),
        (
            "RuntimeError: NCCL error in: x.cpp:1, unhandled system error",
            launched(NCCL_P2P_DISABLE="1"),
            "NCCL_P2P_DISABLE",
            "nccl.conf",
        ),
        (
            "RuntimeError: Failed to find C compiler.",
            launched(CC="/usr/bin/none"),
            "server.env.CC",
            "gcc",
        ),
        (
            "ValueError: requires you to execute it: pass the argument `trust_remote_code=True`",
            launched("--trust-remote-code"),
            "--trust-remote-code",
            "set already",
        ),
    ],
)
def test_advice_that_the_launch_follows_is_not_given(raised, launch, left_out, kept):
    log = hit(" TP0", traceback(raised))
    assert left_out in find_cause(log).fix
    assert left_out in find_cause(log, launched("--speculative-num-steps", "3", OTHER="1")).fix
    fix = find_cause(log, launch).fix
    assert left_out not in fix and kept in fix
    assert kept in SGLang().explain_log(log, launch)


def test_an_assertion_without_words_is_known_by_its_line_of_code():
    code = "assert not get_global_server_args().disable_chunked_prefix_cache"
    log = hit(" TP0", traceback("AssertionError", "srt/models/deepseek_v2", code))
    both = launched("--disable-chunked-prefix-cache", SGLANG_ENABLE_SPEC_V2="1")
    assert "--disable-chunked-prefix-cache" in find_cause(log).fix
    assert find_cause(log, both).fix == "another release"


def test_a_dump_of_all_threads_is_no_traceback():
    dump = (
        "Fatal Python error: Segmentation fault\n\nThread 0x00007f2 (most recent call first):\n"
        '  File "/x/triton/build.py", line 33 in _build\n  File "/x/a.py", line 2 in run\n'
    )
    assert find_cause(dump) is None
    assert find_cause(dump.replace("Segmentation fault", "Bus error")).name == "no space on disk"
    assert find_cause(dump + traceback(KNOWN[7][0])).name == "missing kernel"


# --- any log -------------------------------------------------------------------------------

NOISE = [
    "Overriding draft attention backend to triton.",
    "Ignore import error when loading sglang.srt.models.midashenglm: No module named 'vllm'",
    "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. local=94.1",
    "/x/torch/cuda/__init__.py:61: FutureWarning: pynvml is deprecated, undefined symbol",
    "Attention backend not explicitly specified. Use triton backend by default.",
    "max_running_requests is lowered because of the draft; try to increase --mem-fraction-static",
    "NCCL version 2.28.9+cuda13.0",
    "CUDA out of memory would follow a larger --cuda-graph-max-bs",
    "Loading safetensors checkpoint shards:  41% Completed | 26/64 [00:31<00:44,  1.17s/it]",
    "DeepGEMM is disabled: nvcc not found on this host",
]
PEERS = [
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by "
    "peer [10.0.0.4]:9471",
    "EOFError",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "torch.distributed.DistBackendError: NCCL error: ncclRemoteError: A call failed possibly due "
    "to a network error or a remote process exiting prematurely.",
    "RuntimeError: Rank 0 scheduler died during initialization (exit code: 1). If exit code is -9 "
    "(SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.",
    "subprocess.CalledProcessError: Command '['/usr/bin/ninja']' returned non-zero exit status 1.",
]
WRAPPERS: list[Callable[[str], str]] = [
    captured,
    lambda inner: captured(inner, "prefill CUDA"),
    lambda inner: captured(inner, "frozen-KV MTP cuda"),
    lambda inner: f"torch._inductor.exc.InductorError: RuntimeError: {inner}",
    lambda inner: f"RuntimeError: Engine core could not be initialized ({inner})",
    lambda inner: "RuntimeError: Initialization failed. Please see the error messages above.",
    lambda inner: "multiprocessing.context.ProcessError: worker",
]


def by_line(prefix: Callable[[int], str]) -> Callable[[str, int], list[str]]:
    return lambda text, rank: [prefix(rank) + line for line in text.splitlines()]


STYLES: list[Callable[[str, int], list[str]]] = [
    lambda text, rank: hit(f" TP{rank}", text).splitlines(),
    by_line(lambda rank: f"[2026-09-14 21:07:31 TP{rank}] "),
    by_line(lambda rank: f"[2026-09-14 21:07:31 DP1 TP{rank} EP{rank}] "),
    by_line(lambda rank: f"[rank{rank}]: "),
    by_line(lambda rank: f"(Scheduler pid={4100 + rank}, ip=10.0.0.{rank}) "),
    by_line(lambda rank: f"(EngineCore_DP{rank} pid=77{rank}) ERROR 09-14 21:07:31 [core.py:868] "),
]
CARRIERS: list[Callable[[str], str]] = [
    str,
    lambda line: f"2026-09-14T21:07:31.104522+0000 gpu01 python3[2211]: {line}",
    lambda line: f"Sep 14 21:07:31 gpu01 sglang-kimi[2211]: {line}",
    lambda line: f"2026-09-14T21:07:31.104522331Z stderr F {line}",
    lambda line: f"sglang-kimi-1  | {line}",
    lambda line: f"\x1b[31m{line}\x1b[0m",
]


def taking_turns(chosen: random.Random, records: Sequence[list[str]]) -> list[str]:
    """Lines of several writers mixed, each writer's in its order; the first begins."""
    left = [list(record) for record in records if record]
    mixed = [left[0].pop(0)]
    while any(left):
        mixed.append(chosen.choice([record for record in left if record]).pop(0))
    return mixed


@st.composite
def failures(draw):
    """A log of a start that failed for a known reason, that reason, and whether it is whole."""
    raised, name = draw(st.sampled_from(KNOWN))
    parts, inner = [traceback(raised)], raised.partition(": ")[2]
    for wrap in draw(st.lists(st.sampled_from(WRAPPERS), max_size=3)):
        parts.append(traceback(wrap(inner)))
    link = draw(st.sampled_from([DURING, DIRECT]))
    style, carrier = draw(st.sampled_from(STYLES)), draw(st.sampled_from(CARRIERS))
    peers = draw(st.lists(st.sampled_from(PEERS), max_size=3))
    records = [style(f"\n\n{link}\n\n".join(parts), 3)]
    records += [style(traceback(peer), rank) for rank, peer in enumerate(peers, 4)]
    chosen = random.Random(draw(st.integers(0, 1 << 16)))
    is_signed = style is not STYLES[0]
    lines = taking_turns(chosen, records) if is_signed else [x for one in records for x in one]
    noise = [
        logged(f" TP{draw(st.integers(0, 7))}", text)
        for text in draw(st.lists(st.sampled_from(NOISE), max_size=5))
    ]
    lines = [BEGIN, POOL, *noise, *lines, SIGQUIT]
    cut = draw(st.one_of(st.just(0), st.integers(0, len(lines))))
    return "\n".join(map(carrier, lines[cut:])), name, cut <= 2 + len(noise)


@settings(max_examples=400, deadline=None)
@given(failures())
def test_a_known_exception_is_the_cause_or_nothing_is(failure):
    log, name, is_whole = failure
    cause = find_cause(log)
    found = cause.name.removesuffix(" at graph capture") if cause else None
    assert found == name if is_whole else found in (name, None)


def row_of(known: Known) -> str:
    """A cause as the document lists it."""
    when = " ".join(filter(None, (WHEN[known.phase], known.releases)))
    advice = "; or ".join(one.text for one in known.advice).replace("{", "").replace("}", "")
    return f"| {known.name} | {when} | {advice} |"


WHEN = {"": "", "graphs": "while graphs are captured", "weights": "while the weights are loaded"}


def test_the_document_lists_every_cause():
    text = (Path(__file__).parents[3] / "docs" / "sglang.md").read_text()
    assert [row_of(known) for known in CAUSES] == [
        line for line in text.splitlines() if line in {row_of(known) for known in CAUSES}
    ]


def test_no_cause_hides_behind_another():
    seen = set()
    for known in CAUSES:
        assert known.raised or known.printed or known.source
        patterns = (known.name, known.phase, known.raised)
        assert known.advice and patterns not in seen
        seen.add(patterns)
