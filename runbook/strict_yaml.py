"""YAML read safely and strictly: no tags, no duplicate keys, no value that means something else.

Plain scalars are read by the YAML 1.2 core rules, so ``no`` and ``on`` are text, and a number
written with leading zeros is refused instead of becoming octal.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from runbook.errors import ParameterError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20

_PLAIN_TAGS = frozenset({"map", "seq", "str", "int", "float", "bool", "null"})
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+$")


class _Loader(yaml.SafeLoader):
    """The safe loader with the YAML 1.2 core scalars only."""


class _Dumper(yaml.SafeDumper):
    """Writes what ``_Loader`` reads back unchanged."""


for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {}
    for _tag, _pattern, _first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+", "-+0123456789"),
        (
            "float",
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf)|\.(nan|NaN)",
            "-+.0123456789",
        ),
    ):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first)
        )
    _class.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^(?:<<)$"), ["<"])


def _join(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _line(place: yaml.Node | yaml.Event) -> int:
    return place.start_mark.line + 1 if place.start_mark else 1


def _build(loader: _Loader, node: yaml.Node, path: str, source: str, depth: int) -> Any:
    """Turn ``node`` into plain Python, naming the dotted key in every refusal."""
    if depth > MAX_DEPTH:
        raise ParameterError(source, path, f"nesting deeper than {MAX_DEPTH}", "a flat file")
    if node.tag.removeprefix("tag:yaml.org,2002:") not in _PLAIN_TAGS:
        raise ParameterError(source, path, f"the tag {node.tag}", "plain YAML without tags")
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag.endswith(":merge"):
                raise ParameterError(
                    source, path, "a key that is no plain text", "text keys, no <<"
                )
            key = str(key_node.value)
            where = _join(path, key)
            if key in found:
                line = _line(key_node)
                raise ParameterError(
                    source, where, f"a second time in line {line}", "each key once"
                )
            found[key] = _build(loader, value_node, where, source, depth + 1)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [
            _build(loader, item, _join(path, number), source, depth + 1)
            for number, item in enumerate(node.value)
        ]
    plain = getattr(node, "style", None) is None
    if plain and _LEADING_ZERO.match(str(node.value)):
        raise ParameterError(
            source,
            path,
            f"{node.value}, a number with leading zeros",
            f'{int(node.value)} for a number, "{node.value}" in quotes for text',
        )
    return loader.construct_object(node, deep=True)


def parse(text: str, source: str) -> Any:
    """Parse one YAML document; ``source`` names it in errors. Raises ``ParameterError``."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ParameterError(source, "", f"more than {MAX_BYTES // 1024} KiB", "a small file")
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                line = _line(event)
                raise ParameterError(source, "", f"an alias in line {line}", "values written out")
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else _build(loader, node, "", source, 0)
    except RecursionError:
        raise ParameterError(
            source, "", f"nesting deeper than {MAX_DEPTH}", "a flat file"
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ParameterError(
            source, "", f"no valid YAML: {_said(error)}", "a YAML mapping"
        ) from None


def _said(error: Exception) -> str:
    """What the parser objects to, and where."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"  # type: ignore[attr-defined]


def load(path: Path) -> Any:
    """Read and parse a YAML file. Raises ``ParameterError`` when it cannot be read or parsed."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ParameterError(
            str(path), "", error.strerror or "an unreadable file", "a readable YAML file"
        ) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ParameterError(
            str(path), "", "bytes that are no UTF-8", "a UTF-8 text file"
        ) from None
    return parse(text, str(path))


def dump(value: Any) -> str:
    """Write plain Python as YAML that ``parse`` reads back as the same value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
