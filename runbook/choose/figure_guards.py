"""What figures say against themselves: acceptance, drift, lives, what is missing. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from runbook.benchmark.measurements import DRIFT_P, drift_of
from runbook.cells import Cell
from runbook.checks import counted
from runbook.decision import Decision, percent
from runbook.engines.base import SUSPICIOUS_ACCEPTANCE
from runbook.engines.sglang.options import read_options
from runbook.engines.sglang.releases import SPECULATION_CAP

_CAPS = ("--max-running-requests", "--max-num-seqs", "--parallel", "-np")
_RANKS = ("--data-parallel-size", "--dp-size", "--dp")
_STEPS = ("--speculative-num-steps",)


def request_caps(args: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Requests that each configuration is declared to run at once, by its arguments.

    With several data-parallel ranks an option may mean each of them: then no cap is claimed.
    """
    caps = {name: _number(own, _CAPS) for name, own in args.items() if not _number(own, _RANKS)}
    return {name: cap for name, cap in caps.items() if cap is not None}


def find_notes(
    decision: Decision, cells: Sequence[Cell], args: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Sentences for the reader of a decision; ``args`` as in ``ChoiceTerms``, maybe empty."""
    return (
        *_undeclared(cells, args),
        *_silent_caps(cells, args),
        *_acceptance(decision, cells, args),
        *_drift(cells),
        *_shared_lives(cells),
    )


def _undeclared(cells: Sequence[Cell], args: Mapping[str, Sequence[str]]) -> Iterator[str]:
    measured = {cell.config for cell in cells}
    for name in args:
        if name not in measured:
            yield f"{name}: not measured (it is declared, and the figures hold none of it)"
    for name in sorted(measured - set(args)) if args else ():
        yield f"{name}: measured, and not among the declared configurations"


def _silent_caps(cells: Sequence[Cell], args: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Speculation on SGLang without a declared cap runs fewer at once than are asked."""
    most = max((cell.concurrency for cell in cells), default=0)
    for config, own in args.items():
        options = read_options(own)
        if most > SPECULATION_CAP and options.speculates and _number(own, _CAPS) is None:
            yield (
                f"{config}: without --max-running-requests SGLang runs {SPECULATION_CAP} at once "
                f"under speculation, and figures at up to C={most} are compared"
            )


def _acceptance(
    decision: Decision, cells: Sequence[Cell], args: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """A draft that is not used, or one whose every token is taken."""
    lengths: dict[str, list[float]] = {}
    for cell in cells:
        if cell.usable and cell.accept_length:
            lengths.setdefault(cell.config, []).append(cell.accept_length)
    ratios = {effect.config: effect.ratio for effect in decision.effects}
    for config, own in sorted(lengths.items()):
        if config == decision.baseline:
            continue
        ratio = ratios.get(config)
        if max(own) == 1.0:
            gain = ": its gain cannot come from it" if ratio and ratio > 1 else ""
            yield f"{config}: acceptance length is exactly 1.00, so the draft is not used{gain}"
            continue
        steps = _number(args.get(config, ()), _STEPS)
        most = steps + 1 if steps else math.ceil(max(own))
        if max(own) >= SUSPICIOUS_ACCEPTANCE * most:
            of = f"of at most {most}" if steps else f"which is all where {most - 1} are drafted"
            yield (
                f"{config}: acceptance length is {max(own):.2f}, {of}: answers that repeat "
                "themselves do that; read some before the figures are believed"
            )


def _drift(cells: Sequence[Cell]) -> Iterator[str]:
    change, p = drift_of(cells)
    if p is not None and p < DRIFT_P:
        yield (
            f"throughput changed by {percent(1 + change)} over "
            f"the lives (p = {p:.2g}): heat, a filling cache or another user; compare only what "
            "was measured in random order"
        )


def _shared_lives(cells: Sequence[Cell]) -> Iterator[str]:
    """Blocks that share a server life count as one block: their mean is taken."""
    blocks: dict[tuple[str, int], set[int]] = {}
    for cell in cells:
        if cell.usable:
            blocks.setdefault((cell.config, cell.life), set()).add(cell.block)
    shared: dict[str, int] = {}
    for (config, _), own in blocks.items():
        if len(own) > 1:
            shared[config] = max(shared.get(config, 0), len(own))
    for config, count in sorted(shared.items()):
        yield f"{config}: {counted(count, 'block')} of one server life count as one, by their mean"


def _number(words: Sequence[str], names: Sequence[str]) -> int | None:
    """The whole number behind the last of some options; ``None`` without one."""
    found = None
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in names:
            text = value if equals else following
            found = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else found
    return found
