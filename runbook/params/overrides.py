"""``-p KEY=VALUE``: a value put into the tree of a file, by its path."""

from __future__ import annotations

import re
import typing
from typing import Any, Literal

from runbook import strict_yaml
from runbook.errors import ParameterError
from runbook.params.faults import dotted, kind_below, options_of, show
from runbook.params.model import Params

_STEP = re.compile(r"([A-Za-z0-9_-]+)|\[(\d+)\]|\[name=([^\]]+)\]")


def _steps(path: str, source: str) -> list[str | int | tuple[str]]:
    """``a.b[0].c[name=x]`` as keys, positions and ``(name,)``."""
    steps: list[str | int | tuple[str]] = []
    at = 0
    while at < len(path):
        if path[at] == "." and at:
            at += 1
        match = _STEP.match(path, at)
        if not match:
            raise ParameterError(source, path, "no dotted path", "like server.port or mix[0].share")
        key, position, name = match.groups()
        steps.append(key if key is not None else int(position) if position is not None else (name,))
        at = match.end()
    return steps


def apply_override(values: dict[str, Any], override: str) -> str:
    """Set one ``KEY=VALUE`` inside ``values``; an unknown key is left for validation to name.

    Returns the dotted path of what was set, items of lists by their position.
    """
    source = f"-p {override}"
    match = re.match(r"((?:\[[^\]]*\]|[^=\[])+)=(.*)$", override, re.DOTALL)
    if not match:
        raise ParameterError(source, "", "no KEY=VALUE", "like -p server.port=18080")
    path, text = match.groups()
    steps = _steps(path, source)
    place: Any = values
    kind: Any = Params
    found: list[str | int] = []
    for depth, step in enumerate(steps):
        kind = kind_below(kind, step)
        found.append(_key_in(place, step, path, source))
        if depth < len(steps) - 1:
            place = _descend(place, found[-1])
    literal = _is_text(kind) and not (text == "null" and type(None) in options_of(kind))
    value = text if literal else strict_yaml.parse(text, source)
    place[found[-1]] = value
    return dotted(found)


def _key_in(place: Any, step: str | int | tuple[str], path: str, source: str) -> str | int:
    if isinstance(step, str) and isinstance(place, dict):
        return step
    if isinstance(place, list):
        return _position(place, step, path, source)
    raise ParameterError(source, path, show(place), "a list or mapping, and a step that fits it")


def _descend(place: Any, key: str | int) -> Any:
    if isinstance(place, dict) and place.get(key) is None:
        place[key] = {}
    return place[key]


def _position(place: list[Any], step: str | int | tuple[str], path: str, source: str) -> int:
    names = [item.get("name") if isinstance(item, dict) else None for item in place]
    if isinstance(step, tuple) and step[0] in names:
        return names.index(step[0])
    if isinstance(step, int) and step < len(place):
        return step
    known = ", ".join(str(name) for name in names if name) or f"{len(place)} items"
    raise ParameterError(source, path, "no such item in the list", f"one of: {known}")


def _is_text(kind: Any) -> bool:
    """Whether a value of this annotation is text, so that ``-p`` takes it to the letter."""
    options = [option for option in options_of(kind) if option is not type(None)]
    return bool(options) and all(
        option is str
        or (
            typing.get_origin(option) is Literal
            and all(isinstance(value, str) for value in typing.get_args(option))
        )
        for option in options
    )
