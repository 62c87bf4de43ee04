"""``docs/parameters.md`` from the model of the parameters."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from runbook.params import FORMS, Params, Strict, options_of
from runbook.publish.tables import Code, table

_HEAD = """# Parameters
*Made by `make reference` from `runbook/params/model.py`; a test holds it current.*

One YAML file a deployment, with the keys below and no others. A misspelt key, a duplicate, a value
of another type and a number with leading zeros are refused before anything starts, with the file,
the key and the nearest name. `-p KEY=VALUE` sets one value: `server.port=18081`,
`choose.mix[0].share=0.5`, `configurations[name=baseline].args=[--threads, "2"]`. `-p` into a text
is taken to the letter, else the value is YAML.

`params/rehearsal.yaml` and `params/kimi-k2.5-8x-rtx-pro-6000.yaml` are whole examples.
"""

Schema = Mapping[str, Any]


def parameters() -> str:
    """The page, whole."""
    whole = Params.model_json_schema()
    parts = [_HEAD]
    alone = []
    for name, field in Params.model_fields.items():
        kind = model_of(field.annotation)
        if kind is None:
            alone.append(_row(name, field, whole["properties"][name], whole["$defs"]))
            continue
        text = " ".join((kind.__doc__ or "").replace("``", "`").split())
        rows = list(_rows(kind, _prefix(name, field.annotation), whole["$defs"]))
        parts.append(f"## {name}\n{text}\n\n{table(rows)}\n")
    parts.insert(1, f"{table(alone)}\n")
    return "\n".join(parts)


def _rows(kind: type[Strict], prefix: str, definitions: Schema) -> Iterator[dict[str, Any]]:
    properties = definitions[kind.__name__]["properties"]
    for name, field in kind.model_fields.items():
        below = model_of(field.annotation)
        yield _row(f"{prefix}{name}", field, properties[name], definitions)
        if below is not None:
            yield from _rows(below, _prefix(f"{prefix}{name}", field.annotation), definitions)


def _row(key: str, field: FieldInfo, schema: Schema, definitions: Schema) -> dict[str, Any]:
    return {
        "key": Code(key),
        "value": _in_words(schema, definitions),
        "default": "required" if field.is_required() else _default(field),
        "meaning": field.description or "",
    }


def _default(field: FieldInfo) -> str | Code:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Strict):
        return "see below"
    if value == "":
        return "empty"
    return Code(json.dumps(value, ensure_ascii=False))


def model_of(annotation: Any) -> type[Strict] | None:
    """The model that a value, or an item of a list, of this annotation is."""
    for option in options_of(annotation):
        if typing.get_origin(option) is list:
            return model_of(typing.get_args(option)[0])
        if isinstance(option, type) and issubclass(option, Strict):
            return option
    return None


def _prefix(key: str, annotation: Any) -> str:
    is_list = any(typing.get_origin(option) is list for option in options_of(annotation))
    return f"{key}[]." if is_list else f"{key}."


# --- a JSON schema in words -------------------------------------------------------------------


def _in_words(schema: Schema, definitions: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _in_words(definitions[name], definitions)
    if "anyOf" in schema:
        return " or ".join(_in_words(one, definitions) for one in schema["anyOf"])
    if "const" in schema:
        return json.dumps(schema["const"]) if schema["const"] != "" else "empty"
    if "enum" in schema:
        return "one of " + ", ".join(str(one) or "empty" for one in schema["enum"])
    make = _WORDS[schema["type"]]
    return make(schema, definitions)


def _number(word: str, schema: Schema) -> str:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    said = []
    if low is not None and high is not None:
        return f"{word}, {low:g} to {high:g}"
    said += [] if low is None else [f"{low:g} or more"]
    said += [] if above is None else [f"above {above:g}"]
    said += [] if high is None else [f"{high:g} at most"]
    said += [] if below is None else [f"below {below:g}"]
    return ", ".join([word, *said])


def _text(schema: Schema, _definitions: Schema) -> str:
    pattern = schema.get("pattern")
    return "text" if pattern is None else FORMS.get(pattern, f"text like {pattern}")


def _list(schema: Schema, definitions: Schema) -> str:
    items = _in_words(schema["items"], definitions)
    return f"list of {items}" + (", not empty" if schema.get("minItems") else "")


def _mapping(schema: Schema, definitions: Schema) -> str:
    if "properties" in schema:
        return "the keys below"
    values = [schema["additionalProperties"]] if schema.get("additionalProperties") else []
    values += schema.get("patternProperties", {}).values()
    return "name: " + _in_words(values[0], definitions)


_WORDS: Mapping[str, typing.Callable[[Schema, Schema], str]] = {
    "string": _text,
    "integer": lambda schema, _: _number("whole number", schema),
    "number": lambda schema, _: _number("number", schema),
    "boolean": lambda schema, _: "true or false",
    "null": lambda schema, _: "null",
    "array": _list,
    "object": _mapping,
}
