"""Why llama.cpp's server did not start, by its log: what the launcher refuses, and what the native
code prints. Read in serve_llamacpp.py and in llama.cpp of the wheel that is pinned. Pure.
"""

from __future__ import annotations

import re

_LINE_CHARACTERS = 300
_FREE = "see what else holds memory (free -h, nvidia-smi); or a smaller model, or fewer slots"

#: Pattern over a line, the cause, what to do. The first entry that a log holds is the cause.
CAUSES = (
    (
        r"port \d+ on \S+ cannot be taken: Permission denied",
        "port without the right to it",
        "another server.port, 1024 or above",
    ),
    (
        r"port \d+ on \S+ cannot be taken: Address already in use|couldn't bind.*server socket",
        "port in use",
        "find who holds it (ss -ltnp), or another server.port",
    ),
    (
        r"port \d+ on \S+ cannot be taken: ",
        "address that cannot be taken",
        "correct server.address: an address of the host (ip -brief address)",
    ),
    (
        r"the model .+ cannot be read: Permission denied",
        "no right to the model",
        "the service's user (server.user) needs the right to read it",
    ),
    (
        r"the model .+ cannot be read: |failed to open GGUF file|No such file or directory.*\.gguf",
        "model path",
        "correct server.model or server.draft",
    ),
    (
        r"the model .+ is not a GGUF file|invalid magic characters|failed to read header"
        r"|data is not within the file bounds|file bounds, model is corrupted",
        "model file is broken",
        "copy or convert it again: its size and SHA-256 tell whether it is whole",
    ),
    (
        r"unknown model architecture|unknown pre-tokenizer type|missing tensor|wrong number of"
        r" tensors",
        "model of another release",
        "a release of xllamacpp that knows this model, or the model converted for this one",
    ),
    (
        r"oom-kill|Out of memory: Killed process|std::bad_alloc|cudaMalloc failed: out of memory"
        r"|CUDA error: out of memory|failed to allocate (?:\w+ )*(?:buffer|memory)"
        r"|[Cc]annot allocate memory|OutOfDeviceMemory",
        "out of memory",
        f"{_FREE} and a shorter context (--parallel, --ctx-per-slot)",
    ),
    (
        r"No module named 'xllamacpp'",
        "xllamacpp is not installed",
        "install it for server.interpreter, or leave that empty: then the runbook's own is taken",
    ),
    (
        r"(?P<library>lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "shared library not found",
        "install the package that brings it, or LD_LIBRARY_PATH in server.env",
    ),
    (
        r"the credential \S+ (?:cannot be read|is empty)|to read the credential",
        "no API key",
        "set server.api_key.file to a file that holds the key alone",
    ),
)


def find_cause(log: str) -> tuple[str, str, str] | None:
    """The cause, the line that says so, and what to do; ``None`` where nothing known is said."""
    lines = [line.strip() for line in log.splitlines()]
    for pattern, name, fix in CAUSES:
        found = next((line for line in lines if re.search(pattern, line)), None)
        if found is not None:
            return name, found[:_LINE_CHARACTERS], fix
    return None
