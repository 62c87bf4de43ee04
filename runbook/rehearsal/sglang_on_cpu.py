"""The real SGLang of a rehearsal without a GPU: where it, its stand-in kernels and the tiny models
lie. ``make setup-sglang`` installs it into the clone, in an environment of its own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from runbook.errors import NotHere
from runbook.run import clone_root

#: ``server.interpreter`` of parameters that use it.
INTERPRETER = "embedded:sglang"
MODELS_FOLDER = Path(__file__).with_name("tiny_eagle3")
SETUP = "make setup-sglang"


def interpreter() -> str:
    """The absolute path of its Python, installed or not."""
    return str((clone_root() or Path.cwd()) / ".venv-sglang" / "bin" / "python")


def environment() -> dict[str, str]:
    """The variables by which SGLang runs on a CPU; its stand-in kernels lie on its path."""
    return {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1"}


def require() -> None:
    """Raise ``NotHere`` where SGLang is not installed, or a file of the models is not whole."""
    if not os.access(interpreter(), os.X_OK):
        raise NotHere(f"{interpreter()} is not there", "SGLang in the clone", SETUP)
    wanted = "the models as they were committed"
    try:
        lines = (MODELS_FOLDER / "SHA256SUMS").read_text("utf-8").splitlines()
        for line in lines:
            digest, _, name = line.partition("  ")
            if hashlib.sha256((MODELS_FOLDER / name).read_bytes()).hexdigest() != digest:
                raise NotHere(
                    f"{MODELS_FOLDER / name} is not the file that was recorded",
                    wanted,
                    f"git checkout {MODELS_FOLDER}, or make train-tiny-eagle3",
                )
    except OSError as error:
        found = f"{error.filename}: {error.strerror}"
        raise NotHere(found, wanted, "work from a clone; there: make train-tiny-eagle3") from None
