"""A fault in the values, in words for people: key, found, wanted, the nearest known key."""

from __future__ import annotations

import difflib
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import pydantic

from runbook.errors import ParameterError
from runbook.params.kinds import FORMS
from runbook.params.model import Disagreement, Params, Strict


def explain(
    error: pydantic.ValidationError,
    source: str,
    origins: Mapping[str, str],
    matters: Callable[[Mapping[str, Any]], bool] = lambda _: True,
) -> ParameterError:
    """The first fault of a ``ValidationError`` in our words, the others listed behind it.

    ``origins``: where a key came from, if not from ``source``. ``matters``: which details count.
    """
    details = [dict(detail) for detail in error.errors(include_url=False)]
    faults = [_fault(detail, source, origins) for detail in details if matters(detail)]
    first, *others = sorted(faults, key=lambda fault: fault.near is None)
    if others:
        first.do += "".join(f"\n  also: {other.found}; wanted: {other.wanted}" for other in others)
    return first


def dotted(location: Iterable[str | int]) -> str:
    """A path into the values as errors and ``-p`` write it, like ``configurations[0].args``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)[1:]


def _fault(detail: dict[str, Any], source: str, origins: Mapping[str, str]) -> ParameterError:
    location: tuple[str | int, ...] = tuple(
        part
        for part in detail["loc"]
        if isinstance(part, int) or not part.startswith(("constrained", "literal["))
    )
    key = dotted(location)
    below = [path for path in origins if key == path or key.startswith((f"{path}.", f"{path}["))]
    source = origins[max(below, key=len)] if below else source
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _known_keys(location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, 1)
        return ParameterError(
            source, key, "an unknown key", "one of " + ", ".join(known), near[0] if near else None
        )
    if kind == "missing":
        return ParameterError(source, key, "nothing", "a value: this key is required")
    if isinstance(error := context.get("error"), Disagreement):
        key = ".".join(filter(None, [key, error.key]))
        return ParameterError(source, key, error.found, error.wanted, error.near)
    if kind == "value_error":
        return ParameterError(source, key, str(context["error"]), "parameters that agree")
    wanted = str(detail["msg"]).removeprefix("Input should be ")
    if kind == "string_pattern_mismatch":
        wanted = FORMS.get(context["pattern"], f"text of the form {context['pattern']}")
    elif kind == "too_short":
        wanted = f"at least {context['min_length']} of them"
    elif kind == "string_type":
        wanted = "text (put it in quotes)"
    return ParameterError(source, key, show(detail.get("input")), wanted)


def _known_keys(location: Iterable[str | int]) -> list[str]:
    kind: Any = Params
    for step in location:
        kind = kind_below(kind, step)
    for option in options_of(kind):
        if isinstance(option, type) and issubclass(option, Strict):
            return sorted(option.model_fields)
    return []


def show(value: Any) -> str:
    """A value as an error shows it: short, with its type."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"{text} ({type(value).__name__})" if value is not None else "nothing"


def options_of(kind: Any) -> list[Any]:
    """The alternatives of an annotation: unions taken apart, ``Annotated`` unwrapped."""
    if typing.get_origin(kind) is Annotated:
        return options_of(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [option for part in typing.get_args(kind) for option in options_of(part)]
    return [kind]


def kind_below(kind: Any, step: str | int | tuple[str]) -> Any:
    """The annotation one step below ``kind``; ``None`` where the model does not know it."""
    for option in options_of(kind):
        origin, arguments = typing.get_origin(option), typing.get_args(option)
        if isinstance(step, str):
            if isinstance(option, type) and issubclass(option, Strict):
                field = option.model_fields.get(step)
                return field.annotation if field else None
            if origin is dict:
                return arguments[1]
        elif origin is list:
            return arguments[0]
    return None
