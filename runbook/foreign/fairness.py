"""What must be equal between configurations for their figures to be compared. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from runbook.foreign.names import Named
from runbook.foreign.result import Result

#: Mean tokens of a request that lie further apart than this were not the same work.
_SAME_TOKENS = 0.01

_Point = tuple[int | None, int | None]


def unequal(results: Sequence[tuple[Result, Named]]) -> Iterator[str]:
    """Where configurations were not asked, or did not answer, the same, or ran otherwise."""
    points: dict[_Point, dict[str, list[Result]]] = {}
    for result, named in results:
        point = (result.concurrency, result.context_tokens)
        points.setdefault(point, {}).setdefault(named.config, []).append(result)
    for (concurrency, _), configs in points.items():
        for what in ("input_tokens", "output_tokens"):
            means = {
                name: _mean(getattr(one, what) for one in own) for name, own in configs.items()
            }
            known = {name: value for name, value in means.items() if value is not None}
            if known and max(known.values()) > min(known.values()) * (1 + _SAME_TOKENS):
                shown = ", ".join(f"{name} {value:.1f}" for name, value in known.items())
                yield f"C={concurrency}: mean {what.replace('_', ' ')} differ: {shown}"
    yield from _settings(results)


def _settings(results: Sequence[tuple[Result, Named]]) -> Iterator[str]:
    said: dict[str, dict[str, set[str]]] = {}
    for result, named in results:
        for setting, value in result.server.items():
            said.setdefault(setting, {}).setdefault(named.config, set()).add(str(value))
    for setting, configs in said.items():
        if len({frozenset(values) for values in configs.values()}) > 1:
            yield f"the servers differ in {setting}: {_shown(configs)}"


def _shown(configs: Mapping[str, set[str]]) -> str:
    return ", ".join(f"{name} {' and '.join(sorted(values))}" for name, values in configs.items())


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
