"""Whether torch and the kernels are those that the installed release itself requires. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from runbook.checks import Check, Status
from runbook.engines.base import Seen
from runbook.engines.sglang.releases import Release
from runbook.params import Params

_NAME = "sglang_packages"
_KERNELS = ("sglang-kernel", "sgl-kernel")
#: Another version of these cannot be told to work; of others it is told and no more.
_BUILT_TOGETHER = ("torch", *_KERNELS)


def check_packages(
    params: Params, version: str | None, release: Release | None, seen: Seen
) -> list[Check]:
    """Where GPUs are asked for: one check a package that is not as required, else one for all."""
    if params.stack.gpus == 0:
        return []
    installed = {str(canonicalize_name(name)): one for name, one in seen.versions.items()}
    fix = "on the host: runbook facts PARAMS"
    if version is None or "torch" not in installed:
        found = "which packages are installed is not known"
        return [Check(_NAME, "unknown", found, "what the release requires", fix)]
    required = _required(seen) or _read(release.pins if release else ())
    faults = list(_judge(required, installed, f"sglang {version}"))
    if faults:
        return faults
    if not required:
        found = f"what sglang {version} requires is not known: {_say(installed)}"
        return [Check(_NAME, "unknown", found, "what the release requires", fix)]
    return [Check(_NAME, "pass", _say(installed), ", ".join(map(_plain, required)))]


def _judge(
    required: Sequence[Requirement], installed: dict[str, str | None], by: str
) -> Iterator[Check]:
    asked = {str(canonicalize_name(one.name)): one for one in required}
    if not any(installed.get(name) for name in _KERNELS):
        wanted = next((_plain(asked[name]) for name in _KERNELS if name in asked), _KERNELS[0])
        found = "neither sglang-kernel nor sgl-kernel is installed"
        yield Check(_NAME, "fail", found, f"{wanted} ({by})", _install(wanted))
        asked = {name: one for name, one in asked.items() if name not in _KERNELS}
    for name, one in asked.items():
        has = installed.get(name)
        if name in installed and not _is_in(has, one):
            status: Status = "fail" if name in _BUILT_TOGETHER else "warn"
            found = f"{name} {has or 'is not installed'}"
            yield Check(_NAME, status, found, f"{_plain(one)} ({by})", _install(_plain(one)))


def _required(seen: Seen) -> list[Requirement]:
    """What the metadata of the installed release requires of these packages, without its extras."""
    for configuration in seen.told:
        if told := seen.fact(configuration, "requires"):
            read = _read(told)
            return [one for one in read if one.marker is None or one.marker.evaluate({"extra": ""})]
    return []


def _read(lines: Sequence[str]) -> list[Requirement]:
    found = []
    for line in lines:
        try:
            found.append(Requirement(line))
        except InvalidRequirement:
            continue
    return found


def _is_in(version: str | None, required: Requirement) -> bool:
    try:
        return version is not None and required.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _plain(required: Requirement) -> str:
    return f"{canonicalize_name(required.name)}{required.specifier}"


def _say(installed: dict[str, str | None]) -> str:
    told = [f"{name} {installed[name]}" for name in _BUILT_TOGETHER if installed.get(name)]
    return ", ".join(told)


def _install(wanted: str) -> str:
    return f"pip install {wanted!r} for server.interpreter, or stack.checks: {{{_NAME}: warn}}"
