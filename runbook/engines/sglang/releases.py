"""What each release of SGLang does about speculation: one table, and what follows from it.

Read in the source of the releases named; a release between two rows, or after the last, was not
read, and nothing is claimed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from packaging.version import InvalidVersion, Version

#: What ``SGLANG_ENABLE_SPEC_V2`` does. ``worker``: it chooses v1 or v2. ``overlap``: it only
#: switches the overlap scheduler of v2. ``warns``: no effect, and the log says so. ``silent``: no
#: effect, and nothing says so.
Variable = Literal["worker", "overlap", "warns", "silent"]

#: What ``topk`` above 1 does on the v2 worker. ``unread``: no rule was found in the source.
TreeOnV2 = Literal["unread", "refused", "falls back to v1", "runs"]

Worker = Literal["v1", "v2", "v2 overlap", "refused"]

#: Requests that run at once under speculation when ``--max-running-requests`` is not given:
#: the same in every release read.
SPECULATION_CAP = 48

#: Variables that SGLang sets in its processes whatever was set before.
OVERWRITES = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}

#: Variables that it sets where they are not set.
SETS_IF_UNSET = {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}


@dataclass(frozen=True)
class Release:
    """The releases from ``first`` to ``last``, which behave alike.

    ``spec_v2_default``: the variable unset. ``kimi_eagle3``: the hooks of EAGLE-3 in Kimi-K2.5.
    ``mla_draft``: its MLA draft class. ``paged_trees``: attention backends right with topk > 1 and
    page size > 1; ``paged_trees_unsure``: those on which sources disagree or that were not read.
    ``pins``: what it requires of torch and of its kernels, where that was read.
    """

    first: str
    last: str
    v1_worker: bool
    variable: Variable
    spec_v2_default: bool
    tree_on_v2: TreeOnV2
    kimi_eagle3: bool
    mla_draft: bool
    paged_trees: tuple[str, ...]
    paged_trees_unsure: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


_OLD, _NEW, _TRITON = ("flashinfer", "fa3"), ("flashinfer", "fa3", "triton"), ("triton",)
_FALLS_BACK: TreeOnV2 = "falls back to v1"
_PINS_10 = ("torch==2.9.1", "sglang-kernel==0.4.1")
_PINS_12 = ("torch==2.11.0", "sglang-kernel==0.4.2")

#: In order. 0.5.19 is taken to be as its neighbours.
RELEASES = (
    Release("0.5.6", "0.5.6", True, "worker", False, "unread", False, False, _OLD),
    Release("0.5.7", "0.5.9", True, "worker", False, "refused", False, False, _OLD),
    Release(
        *("0.5.10", "0.5.10.post1", True, "worker", False, "refused", True, False, _OLD),
        pins=_PINS_10,
    ),
    Release(
        *("0.5.11", "0.5.11", True, "worker", True, _FALLS_BACK, True, False, _OLD, _TRITON),
        pins=_PINS_12,
    ),
    Release(
        *("0.5.12", "0.5.12.post1", True, "worker", True, _FALLS_BACK, True, True, _OLD, _TRITON),
        pins=_PINS_12,
    ),
    Release(
        *("0.5.13", "0.5.13.post1", False, "overlap", True, "runs", True, True, _OLD, _TRITON),
        pins=("torch==2.11.0",),
    ),
    Release("0.5.14", "0.5.14", False, "warns", True, "runs", True, True, _OLD, _TRITON),
    Release("0.5.15", "0.5.20", False, "warns", True, "runs", True, True, _NEW),
    Release("0.5.21", "0.5.23", False, "silent", True, "runs", True, True, _NEW),
)


#: What a log says where no more is told: v1, or v2 without overlap.
NO_OVERLAP = "no overlap"

#: Lines of the start-up log (patterns) and the worker that each one tells.
WORKER_LINES: tuple[tuple[str, str], ...] = (
    (r"Spec v2 is enabled for eagle/eagle3 speculative decoding and overlap", "v2 overlap"),
    (r"Spec v2 is enabled by default", "v2 overlap"),  # 0.5.11, 0.5.12
    (r"Spec v1 is used", "v1"),
    (r"Overlap spec v2 is enabled by default", "v2 overlap"),  # 0.5.13
    (r"Non-overlap \(synchronous\) spec v2 is used", "v2"),
    (r"Overlap scheduler? is (?:disabled|not implemented)", NO_OVERLAP),
)


def find_release(version: str) -> Release | None:
    """The row of a version, ``None`` for one that was not read. A local part (``+cu130``) of it,
    which a patched build has, is left out."""
    try:
        wanted = Version(Version(version).public)
    except InvalidVersion:
        return None
    for release in RELEASES:
        if Version(release.first) <= wanted <= Version(release.last):
            return None if wanted.is_prerelease else release
    return None


def releases_where(holds: Callable[[Release], bool]) -> str:
    """The releases of which something holds, as text for people; ``none that was read``."""
    spans: list[list[Release]] = []
    for before, release in zip((None, *RELEASES), RELEASES, strict=False):
        if not holds(release):
            continue
        if spans and spans[-1][-1] is before:
            spans[-1].append(release)
        else:
            spans.append([release])
    return ", ".join(_span(span) for span in spans) or "none that was read"


def _span(rows: Iterable[Release]) -> str:
    first, *_ = rows = list(rows)
    return first.first if first.first == rows[-1].last else f"{first.first} to {rows[-1].last}"


def expected_worker(
    release: Release, topk: int | None, switch: bool | None, no_overlap: bool = False
) -> Worker | None:
    """The worker that an EAGLE configuration gets, ``None`` where only observation decides.

    ``switch``: ``SGLANG_ENABLE_SPEC_V2``, ``None`` when unset; ``no_overlap``: whether
    ``--disable-overlap-schedule`` is given. ``topk`` unset is chosen by the server: unknown.
    """
    asked_v2 = release.spec_v2_default if switch is None else switch
    if not release.v1_worker:
        overlap = asked_v2 or release.variable != "overlap"
        return "v2 overlap" if overlap and not no_overlap else "v2"
    if not asked_v2:
        return "v1"
    if topk is None or (topk > 1 and release.tree_on_v2 == "unread"):
        return None
    if topk > 1:
        return "refused" if release.tree_on_v2 == "refused" else "v1"
    return None if no_overlap else "v2 overlap"
