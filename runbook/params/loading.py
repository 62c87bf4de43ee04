"""From a file, papermill's values or ``-p`` to ``Params``, or one error for people."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
from pydantic import Field

from runbook import strict_yaml
from runbook.errors import ParameterError
from runbook.params.faults import explain, show
from runbook.params.model import Choose, Configuration, Params, Strict
from runbook.params.overrides import apply_override
from runbook.redaction import MAX_KEY_BYTES, remember


def load(path: Path, overrides: Sequence[str] = ()) -> Params:
    """Load a parameters file; ``overrides`` are ``KEY=VALUE`` as ``-p`` takes them.

    Raises ``ParameterError`` (exit 2) with file, key, found, wanted and the nearest known key.
    """
    values = _mapping_in(path)
    origins = {apply_override(values, override): f"-p {override}" for override in overrides}
    loaded = from_values(values, str(path), origins)
    folder, workload = path.absolute().parent, loaded.workload
    beside = {
        key: str(folder / name)
        for key, name in (("prompts", workload.prompts), ("system", workload.system))
        if name and name != "builtin"
    }
    if not beside:
        return loaded
    return loaded.model_copy(update={"workload": workload.model_copy(update=beside)})


def _mapping_in(path: Path) -> dict[str, Any]:
    values = strict_yaml.load(path)
    if not isinstance(values, dict):
        raise ParameterError(str(path), "", show(values), "a mapping with the keys of Params")
    return values


def from_values(
    values: Mapping[str, Any], source: str, origins: Mapping[str, str] | None = None
) -> Params:
    """Validate plain values, from whichever way they came; ``source`` names it in errors, unless
    ``origins`` has a name for the key at fault, or for one it lies below."""
    try:
        params = Params.model_validate(values)
    except pydantic.ValidationError as error:
        raise explain(error, source, origins or {}) from None
    if params.server.api_key is not None:
        _remember_key(Path(params.server.api_key.file))
    return params


def _remember_key(file: Path) -> None:
    """What is said from now on is said without it; whether it can be used is told where it is."""
    with contextlib.suppress(OSError, ValueError):
        if file.is_file() and file.stat().st_size <= MAX_KEY_BYTES:
            remember(file.read_text("ascii").strip())


@dataclass(frozen=True)
class ChoiceTerms:
    """What a choice takes from parameters.

    ``choose``: ``None`` where they hold no rule. ``args``: each declared configuration -> its
    arguments, those of the server first.
    """

    choose: Choose | None
    args: Mapping[str, tuple[str, ...]]


def load_choice(path: Path, rule: Mapping[str, Any] | None = None) -> ChoiceTerms:
    """What ``runbook choose`` needs of a parameters file: ``choose`` and ``configurations``.

    Other keys may be missing; unknown ones are refused everywhere. ``rule``: values that take the
    place of those in ``choose``. Raises ``ParameterError``.
    """
    values = _mapping_in(path)
    if rule:
        given = values.get("choose") or {}
        values["choose"] = {**given, **rule} if isinstance(given, dict) else given
    try:
        whole = Params.model_validate(values)
        return ChoiceTerms(whole.choose, _arguments(whole.server.args, whole.configurations))
    except pydantic.ValidationError as error:
        if any(_matters(detail) for detail in error.errors(include_url=False)):
            raise explain(error, str(path), {}, _matters) from None
    used = _OfChoice.model_validate({key: values[key] for key in _USED if key in values})
    server = values.get("server") or {}
    shared = server.get("args") or [] if isinstance(server, dict) else []
    return ChoiceTerms(used.choose, _arguments(map(str, shared), used.configurations))


class _OfChoice(Strict):
    """The keys of parameters that a choice uses."""

    configurations: list[Configuration] = Field(default_factory=list)
    choose: Choose | None = None


_USED = ("configurations", "choose")


def _arguments(
    shared: Iterable[str], configurations: Iterable[Configuration]
) -> dict[str, tuple[str, ...]]:
    common = tuple(shared)
    return {one.name: (*common, *one.args) for one in configurations}


def _matters(detail: Mapping[str, Any]) -> bool:
    """Whether a fault keeps a choice from being made: not a key that it does not look at."""
    where = detail["loc"]
    return detail["type"] != "missing" or (len(where) > 1 and where[0] in _USED)


def choose_from_values(values: Mapping[str, Any], source: str) -> Choose:
    """A rule of plain values, as the key ``choose`` holds them. Raises ``ParameterError``."""
    try:
        return _OfChoice.model_validate({"choose": values}).choose or Choose.model_validate(values)
    except pydantic.ValidationError as error:
        raise explain(error, source, {}) from None
