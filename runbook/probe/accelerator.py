"""What the serving interpreter finds of torch, NCCL and the model's files, as one line of JSON.

Run as ``serving.py`` is, with OPTIONS as JSON: ``torch`` (import it and tell), ``files`` (paths of
models). The line is ``{"probe": "accelerator", "facts": {...}, "reasons": {...}}``; a fact that
cannot be read is ``null`` and has a reason; nothing raises. Standard library alone, Python 3.8 or
newer, one file.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import pwd
import re
import struct
import subprocess
import sys
from importlib import metadata
from typing import Any, Callable

IMPORT_S = 180
LFS = b"version https://git-lfs"
#: The ends of files of weights; the first kind that is there is the one that is loaded.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
INDEX = ".index.json"
MOST_SHARDS = 9999
NCCL_PACKAGES = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib")
CONFIG_KEYS = (
    "architectures",
    "model_type",
    "hidden_size",
    "target_hidden_size",
    "vocab_size",
    "draft_vocab_size",
    "max_position_embeddings",
    "kv_lora_rank",
)

#: Run in a child: importing torch takes seconds and stays in memory.
ASK_TORCH = """
import json, torch
arch = getattr(torch._C, "_cuda_getArchFlags", lambda: "")() or ""
nccl = torch.cuda.nccl.version() if torch.version.cuda else None
maps = open("/proc/self/maps").read().split()
print("\\n" + json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "arch_list": arch.split(),
    "nccl": ".".join(map(str, nccl)) if isinstance(nccl, tuple) else None,
    "nccl_loaded": sorted({path for path in maps if "libnccl" in path}),
}))
"""


def read_torch(options: dict[str, Any]) -> dict[str, Any] | None:
    """Version, CUDA, kernels built in, and the NCCL that it really loads; ``null`` if not asked."""
    if not options.get("torch"):
        return None
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    done = subprocess.run(
        [sys.executable, *flags, "-c", ASK_TORCH],
        env=_environment_given(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=IMPORT_S,
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        raise RuntimeError(said[-1][:300] if said else f"it ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    return found


def _environment_given() -> dict[str, str]:
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().split(b"\0")
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def read_nccl(options: dict[str, Any]) -> dict[str, Any]:
    """Every NCCL that could be loaded: packages, libraries on disk, ``LD_PRELOAD``."""
    folders = [os.path.join(entry, "nvidia", "nccl", "lib") for entry in sys.path]
    folders += [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *LIBRARY_FOLDERS]
    found = [path for folder in folders if folder for path in glob.glob(folder + "/libnccl.so*")]
    return {
        "packages": {name: _version_of(name) for name in NCCL_PACKAGES},
        "libraries": sorted({os.path.realpath(path) for path in found}),
        "preload": os.environ.get("LD_PRELOAD", ""),
    }


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def read_nccl_conf(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The files of settings that NCCL reads for this user, those that are there."""
    named = os.environ.get("NCCL_CONF_FILE")
    own = os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".nccl.conf")
    found = {}
    for path in (named or own, "/etc/nccl.conf"):
        if os.path.lexists(path):
            found[path] = _settings(path)
    return found


