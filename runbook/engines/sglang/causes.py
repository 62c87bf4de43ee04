"""Why SGLang does not start: the texts that say so, the cause in words, and what to do. Data.

Read in the sources of SGLang 0.5.10, 0.5.12.post1, 0.5.15 and 0.5.23, and of the torch, Triton,
FlashInfer and NCCL that they pin, and in public reports. ``docs/sglang.md`` lists the table; a test
holds the two together. The first entry that matches a text is its cause, so the particular stands
before the general.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Names of causes that others are told from by what NCCL itself printed.
NCCL, OUT_OF_MEMORY = "NCCL", "out of memory"
AT_CAPTURE = "out of memory at graph capture"


@dataclass(frozen=True)
class Advice:
    """What to do. ``{name}`` is filled from the text that matched; advice with a name that the text
    does not have is left out. ``unless``: what a launch has that follows it already, all of
    ``--option``, ``--option=value``, ``VARIABLE`` or ``VARIABLE=value``. ``is_spare``: given only
    where none before it is."""

    text: str
    unless: tuple[str, ...] = ()
    is_spare: bool = False


@dataclass(frozen=True)
class Known:
    """One cause.

    ``raised``: pattern over an exception as it is printed (type, colon, first line of the message)
    and over what another one wraps. ``source``: pattern over the frame it came from. ``printed``:
    pattern over lines that are no exception. ``phase``: the part of a start it belongs to, empty
    for any. ``refines``: causes of which a printed line tells the particulars. ``follows``: what
    is left when another process ended first; it counts only where nothing else does. ``releases``:
    of SGLang, where only some print it.
    """

    name: str
    advice: tuple[Advice, ...]
    raised: str = ""
    source: str = ""
    printed: str = ""
    phase: str = ""
    refines: tuple[str, ...] = ()
    follows: bool = False
    releases: str = ""


_ALIKE = "alike in all configurations"
_FEWER = "fewer weights a card (a larger --tensor-parallel-size, or stronger quantisation)"
_FREE = Advice("see that nothing else holds the cards (nvidia-smi)")
_KERNELS = (
    "install the kernels that belong to this release (sglang-kernel, flashinfer, both for this "
    "CUDA and these cards)"
)
_NVCC = Advice(
    "put ninja and the nvcc of torch's CUDA on server.env.PATH, and CUDA_HOME, where it is set, at "
    "that toolkit"
)
_OOM = (
    r"OutOfMemoryError|(?i:CUDA out of memory|(?:CUDA|CUDA driver|HIP) error: out of memory)"
    r"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED"
)
_NCCL_MEMORY = r"Failed to CUDA (?:host )?(?:calloc|malloc)"
_FULL = r"No space left on device|Disk quota exceeded"
_CACHE = (
    r"[^']*(?:\.cache|\.triton|\.nv|flashinfer|torchinductor|torch_extensions|deep_gemm"
    r"|/nonexistent)[^']*"
)
_GRAPHS = "graphs"
_WEIGHTS = "weights"

CAUSES: tuple[Known, ...] = (
    Known(
        "unknown option",
        (Advice("correct server.args or the configuration's args; options differ by release"),),
        printed=r"error: unrecognized arguments|error: argument --|error: ambiguous option",
    ),
    Known(
        "refused combination",
        (Advice("topk 1 with SGLANG_ENABLE_SPEC_V2, or the variable off: see the stack's checks"),),
        raised=r"Spec v2 currently only supports topk = 1",
        releases="0.5.7 to 0.5.10.post1",
    ),
    Known(
        "target loaded as its own draft",
        (Advice("name the draft in server.draft: without one the target is loaded twice"),),
        raised=r"has no attribute '(?:set_embed\w*|hot_token_id)'|attribute 'hot_token_id'",
    ),
    Known(
        "attention backend of the draft",
        (
            Advice(
                "set --speculative-draft-attention-backend",
                ("--speculative-draft-attention-backend",),
            ),
            Advice("--attention-backend triton", ("--attention-backend=triton",)),
        ),
        raised=r"EAGLE is not supported in [\w ]*attention backend"
        r"|MLA only supports topk ?= ?1|trtllm_mha backend only supports topk ?= ?1"
        r"|(?i:draft[^\n]*attention backend|attention backend[^\n]*\bdraft)",
    ),
    Known(
        "attention backend not for these cards",
        (Advice("another --attention-backend: on SM120 triton", ("--attention-backend=triton",)),),
        raised=r"(?:backend|decode|prefill) is only supported on (?:Hopper|Blackwell)"
        r"|FlashAttention v?[34] Backend requires|FlashAttention only supports",
    ),
    Known(
        "a long prompt under EAGLE-3",
        (
            Advice(
                "reported to help: --disable-chunked-prefix-cache with SGLANG_ENABLE_SPEC_V2=True, "
                "for all configurations alike",
                ("--disable-chunked-prefix-cache", "SGLANG_ENABLE_SPEC_V2=true"),
            ),
            Advice("another release"),
        ),
        source=r"assert not [^\n]*disable_chunked_prefix_cache",
        printed=r"^\s*assert not [^\n]*disable_chunked_prefix_cache",
    ),
    Known(
        "draft does not fit",
        (
            Advice("a draft made for this target"),
            Advice(
                "a draft that is not quantised needs "
                "--speculative-draft-model-quantization unquant",
                ("--speculative-draft-model-quantization=unquant",),
            ),
        ),
        raised=r"Cannot find the config file for|mat1 and mat2 shapes cannot be multiplied"
        r"|(?:size|shape) mismatch[^\n]*(?:draft|eagle|midlayer|fc\.weight)"
        r"|KeyError:[^\n]*(?:eagle|midlayer|draft|d2t|weight_packed|weight_scale)"
        r"|(?:Eagle|Draft)\w* (?:is|are) not supported",
    ),
    Known(
        "no C compiler",
        (
            Advice("install gcc (apt install gcc) and have its folder on server.env.PATH"),
            Advice("name it in server.env.CC", ("CC",)),
        ),
        raised=r"Failed to find C(?:\+\+)? compiler|No working C\+\+ compiler found"
        r"|InvalidCxxCompiler"
        r"|No such file or directory: '(?:[^'\n]*/)?(?:cc|c\+\+|gcc|g\+\+|clang)(?:-\d+)?'"
        r"|gcc: fatal error: cannot execute",
        printed=r"(?:sh|env|bash)[^\n]*: (?:cc|c\+\+|gcc|g\+\+): (?:command )?not found"
        r"|host compiler[^\n]*not found|nvcc fatal\s*: Failed to preprocess host compiler",
    ),
    Known(
        "headers or libraries for compiling are missing",
        (
            Advice("install what {file} belongs to (Python.h: python3-dev of the interpreter)"),
            Advice("install what lib{library} belongs to, or LIBRARY_PATH in server.env"),
        ),
        raised=r"fatal error: (?P<file>Python\.h|(?!cuda)[\w./+-]+\.h(?:pp)?): No such file"
        r"|libcuda\.so cannot found|cannot find -l(?P<library>\w+)",
        printed=r"fatal error: (?P<file>Python\.h|(?!cuda|cu)[\w./+-]+\.h(?:pp)?): No such file"
        r"|cannot find -l(?P<library>\w+)",
    ),
    Known(
        "missing kernel",
        (Advice(_KERNELS), _NVCC),
        source=r"assert cuda_home is not None",
        raised=r"No module named '(?:sgl_kernel|sglang_kernel|flashinfer|vllm|deep_gemm|cutlass"
        r"|flash_attn|flash_mla)[\w.]*'"
        r"|no kernel image is available|undefined symbol|Could not find nvcc"
        r"|nvcc[^\n]*not found|Unsupported gpu architecture|FlashInfer requires GPUs"
        r"|No supported CUDA architectures found|named symbol not found"
        r"|Could not load any common_ops library|ptxas fatal|[Uu]nsupported architecture"
        r"|fatal error: cu[\w./]+: No such file|Value 'sm_\w+' is not defined"
        r"|No such file or directory: '(?:[^'\n]*/)?(?:nvcc|ninja|ptxas)'"
        r"|SGLang only supports sm75|invalid device function|[Nn]inja is required"
        r"|CUDA_HOME environment variable is not set",
        printed=r"^(?:[^\n]*: )?(?:ptxas|nvcc) fatal|^[^\n]*fatal error: cu[\w./]+: No such file"
        r"|^No such file or directory: '(?:[^'\n]*/)?(?:nvcc|ninja|ptxas)'"
        r"|(?:sh|env|bash)[^\n]*(?:nvcc|ninja): (?:command )?not found"
        r"|CUDA error: no kernel image is available",
    ),
    Known(
        "folder without the right to execute",
        (
            Advice("mount it without noexec, or TMPDIR, HOME or TRITON_CACHE_DIR elsewhere"),
            Advice("no binding to NUMA nodes by SGLang (SGLANG_NUMA_BIND_V2=0)"),
        ),
        raised=r"failed to map segment from shared object"
        r"|Permission denied: '/(?:tmp|var/tmp|dev/shm|run)/[^']*\.(?:sh|so)'",
        printed=r"sglang_temp_file\w*\.sh: Permission denied",
    ),
    Known(
        "shared library not found",
        (
            Advice(
                "LD_LIBRARY_PATH in server.env, with the folder that holds {library}: a unit has "
                "nothing of a shell's"
            ),
            Advice("the package that brings it, for this CUDA"),
        ),
        raised=r"(?P<library>[\w+.-]+\.so[\w.]*): cannot open shared object file"
        r"|Could not load library (?P<library2>lib[\w.]+)"
        r"|Unable to (?:load|find) (?:lib)?cu\w+\.so",
        printed=r"error while loading shared libraries: (?P<library>[\w+.-]+\.so[\w.]*): cannot",
    ),
    Known(
        "shared library too old",
        (Advice("a newer one first on LD_LIBRARY_PATH in server.env, or packages of one build"),),
        raised=r"version `[\w.]+' not found",
        printed=r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found",
    ),
    Known(
        "cache that cannot be written",
        (
            Advice("HOME in server.env: a folder that the service's user may write"),
            Advice("TRITON_CACHE_DIR, FLASHINFER_WORKSPACE_BASE and TORCHINDUCTOR_CACHE_DIR there"),
        ),
        raised=rf"(?:Permission denied|Read-only file system|No such file or directory): '{_CACHE}'"
        r"|Could not determine home directory|could not create cache",
    ),
    Known(
        "no right to a file",
        (Advice("the service's user (server.user) needs the right to {path}"),),
        raised=r"PermissionError: \[Errno 13\] [^\n]*: '(?P<path>[^']+)'",
    ),
    Known(
        "port in use",
        (Advice("find who holds it (ss -ltnp); a leftover scheduler holds GPU memory as well"),),
        raised=r"port at \d+ is not available|(?i:address already in use)|EADDRINUSE"
        r"|port \d+ is already in use",
        printed=r"\[Errno 98\]|error while attempting to bind on address",
    ),
    Known(
        "kernel too large for these cards",
        (
            Advice(
                "another attention or MoE backend in server.args: this one is for cards with more "
                "shared memory"
            ),
        ),
        raised=r"out of resource: shared memory|OutOfResources: [^\n]*shared memory",
    ),
    Known(
        "no space on disk",
        (Advice("make room in /dev/shm, /tmp and the compile caches (df -h)"),),
        raised=_FULL,
        printed=rf"{_FULL}|Fatal Python error: Bus error|^Bus error",
        refines=(NCCL,),
    ),
    Known(
        "model path",
        (
            Advice(
                "correct server.model or server.draft; a file under 1 KB is a pointer, not weights"
            ),
        ),
        raised=r"Repo id must be|is not a local folder|does not appear to have a file named"
        r"|Can't load (?:the )?(?:config|tokenizer|image)|Cannot find any (?:of )?\w* ?weights"
        r"|No such file or directory: '[^'\n]*(?:safetensors|config\.json|tokenizer)"
        r"|Incorrect path_or_model_id|Error while deserializing header|Unrecognized model in",
    ),
    Known(
        "model of another release",
        (Advice("a release of SGLang, and of transformers, that knows this model"),),
        raised=r"Model architectures? [^\n]* (?:is|are) not supported|does not recognize this arch",
    ),
    Known(
        "code of the model is not trusted",
        (Advice("--trust-remote-code in server.args", ("--trust-remote-code",)),),
        raised=r"contains custom code which must be executed|trust_remote_code=True",
    ),
    Known(
        "package of another version",
        (Advice("install what this release of SGLang pins (check sglang_packages)"),),
        raised=r"is installed with version [^\n]*less than|Please install the appropriate version"
        r"|cannot import name '\w+' from '(?:transformers|sgl_kernel|flashinfer|torch|xgrammar)",
    ),
    Known(
        "context longer than the model's",
        (Advice("a shorter --context-length in server.args"),),
        raised=r"context_length[^\n]* is greater than the derived",
    ),
    Known(
        "sizes that parallelism does not divide",
        (Advice("another --tensor-parallel-size (or --ep-size): one that divides what it names"),),
        raised=r"(?:must be|is not|not) divisible by[^\n]*(?:tp|ep|tensor|moe|parallel)"
        r"|(?:tp|moe_tp)_size[^\n]*must be divisible",
    ),
    Known(
        "weights leave no room for the KV cache",
        (
            Advice(
                f"raise --mem-fraction-static above {{least}}, {_ALIKE} (the least that can work; "
                "graphs and activations need what is left)"
            ),
            Advice(f"raise --mem-fraction-static above {{present}}, {_ALIKE}"),
            Advice(f"raise --mem-fraction-static, {_ALIKE}", is_spare=True),
            Advice(_FEWER),
        ),
        raised=r"Loaded weights leave no GPU memory for the KV cache"
        r"(?:[^\n]*?[Rr]aise --mem-fraction-static above (?P<least>0\.\d+))?"
        r"|Not enough memory\. Please try to increase --mem-fraction-static"
        r"(?:[^\n]*?mem_fraction_static=(?P<present>0\.\d+))?",
        releases="the least is named from 0.5.15 on",
    ),
    Known(
        OUT_OF_MEMORY,
        (_FREE, Advice("SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0 only where they may differ")),
        raised=r"memory capacity is unbalanced",
    ),
    Known(
        AT_CAPTURE,
        (
            Advice(
                f"reduce --cuda-graph-max-bs or --mem-fraction-static, the latter {_ALIKE}",
            ),
        ),
        raised=_OOM,
        phase=_GRAPHS,
    ),
    Known(
        OUT_OF_MEMORY,
        (
            _FREE,
            Advice(f"{_FEWER}: --mem-fraction-static shares out what the weights leave"),
        ),
        raised=_OOM,
        phase=_WEIGHTS,
    ),
    Known(
        "no memory for NCCL",
        (
            Advice(
                f"lower --mem-fraction-static a little (0.95 to 0.93), {_ALIKE}: NCCL takes its "
                "buffers beside it, and about 10 MB a card more with a graph file"
            ),
        ),
        raised=_NCCL_MEMORY,
        printed=_NCCL_MEMORY,
        refines=(NCCL, OUT_OF_MEMORY, AT_CAPTURE),
    ),
    Known(
        OUT_OF_MEMORY,
        (
            _FREE,
            Advice(
                "lower --mem-fraction-static, --max-running-requests or --context-length in "
                "server.args"
            ),
        ),
        raised=_OOM,
        printed=r"oom-kill|Out of memory: Killed process",
    ),
    Known(
        "fewer cards than ranks",
        (Advice("--tensor-parallel-size as CUDA_VISIBLE_DEVICES and nvidia-smi -L show cards"),),
        raised=r"invalid device ordinal|device >= 0 && device < num_gpus",
    ),
    Known(
        "no accelerator",
        (Advice("see nvidia-smi as the service's user, and the driver against torch's build"),),
        raised=r"No accelerator \(CUDA|NVIDIA driver on your system is too old"
        r"|no CUDA-capable device|CUDA driver version is insufficient|No CUDA GPUs are available"
        r"|Found no NVIDIA driver|No CUDA devices found",
    ),
    Known(
        NCCL,
        (
            Advice("see NCCL_* in the environment, /etc/nccl.conf and the graph file"),
            Advice("try NCCL_P2P_DISABLE=1", ("NCCL_P2P_DISABLE=1",)),
        ),
        raised=r"NCCL error[^\n]*(?:unhandled (?:system|cuda)|internal|invalid)"
        r"|ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclInvalidUsage"
        r"|unhandled (?:system|cuda) error",
        printed=r"unhandled (?:system|cuda) error",
    ),
    Known(
        NCCL,
        (
            Advice("see which rank is silent, and NCCL_* in the environment"),
            Advice("try NCCL_P2P_DISABLE=1", ("NCCL_P2P_DISABLE=1",)),
        ),
        raised=r"Watchdog caught collective operation timeout|DistStoreError: Timed out",
        printed=r"Watchdog caught collective operation timeout",
        follows=True,
    ),
    Known(
        "killed from outside",
        (Advice("see whether the kernel did it for want of memory: journalctl -k -g oom"),),
        raised=r"exit code:? -9\b|exitcode\s*: -9\b",
        printed=r"terminated with -9\b|exit code:? -9\b|exitcode\s*: -9\b",
        follows=True,
    ),
)

#: Exceptions that carry another one: its text stands behind what matches, and in their message.
WRAPS = re.compile(
    r"(?:^|: )Capture (?:[\w-]+ )*graph failed:"
    r"|InductorError|CppCompileError|BackendCompilerFailed|TorchRuntimeError|SubprocException"
    r"|CompilationError|LoweringException|PTXASError|RayTaskError|raised:$"
    r"|Ninja build failed|Error building extension|Error compiling objects for extension"
    r"|Could not load any common_ops"
)

#: Exceptions that say no more than that another process, or a command, ended.
FOLLOWS = re.compile(
    r"Rank \d+ scheduler (?:died|is dead)|[Ss]cheduler (?:\w+ )?(?:died|is dead|terminated)"
    r"|RemoteTraceback|ChildFailedError|ExceptionGroup|ActorDiedError|ProcessRaisedException"
    r"|ProcessExitedException|CalledProcessError|BrokenProcessPool|Broken process pool"
    r"|Initialization failed\. Please see|could finish the model loading, but"
    r"|(?i:connection (?:closed|reset|refused)|closed by peer|broken pipe|remote process exited)"
    r"|EOFError|BrokenPipeError|Connection(?:Reset|Refused|Aborted)Error|ncclRemoteError"
    r"|Watchdog caught|DistStoreError: Timed out|Socket Timeout|ncclUniqueId|communicator was abort"
    r"|SIGTERM|SIGQUIT|KeyboardInterrupt|SystemExit|CancelledError|ProcessLookupError|ZMQError"
)

#: What a message advises is not what happened.
HINTS = re.compile(r"Possible solutions:|Open an issue on GitHub|^\d+\. (?:set|disable) ")

#: Leads of exceptions that a process survives by its own word.
HARMLESS = re.compile(
    r"(?i:exception ignored in|\bignor(?:e|ed|ing)\b|fall(?:ing|s)?[ -]?back|warning\b|\bskip"
    r"|\bretry|\boptional)"
)
