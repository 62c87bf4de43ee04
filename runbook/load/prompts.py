"""The prompts: those that come with the package, and those of a file.

A file of our own form holds one JSON object a line: ``{"id": "edit-01", "kind": "edit",
"messages": [{"role": "user", "content": "..."}]}``; ``"tools": [...]`` beside them where tools are
offered, messages as OpenAI's chat API has them (tool calls and their answers, images in parts).
ShareGPT's JSON (kind ``sharegpt``) and the OpenAI-form JSONL of a production log (kind ``openai``)
are taken as they are. The built-in ones are three files, one a kind: ``edit`` (a piece of code to
be repeated with one change, so that answers are long copies), ``generate`` (write, explain, plan)
and ``agent`` (tool calls, logs, JSON, work in steps).
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runbook import bounded
from runbook.errors import BadInput
from runbook.load import workload_files
from runbook.load.manifest import Manifest, describe
from runbook.load.records import Prompt

KINDS = ("edit", "generate", "agent")
ROLES = ("assistant", "system", "tool", "user")
MAX_BYTES = 1024 * 1024 * 1024
_MESSAGE_KEYS = {"role", "content", "tool_calls", "tool_call_id"}

_WANTED = (
    '{"id": text, "kind": text, "messages": [{"role": text, "content": text}, ...]} in one line'
)


@functools.cache
def builtin_prompts() -> tuple[Prompt, ...]:
    """The prompts of this project, in order of kind and id."""
    folder = importlib.resources.files("runbook.load") / "builtin"
    texts = [(folder / f"{kind}.jsonl").read_text("utf-8") for kind in KINDS]
    return parse_prompts("".join(texts), "built-in prompts")


@dataclass(frozen=True)
class Workload:
    """Prompts and what they are made of."""

    prompts: tuple[Prompt, ...]
    manifest: Manifest


def builtin_workload() -> Workload:
    """The prompts of this project with their manifest."""
    return _own(builtin_prompts(), "built-in prompts")


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a file. Raises ``BadInput`` that names file and line."""
    return read_workload(path).prompts


def read_workload(path: Path, send: Collection[str] = ()) -> Workload:
    """The prompts of a file, its form found by its content, with their manifest.

    ``send``: of ``tools`` and ``images``, what requests of a log are sent with; others with such
    are left out. Raises ``BadInput`` that names file and line.
    """
    text, source = read_text(path), str(path)
    if text.lstrip().startswith("["):
        return _foreign(workload_files.read_sharegpt(text, source), source)
    if _is_log(text):
        return _foreign(workload_files.read_openai(text, source, send), source)
    return _own(parse_prompts(text, source), source)


def with_system(workload: Workload, system: str) -> Workload:
    """Each prompt behind the same system message: a prefix that all share.

    It stands before a system message that a prompt has already.
    """
    return _renewed(workload, (_behind(prompt, system) for prompt in workload.prompts))


def _behind(prompt: Prompt, system: str) -> Prompt:
    first, *rest = prompt.messages
    if first["role"] == "system" and isinstance(first["content"], str):
        system, messages = f"{system}\n\n{first['content']}", rest
    else:
        messages = [first, *rest]
    return replace(prompt, messages=({"role": "system", "content": system}, *messages))


def by_turn(workload: Workload) -> Workload:
    """Conversations turn by turn: each user message a request with all that was said before it.

    The answers in between are those of the file, so that every configuration is asked the same.
    """
    return _renewed(workload, (turn for prompt in workload.prompts for turn in _turns(prompt)))


def _turns(prompt: Prompt) -> Iterator[Prompt]:
    ends = [at for at, one in enumerate(prompt.messages, 1) if one["role"] == "user"]
    if len(ends) < 2:
        yield prompt
        return
    for number, end in enumerate(ends, 1):
        turn = f"{prompt.id}#{number}"
        yield replace(prompt, id=turn, messages=prompt.messages[:end], conversation=prompt.id)