def _settings(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(1 << 20)
    except OSError as error:
        return {"why": error.strerror}
    lines = [line.strip() for line in data.decode("utf-8", "backslashreplace").splitlines()]
    return {
        "sha256": hashlib.sha256(data).hexdigest(),
        "lines": [line for line in lines if line and not line.startswith("#")],
    }


def read_nccl_graph(options: dict[str, Any]) -> dict[str, Any] | None:
    """The file of ``NCCL_GRAPH_FILE``: hash and number of GPUs; ``path`` empty where unset."""
    path = os.environ.get("NCCL_GRAPH_FILE", "")
    if not path:
        return {"path": ""}
    try:
        with open(path, "rb") as file:
            data = file.read(1 << 24)
    except OSError as error:
        return {"path": path, "why": error.strerror}
    gpus = set(re.findall(rb"<gpu\b[^>]*\bdev=\"([^\"]*)\"", data))
    return {"path": path, "sha256": hashlib.sha256(data).hexdigest(), "gpus": len(gpus)}


def read_models(options: dict[str, Any]) -> dict[str, dict[str, Any] | None]:
    """Of each folder: what its configuration says and whether every shard is whole."""
    return {
        path: _model(path) if os.path.isdir(path) else None for path in options.get("files", [])
    }


def _model(folder: str) -> dict[str, Any]:
    faults: list[str] = []
    config = _json(folder, "config.json", faults)
    here = [name for name in os.listdir(folder) if not os.path.isdir(os.path.join(folder, name))]
    kind = next((one for one in WEIGHTS if any(_is_of(one, name) for name in here)), "")
    indexes = sorted(name for name in here if kind and name.endswith(kind + INDEX))
    shards = {name for name in here if kind and name.endswith(kind) and name not in NO_WEIGHTS}
    for index in indexes:
        named = _json(folder, index, faults)
        weights = {} if named is None else named.get("weight_map")
        if isinstance(weights, dict):
            shards |= set(map(str, weights.values()))
        else:
            faults.append(index + " names no shards")
    shards = _whole_series(shards)
    for shard in sorted(shards):
        fault = _fault_of(os.path.join(folder, shard))
        faults += [f"{shard} {fault}"] if fault else []
    others = sorted({*here} - shards - {*indexes, "config.json"})
    faults += [f"{name} is a Git LFS pointer" for name in others if _is_pointer(folder, name)]
    return {
        "config": _told(config) if config else None,
        "shards": len(shards),
        "index_sha256": [_sha256(os.path.join(folder, index)) for index in indexes],
        "faults": (faults if shards else [*faults, "it holds no weights"])[:20],
    }


def _is_of(kind: str, name: str) -> bool:
    return name.endswith((kind, kind + INDEX)) and name not in NO_WEIGHTS


def _whole_series(names: set[str]) -> set[str]:
    """The names, with those that are missing of a numbered series ("-00001-of-00064")."""
    whole = set(names)
    for name in names:
        one = re.fullmatch(r"(.*-)(\d+)(-of-)(\d+)(\..+)", name)
        if one is None:
            continue
        for at in range(1, min(int(one[4]), MOST_SHARDS) + 1):
            whole.add(f"{one[1]}{at:0{len(one[2])}}{one[3]}{one[4]}{one[5]}")
    return whole


def _is_pointer(folder: str, name: str) -> bool:
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return file.read(len(LFS)) == LFS
    except OSError:
        return False


def _json(folder: str, name: str, faults: list[str]) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, name), "rb") as file:
            value = json.loads(file.read(1 << 26))
        if isinstance(value, dict):
            return value
        faults.append(name + " holds no object")
    except OSError as error:
        faults.append(f"{name}: {error.strerror}")
    except ValueError:
        faults.append(name + " is no JSON: cut off, or a Git LFS pointer")
    return None


def _told(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that matter; the text part of a multimodal model counts too."""
    nested = config.get("text_config")
    parts = [config, nested] if isinstance(nested, dict) else [config]
    told = {}
    for key in CONFIG_KEYS:
        values = [part[key] for part in parts if part.get(key) is not None]
        told[key] = values[0] if values else None
    told["quantized"] = any(part.get("quantization_config") for part in parts)
    return told


def _fault_of(path: str) -> str | None:
    """Why a shard is not whole: the header of a safetensors file names the bytes that follow it."""
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            start = file.read(len(LFS))
            if start == LFS:
                return "is a Git LFS pointer"
            if size == 0:
                return "is empty"
            if not path.endswith(WEIGHTS[0]):
                return None
            if size < 8:
                return "is cut off"
            length = struct.unpack("<Q", start[:8])[0]
            if length > min(size - 8, 1 << 27):
                return "is cut off in its header"
            file.seek(8)
            header = json.loads(file.read(length))
        ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return "has a broken header"
    whole = 8 + length + max(ends, default=0)
    if size > whole:
        return f"is longer than its header says: {size} of {whole} bytes"
    return f"is cut off: {size} of {whole} bytes" if size < whole else None


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "torch": read_torch,
    "nccl": read_nccl,
    "nccl_conf": read_nccl_conf,
    "nccl_graph": read_nccl_graph,
    "models": read_models,
}


def read_all(options: dict[str, Any]) -> dict[str, Any]:
    """All facts, and the reason of each that is missing."""
    facts: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, reader in READERS.items():
        try:
            facts[name] = reader(options)
        except Exception as error:
            facts[name] = None
            reasons[name] = f"{type(error).__name__}: {error}"
    return {"probe": "accelerator", "facts": facts, "reasons": reasons}


if __name__ == "__main__":
    print("\n" + json.dumps(read_all(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})))
