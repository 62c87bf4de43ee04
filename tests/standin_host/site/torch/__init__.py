"""Stands in for torch in tests: it says what it is built for, and has the tensors of a trial
all-reduce: each ``factor`` times 1, 2, 3, ..., without the memory of so many numbers."""

import mmap
from pathlib import Path
from types import SimpleNamespace

__version__ = "2.9.1+cu130"
version = SimpleNamespace(cuda="13.0")
float16 = "float16"
_C = SimpleNamespace(_cuda_getArchFlags=lambda: "sm_90 sm_120")
cuda = SimpleNamespace(
    nccl=SimpleNamespace(version=lambda: (2, 28, 9)),
    set_device=lambda rank: None,
    synchronize=lambda: None,
)
for path in Path(__file__).parents[1].glob("nvidia/nccl/lib/libnccl.so.2"):
    with path.open("rb") as file:
        _nccl = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # as a loaded library shows


class Tensor:
    """``odd``: position -> the value there, where it is another than the factor makes."""

    def __init__(self, count, factor, odd=None, dtype="int64"):
        self.count, self.factor, self.odd, self.dtype = count, factor, dict(odd or {}), dtype

    def __mul__(self, factor):
        return Tensor(self.count, self.factor * factor)

    def __getitem__(self, at):
        return Tensor(1, self.odd.get(at, self.factor * (at + 1)))

    def __ne__(self, other):
        places = {*self.odd, *other.odd, 0}
        wrong = [at for at in sorted(places) if self[at].item() != other[at].item()]
        return SimpleNamespace(nonzero=lambda: [Tensor(1, at) for at in wrong])

    def item(self):
        return self.odd.get(0, self.factor)


def arange(start, end, **_):
    return Tensor(end - start, start)


def tensor(values, **_):
    return Tensor(len(values), values[0])


def ones(count, dtype=None, **_):
    return Tensor(count, 1, dtype=dtype)


def zeros_like(data):
    return Tensor(data.count, 0)


def equal(one, other):
    return one.count == other.count and not (one != other).nonzero()