def _renewed(workload: Workload, prompts: Iterable[Prompt]) -> Workload:
    """The same workload with other prompts: what the file told of tokens holds no longer."""
    listed, told = tuple(prompts), workload.manifest
    manifest = describe(told.source, told.form, listed, left_out=told.left_out)
    return Workload(listed, manifest)


def _own(prompts: tuple[Prompt, ...], source: str) -> Workload:
    return Workload(prompts, describe(source, "prompts of this project's form", prompts))


def _foreign(file: workload_files.WorkloadFile, source: str) -> Workload:
    prompts = tuple(one.prompt for one in file.asked)
    counts = ([one.tokens_in for one in file.asked], [one.tokens_out for one in file.asked])
    return Workload(prompts, describe(source, file.form, prompts, *counts, file.left_out))


def _is_log(text: str) -> bool:
    """Whether the first line is a request; one of our own form has an id and a kind as well."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    try:
        entry = bounded.parse_json(first)
    except ValueError:
        return False
    own = isinstance(entry, dict) and {"id", "kind"} <= set(entry)
    return workload_files.is_openai(entry) and not own


def read_text(path: Path) -> str:
    """A file of the workload as text. Raises ``BadInput``."""
    return bounded.read_text(
        path,
        MAX_BYTES,
        name_it="set workload.prompts",
        smaller="a smaller file of prompts",
        make_smaller="take a sample of it: shuf -n 1000",
        form="a UTF-8 file",
    )


def parse_prompts(text: str, source: str) -> tuple[Prompt, ...]:
    """The prompts in ``text``, blank lines left out; ``source`` names it in a ``BadInput``."""
    prompts: list[Prompt] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{source}: line {number}"
        prompt = _parse_line(line, where)
        if prompt.id in lines:
            found = f"{where}: the id {prompt.id} stands in line {lines[prompt.id]} already"
            raise BadInput(found, "each id once", "give this prompt an id of its own")
        lines[prompt.id] = number
        prompts.append(prompt)
    if not prompts:
        raise BadInput(f"{source}: no prompt in it", _WANTED, "write one prompt a line")
    return tuple(prompts)


def _parse_line(line: str, where: str) -> Prompt:
    try:
        value = bounded.parse_json(line)
    except ValueError as error:
        raise BadInput(f"{where}: no JSON ({error})", _WANTED, "write one object a line") from None
    fault = _fault(value)
    if fault:
        raise BadInput(f"{where}: {fault}", _WANTED, "correct this line")
    tools = tuple(value.get("tools", ()))
    return Prompt(value["id"], value["kind"], tuple(value["messages"]), tools)


def _fault(value: Any) -> str | None:
    """What is wrong with one prompt, ``None`` when nothing is."""
    if not isinstance(value, dict):
        return f"{type(value).__name__} instead of an object"
    unknown = sorted(set(value) - {"id", "kind", "messages", "tools"})
    if unknown:
        return f"an unknown key {unknown[0]!r}"
    for key in ("id", "kind"):
        if not isinstance(value.get(key), str) or not value[key].strip():
            return f"{key} is missing, empty or no text"
    messages = value.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages is missing, empty or no list"
    if not _are_objects(value.get("tools", [])):
        return "tools is no list of objects"
    return next(filter(None, map(_fault_of_message, messages)), None)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _fault_of_message(message: Any) -> str | None:
    keys = set(message) if isinstance(message, dict) else set()
    if "role" not in keys or keys - _MESSAGE_KEYS or not keys & {"content", "tool_calls"}:
        return f"a message that has other keys than {', '.join(sorted(_MESSAGE_KEYS))}"
    if message["role"] not in ROLES:
        return f"the role {message['role']!r}, which is none of {', '.join(ROLES)}"
    if not _are_objects(message.get("tool_calls", [])):
        return "tool_calls is no list of objects"
    content = message.get("content")
    parts = _are_objects(content) and all("type" in part for part in content or ())
    if not ((content and (isinstance(content, str) or parts)) or message.get("tool_calls")):
        return "a message whose content is empty or no text"
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "a message with half a surrogate pair, which is no text"
    return None
