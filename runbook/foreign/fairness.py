"""Where the servers behind the figures of other tools were set up differently. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from runbook.foreign.names import Named
from runbook.foreign.result import Result


def unlike_servers(results: Sequence[tuple[Result, Named]]) -> Iterator[str]:
    """The settings that decide speed and differ between configurations."""
    said: dict[str, dict[str, set[str]]] = {}
    for result, named in results:
        for setting, value in result.server.items():
            said.setdefault(setting, {}).setdefault(named.config, set()).add(str(value))
    for setting, configs in said.items():
        if len({frozenset(values) for values in configs.values()}) > 1:
            yield f"the servers differ in {setting}: {_shown(configs)}"


def _shown(configs: Mapping[str, set[str]]) -> str:
    return ", ".join(f"{name} {' and '.join(sorted(values))}" for name, values in configs.items())
