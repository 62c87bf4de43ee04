"""One measured point of another tool, in the words of this project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Result:
    """What one result file, or one entry of it, says of one configuration at one load.

    ``None`` is unknown, also where the tool wrote 0 or NaN for what it did not measure. ``name``:
    of the configuration, where the tool was told one. ``concurrency``: requests kept in flight,
    ``None`` for a load that is no closed loop. ``run``: the mark of a repetition. ``timed``: the
    run was bounded by time, so that a faster server completes more requests. ``input_tokens``,
    ``output_tokens``: mean of a request. ``server``: what the server said of itself and decides
    speed. ``void``: why the figure may not be compared; ``remarks``: what a reader must know.
    """

    tool: str
    place: str
    name: str | None
    concurrency: int | None
    context_tokens: int | None = None
    requests: int | None = None
    errors: int | None = None
    output_tok_s: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p99_ms: float | None = None
    accept_length: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    run: str = ""
    timed: bool = False
    server: Mapping[str, Any] = field(default_factory=dict)
    void: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
