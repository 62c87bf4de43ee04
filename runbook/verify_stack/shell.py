"""What the shell the runbook was started from would give a server, beside what a launch gives it.

Weeks of tuning happen in a shell. A launch inherits nothing of it, so a path to patches or a
setting of NCCL that is only there was not meant to be lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runbook.hosts.base import Host
from runbook.launch.spec import LaunchSpec
from runbook.probe.ask import Questions, ask_serving
from runbook.redaction import is_secret
from runbook.verify_stack.case import Answer, Machine
from runbook.verify_stack.facts import Reading
from runbook.verify_stack.launches import loaded_file

_PATCHES = "PYTHONPATH"
_TELLING = re.compile(
    r"PYTHONPATH|LD_LIBRARY_PATH|LD_PRELOAD|LIBRARY_PATH|CPATH|CC|CXX|HF_HOME"
    r"|(CUDA|NCCL|SGLANG|TORCH\w*|TRITON|FLASHINFER|OMP)_\w+"
)


def read_shell(host: Host, specs: Mapping[str, LaunchSpec]) -> Reading:
    """The variables of this shell that decide how a server runs; where a launch has no path to
    modules and the shell has one, the ``sitecustomize`` that would be loaded with it."""
    if host.kind != "local":
        return Reading(reason="the server runs on another host than this shell", absent=True)
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if _TELLING.fullmatch(name) and not is_secret(name, value)
    }
    loaded: dict[str, Any] = {}
    for config, spec in specs.items():
        if variables.get(_PATCHES) and _PATCHES not in spec.env:
            env = {**spec.env, _PATCHES: variables[_PATCHES]}
            told = ask_serving(host, replace(spec, env=env), Questions())
            loaded[config] = told.facts.get("sitecustomize")
    return Reading({"variables": variables, "sitecustomize": loaded})


def same_as_shell(machine: Machine) -> Answer:
    """Fails where the shell has another ``sitecustomize``; warns of variables it has alone."""
    reading = machine.reading("shell")
    if reading.absent or not reading.asked:
        return "skipped", reading.reason, "", ""
    shell = machine.value("shell")
    wanted = "the launch is given what the server had in this shell, or the shell has nothing"
    fix = "what the server needs belongs into server.env; what it does not need: unset it here"
    for config, there in shell["sitecustomize"].items():
        here = machine.facts.serving[config].facts.get("sitecustomize")
        if here and there and loaded_file(here) != loaded_file(there):
            told, other = (loaded_file(one) or "no sitecustomize" for one in (here, there))
            found = f"{config} loads {told}, with this shell's {_PATCHES} {other}"
            return "fail", found, wanted, f"set {_PATCHES} in server.env, or unset it here"
    alone = {
        name: value
        for name, value in shell["variables"].items()
        if any(spec.env.get(name) != value for spec in machine.specs.values())
    }
    if alone:
        said = ", ".join(f"{name}={value}" for name, value in alone.items())
        return "warn", f"in this shell, and not so in every launch: {said}", wanted, fix
    return "pass", "nothing in this shell that a launch does not have", wanted, ""
