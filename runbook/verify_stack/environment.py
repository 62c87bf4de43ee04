"""Checks on what a launch finds by its environment: programs, compilers, libraries, caches. Pure.

What a shell has and a unit has not ends a start after minutes, in the first kernel that is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runbook.checks import Status, counted
from runbook.launch.spec import MANAGER_SETS
from runbook.verify_stack.case import Answer, Launch, Missing
from runbook.verify_stack.facts import C_COMPILERS

OWN_PREFIX = "RUNBOOK_"
#: Named in the order in which compilers of kernels heed them.
TOOLKITS = ("CUDA_HOME", "CUDA_PATH")
_LIBRARIES = "LD_LIBRARY_PATH"
_ONE_TOOLKIT = "one folder, with the nvcc of torch's CUDA in its bin"
_LEAVE_OUT = "correct server.env.{0}, or leave it out: then nvcc is taken from PATH"


def check_tools(launch: Launch) -> Answer:
    """Each program of ``stack.tools`` is on the launch's PATH, and a C compiler on GPUs."""
    stack = launch.case.stack
    if not stack.tools and not stack.gpus:
        return "skipped", "none asked for (stack.tools)", "", ""
    tools = launch.need("tools")
    gone = [name for name in stack.tools if not tools.get(name)]
    wanted, fix = "each on the server's PATH", "install them, or set server.env.PATH"
    if gone:
        return "fail", f"not on PATH: {', '.join(gone)}", wanted, fix
    found = [str(tools[name]) for name in stack.tools]
    if not stack.gpus:
        return "pass", ", ".join(found), wanted, ""
    compiler, why = _c_compiler(launch.spec.env.get("CC", ""), tools)
    if compiler:
        return "pass", ", ".join([*found, compiler]), f"{wanted}; a C compiler", ""
    fix = "apt install gcc, and its folder on server.env.PATH; or its path in server.env.CC"
    return "fail", why, "a C compiler for Triton's and FlashInfer's kernels", fix


def _c_compiler(named: str, tools: Mapping[str, str | None]) -> tuple[str | None, str]:
    """The C compiler that Triton takes, or why there is none. Raises ``Missing``."""
    names = [named] if named else list(C_COMPILERS)
    unasked = [name for name in names if name not in tools]
    found = next((tools[name] for name in names if tools.get(name)), None)
    if found is None and unasked:
        raise Missing(f"C compiler: nobody looked for {', '.join(unasked)}")
    if named:
        return found, f"CC={named} is no program that can be run"
    other = f" ({tools['cc']} is not looked for)" if tools.get("cc") else ""
    return found, f"no C compiler: neither {' nor '.join(C_COMPILERS)} on PATH{other}"


def check_environment(launch: Launch) -> Answer:
    """No reserved name, nothing changed at the start of Python, and folders that are there."""
    names = set(launch.spec.env)
    taken = sorted(n for n in names if n in MANAGER_SETS - {"LANG"} or n.startswith(OWN_PREFIX))
    wanted = "no reserved variables, nothing changed at the start of Python"
    if taken:
        fix = "take them out of server.env and of the configurations"
        return "fail", f"reserved: {', '.join(taken)}", wanted, fix
    path = launch.spec.env.get("PATH")
    if path is not None and "" in path.split(":"):
        return "fail", f"an empty element in PATH={path}", "absolute folders", "set server.env.PATH"
    for fault in _no_toolkit(launch):
        return fault
    told = launch.need("environment")
    faults = [*_other_toolkit(launch), *_faults_of_folders(launch)]
    for fault in sorted(faults, key=lambda one: one[0] != "fail"):
        return fault
    overridden = sorted({*told["changed"], *told["removed"]} & names)
    if overridden:
        found = f"changed at the start of Python: {', '.join(overridden)}"
        return "warn", found, wanted, "let sitecustomize.py only set what is not set (setdefault)"
    if "LANG" in names:
        return "warn", "LANG is set", wanted, "LANG is not compared: the manager sets it as well"
    return "pass", f"{counted(len(names), 'variable')}, none reserved", wanted, ""


def _toolkit(launch: Launch) -> tuple[str, str]:
    """The variable that names the CUDA toolkit, and its value; empty where none is needed or
    named: then nvcc is taken from PATH."""
    env = launch.case.variables()[launch.name]
    name = next((one for one in TOOLKITS if env.get(one)), "")
    return (name, env[name]) if name and launch.case.stack.gpus else ("", "")


def _no_toolkit(launch: Launch) -> Iterator[Answer]:
    """A value that is no folder, whatever the host has."""
    name, value = _toolkit(launch)
    if name and (":" in value or not value.startswith("/")):
        yield "fail", f"{name}={value} is no folder", _ONE_TOOLKIT, _LEAVE_OUT.format(name)


def _other_toolkit(launch: Launch) -> Iterator[Answer]:
    """Kernels are compiled with ``CUDA_HOME/bin/nvcc``, whatever PATH finds. Raises ``Missing``."""
    name, value = _toolkit(launch)
    if not name:
        return
    toolkit, said, fix = launch.need("toolkit"), f"{name}={value}", _LEAVE_OUT.format(name)
    if toolkit["nvcc"] is None:
        # Without nvcc in stack.tools the kernels may all be built: such a host serves.
        status: Status = "fail" if "nvcc" in launch.case.stack.tools else "warn"
        yield status, f"{said} has no bin/nvcc that can be run", _ONE_TOOLKIT, fix
    elif toolkit["release"] is None:
        raise Missing(f"{toolkit['nvcc']} does not tell its release")
    elif toolkit["on_path_release"] not in (None, toolkit["release"]):
        found = f"{said} is CUDA {toolkit['release']}, {toolkit['on_path']} on PATH is CUDA "
        yield "warn", f"{found}{toolkit['on_path_release']}", _ONE_TOOLKIT, fix


def _faults_of_folders(launch: Launch) -> Iterator[Answer]:
    """Libraries that are looked for where nothing is, caches that the server cannot keep."""
    env, gpus = launch.spec.env, launch.case.stack.gpus
    if not gpus and not env.get(_LIBRARIES):
        return
    folders: Mapping[str, Any] = launch.need("folders")
    gone = [path for path, is_there in folders["libraries"].items() if not is_there]
    if gone:
        found, fix = (
            f"{_LIBRARIES}: not there: {', '.join(gone)}",
            f"correct server.env.{_LIBRARIES}",
        )
        yield "warn", found, "folders that are there", fix
    caches = folders["caches"] if gpus else {}
    wanted = "folders that the service's user may write, and execute in"
    closed = [f"{name} {one['path']}" for name, one in caches.items() if not one["writable"]]
    if closed:
        fix = "give the user the right, or set HOME and TRITON_CACHE_DIR in server.env"
        yield "fail", f"cannot be written: {', '.join(closed)}", wanted, fix
    barred = [f"{name} {one['path']}" for name, one in caches.items() if one["noexec"]]
    if barred:
        fix = "mount it without noexec, or name another folder in server.env (TMPDIR)"
        yield "warn", f"mounted noexec: {', '.join(barred)}", wanted, fix
