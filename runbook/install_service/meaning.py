"""What the difference between two units means for the running service. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from runbook.launch.unit_file import UnitFile, parse_unit

_COMPARED_APART = {("Service", "ExecStart"), ("Service", "Environment")}


def meaning(old: str | None, new: str | None) -> list[str]:
    """One line a difference: arguments, variables, other settings; empty when nothing differs."""
    if old == new:
        return []
    if old is None:
        return ["a new unit"]
    if new is None:
        return ["the unit is removed"]
    before, after = parse_unit(old), parse_unit(new)
    return [
        *_changes("argument", _options(before.command()), _options(after.command())),
        *_changes("variable", before.environment(), after.environment()),
        *_changes("setting", _settings(before), _settings(after)),
    ]


def _changes(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after:
            yield f"{kind} {name}: removed (was {before[name]!r})"
        elif name not in before:
            yield f"{kind} {name}: added, {after[name]!r}"
        elif before[name] != after[name]:
            yield f"{kind} {name}: {before[name]!r} -> {after[name]!r}"


def _options(argv: Iterable[str]) -> dict[str, str]:
    """Arguments by option: what follows an option is its value; a repeated one is collected."""
    found: dict[str, list[str]] = {}
    option = "(program)"
    for word in argv:
        if word.startswith("-") and not word.lstrip("-")[:1].isdigit():
            option, _, value = word.partition("=")
            found.setdefault(option, []).extend([value] if value else [])
        else:
            found.setdefault(option, []).append(word)
    return {name: " ".join(values) for name, values in found.items()}


def _settings(unit: UnitFile) -> dict[str, str]:
    keys = dict.fromkeys((section, key) for section, key, _ in unit.entries)
    return {
        key: " | ".join(unit.values(section, key))
        for section, key in keys
        if (section, key) not in _COMPARED_APART
    }
