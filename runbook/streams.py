"""Standard output and errors that stop no work: what nobody can take is lost, and that is known."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Patient(io.FileIO):
    """A descriptor whose reader may go away, or whose disk may be full.

    ``lost``: why something was not taken, empty where all was, or nobody wanted more.
    ``is_unread``: nobody wants more.
    """

    lost = ""
    is_unread = False

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self.is_unread = True
        except OSError as error:
            self.lost = error.strerror or str(error)
        return memoryview(data).nbytes


def patient(stream: TextIO) -> TextIO:
    """The same stream, line by line, whose ``write`` never fails."""
    return io.TextIOWrapper(
        io.BufferedWriter(_Patient(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )


def be_patient() -> None:
    """From now on nothing that is said by this process can stop it."""
    # A stream that the caller has closed is None, and takes nothing without a word.
    sys.stdout, sys.stderr = (one and patient(one) for one in (sys.stdout, sys.stderr))


def lost(stream: TextIO) -> str:
    """Why something that was said to a patient stream was not taken, empty where it was."""
    raw = _raw(stream)
    return raw.lost if raw else ""


def is_unread(stream: TextIO) -> bool:
    """Whether the reader of a patient stream has gone."""
    raw = _raw(stream)
    return raw is not None and raw.is_unread


def _raw(stream: TextIO) -> _Patient | None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Patient) else None
