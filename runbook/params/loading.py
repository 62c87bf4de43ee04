"""From a file, papermill's values or ``-p`` to ``Params``, or one error for people."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic

from runbook import strict_yaml
from runbook.errors import ParameterError
from runbook.params.faults import explain, show
from runbook.params.model import Params
from runbook.params.overrides import apply_override
from runbook.redaction import MAX_KEY_BYTES, remember


def load(path: Path, overrides: Sequence[str] = ()) -> Params:
    """Load a parameters file; ``overrides`` are ``KEY=VALUE`` as ``-p`` takes them.

    Raises ``ParameterError`` (exit 2) with file, key, found, wanted and the nearest known key.
    """
    values = strict_yaml.load(path)
    if not isinstance(values, dict):
        raise ParameterError(str(path), "", show(values), "a mapping with the keys of Params")
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
