"""A quantised GGUF file written again with every tensor as F32: the same weights, wider.

On F32 the decode of a small model is bound by memory at one stream and by arithmetic at eight,
the change of regime that speculation lives on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gguf import GGUFWriter

_ALL_F32 = 0  # general.file_type of a file whose tensors are all F32


class F32Copy:
    """The F32 form of one GGUF file, to be written.

    ``size_bytes`` is an upper bound of what ``write`` writes. Raises ``ValueError`` when
    ``source`` is no GGUF file that can be read to its end, ``ImportError`` without ``gguf``.
    """

    def __init__(self, source: Path) -> None:
        import gguf

        try:
            self._reader = gguf.GGUFReader(source)
            architecture = self._reader.fields["general.architecture"].contents()
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"no whole GGUF file: {error}") from error
        self._architecture = str(architecture)
        self._weights = sum(int(tensor.n_elements) for tensor in self._reader.tensors)
        self.size_bytes = source.stat().st_size + 4 * self._weights

    def write(self, target: Path, progress: Callable[[float], None]) -> None:
        """Write ``target``, one tensor in memory at a time, without syncing it to the disk.

        ``progress`` gets the share done, above 0 up to 1. Raises ``OSError`` from writing.
        """
        import gguf

        writer = gguf.GGUFWriter(target, self._architecture)
        try:
            self._declare(writer)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            self._write_tensors(writer, progress)
            writer.flush()
        finally:
            writer.close()

    def _declare(self, writer: GGUFWriter) -> None:
        """Copy the metadata and announce every tensor as F32."""
        import gguf
        import numpy

        for key, field in self._reader.fields.items():
            if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
                continue
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), kind, sub_type=inner)
        writer.data_alignment = self._reader.alignment
        writer.add_file_type(_ALL_F32)
        for tensor in self._reader.tensors:
            shape = [int(length) for length in reversed(tensor.shape)]
            nbytes = 4 * int(tensor.n_elements)
            writer.add_tensor_info(tensor.name, shape, numpy.dtype(numpy.float32), nbytes)

    def _write_tensors(self, writer: GGUFWriter, progress: Callable[[float], None]) -> None:
        import numpy
        from gguf import quants

        written = 0
        for tensor in self._reader.tensors:
            weights = quants.dequantize(tensor.data, tensor.tensor_type)
            writer.write_tensor_data(numpy.ascontiguousarray(weights, numpy.float32))
            written += int(tensor.n_elements)
            progress(written / self._weights)
