"""Checks on a launch: what its interpreter told, against the parameters. Pure.

A launch is judged for every configuration; the worst answer counts, and configurations are named
where they differ. A missing fact is ``unknown``, never a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runbook.checks import Check, Status, counted
from runbook.probe.ask import ServingFacts
from runbook.verify_stack.accelerated import ACCELERATED_CHECKS, check_draft_fits
from runbook.verify_stack.case import Answer, Case, Launch, Missing
from runbook.verify_stack.environment import check_environment, check_tools
from runbook.verify_stack.facts import model_paths
from runbook.verify_stack.gpu_checks import in_range

GIB = 2**30

#: From worst to best, for the answer over several configurations.
_ORDER: tuple[Status, ...] = ("fail", "unknown", "warn", "skipped", "pass")


def _python(launch: Launch) -> Answer:
    wanted = launch.case.stack.python
    python = launch.need("python")
    found = f"{python['version']} ({python['executable']})"
    if python["flags"]:
        found += f", with {', '.join(python['flags'])}"
    fix = "set server.interpreter, or correct stack.python"
    return _in_range(python["version"], wanted), found, wanted or "any version", fix


def _engine_version(launch: Launch) -> Answer:
    return _package(launch, launch.case.distribution, launch.case.stack.engine_version)


def _packages(launch: Launch) -> Answer:
    wanted = launch.case.stack.packages
    if not wanted:
        return "skipped", "none asked for (stack.packages)", "", ""
    return _worst([_package(launch, name, versions) for name, versions in wanted.items()])


def _worst(answers: Sequence[Answer]) -> Answer:
    """The worst of several answers on one thing, and all that are as bad."""
    for status in _ORDER:
        same = [answer for answer in answers if answer[0] == status]
        if same:
            _, found, asked, fixes = zip(*same, strict=True)
            return status, ", ".join(found), ", ".join(asked), fixes[0]
    raise Missing("nothing was asked")


def _package(launch: Launch, name: str, versions: str) -> Answer:
    found = launch.need("packages").get(name)
    wanted = f"{name} {versions or 'of any version'}"
    if found is None:
        fix = f"install it for {launch.spec.interpreter}"
        return "fail", f"{name} is not installed", wanted, fix
    fix = "install a version of that range, or correct the range"
    return _in_range(found, versions), f"{name} {found}", wanted, fix


def _in_range(version: str, wanted: str) -> Status:
    """``unknown`` for what is no version and cannot be compared."""
    good = in_range(version, wanted)
    return "unknown" if good is None else "pass" if good else "fail"


def _cores(launch: Launch) -> Answer:
    cores, wanted = launch.need("cores"), launch.case.stack.min_cores
    found = f"{cores['usable']} of {cores['online']}"
    fix = "more processors, a wider affinity, or a lower stack.min_cores"
    return ("pass" if cores["usable"] >= wanted else "fail"), found, f"{wanted} or more", fix


def _memory(launch: Launch) -> Answer:
    memory = launch.need("memory")["available_bytes"]
    fix = "end what holds memory (ps aux --sort=-rss), or lower stack.min_memory_gib"
    stack = launch.case.stack
    return _room(memory, stack.min_memory_gib, stack.want_memory_gib, "available", fix)


def _disk(launch: Launch) -> Answer:
    """Below the server's own folder room is needed, at its models it is wanted."""
    stack, cwd = launch.case.stack, launch.case.params.server.cwd
    free = {path: room["free_bytes"] for path, room in launch.need("disks").items()}
    places = {cwd: (stack.min_disk_gib, stack.min_disk_gib)}
    for path in model_paths(launch.case.params).values():
        places.setdefault(path, (0.0, stack.want_model_disk_gib))
    answers = [
        _room(free[path], *wanted, f"free at {path}", f"make room (du -xh {path} | sort -h), {or_}")
        for path, wanted in places.items()
        for or_ in [f"or lower stack.{'min' if path == cwd else 'want_model'}_disk_gib"]
    ]
    return _worst(answers)


def _shm(launch: Launch) -> Answer:
    free = launch.need("shm")["free_bytes"]
    fix = "remove leftovers in /dev/shm, enlarge it (mount -o remount,size=), or lower min_shm_gib"
    return _room(
        *(free, launch.case.stack.min_shm_gib, launch.case.stack.want_shm_gib),
        *("free in /dev/shm", fix),
    )


def _room(found: int, least_gib: float, wanted_gib: float, what: str, fix: str) -> Answer:
    """Less than the least fails, less than what is wanted warns."""
    enough = found >= wanted_gib * GIB
    status: Status = "fail" if found < least_gib * GIB else "pass" if enough else "warn"
    wanted = f"{least_gib if status == 'fail' else max(least_gib, wanted_gib):g} GiB or more"
    return status, f"{found / GIB:.1f} GiB {what}", wanted, fix


def _model(launch: Launch) -> Answer:
    return _file(launch, "model", launch.case.stack.model_sha256)


def size(found_bytes: int) -> str:
    """``555.12 GiB``; below a tenth of one ``7.6 MiB``."""
    if found_bytes < GIB / 10:
        return f"{found_bytes / 2**20:.1f} MiB"
    return f"{found_bytes / GIB:.2f} GiB"


def _draft(launch: Launch) -> Answer:
    return _file(launch, "draft", "")


def _file(launch: Launch, role: str, sha256: str) -> Answer:
    path = model_paths(launch.case.params).get(role)
    if path is None:
        return "skipped", f"no {role} in these parameters", "", ""
    file, wanted = launch.need("files")[path], f"{path}, readable"
    if file["kind"] is None or file.get("readable") is False:
        return "fail", f"{path}: {file['why']}", wanted, f"correct server.{role}, or its rights"
    if file["kind"] == "folder":
        model = launch.need("models")[path]
        if model["faults"]:
            fix = f"fetch the {role} again (git lfs pull, or hf download)"
            return "fail", f"{path}: {'; '.join(model['faults'])}", "every file whole", fix
        return _folder(launch, role, wanted, sha256)
    found = f"{size(file['size_bytes'])}, SHA-256 {file['sha256'] or 'not taken'}"
    if not file["size_bytes"]:
        return "fail", f"{path} is empty", wanted, f"fetch the {role} again"
    if sha256 and file["sha256"] is None:
        return "unknown", found, sha256, "raise stack.hash_up_to_gib"
    if sha256 and file["sha256"] != sha256:
        return "fail", found, sha256, "another file than the one that was meant: fetch it again"
    return "pass", found, wanted, ""


def _folder(launch: Launch, role: str, wanted: str, sha256: str) -> Answer:
    path = model_paths(launch.case.params)[role]
    file, model = launch.need("files")[path], launch.need("models")[path]
    status: Status = "unknown" if sha256 else "pass" if file["files"] else "fail"
    found = f"{counted(file['files'], 'file')}, {size(file['size_bytes'])}"
    found += f", {counted(model['shards'], 'shard')}" * bool(model["shards"])
    reach = (model["config"] or {}).get("max_position_embeddings")
    asked = launch.case.stack.context_tokens
    if status == "pass" and role == "model" and reach and reach < asked:
        fix = "lower stack.context_tokens, or take a model that reaches as far"
        return "warn", f"{found}, {reach} positions", f"{asked} positions", fix
    fix = "stack.model_sha256 is for a single file" if sha256 else f"fetch the {role} again"
    return status, found, wanted, fix


def _limits(launch: Launch) -> Answer:
    """A limit that the host clips is another one than asked: nothing is proved with it."""
    limits, spec = launch.need("limits"), launch.spec
    asked = {"nofile": spec.nofile, "memlock": spec.memlock}
    found = {name: limits[name]["soft"] for name in asked}
    if spec.nofile is None and found["nofile"] == launch.need("nr_open"):
        found["nofile"] = "infinity"  # the kernel knows no more open files than nr_open
    wanted = {name: "infinity" if limit is None else limit for name, limit in asked.items()}
    fix = "raise the limits of who starts services, or lower service.nofile and service.memlock"
    least = launch.case.stack.min_nofile
    if found["nofile"] != "infinity" and found["nofile"] < least:
        return "fail", _pairs(found), f"nofile {least} or more", fix
    return ("pass" if found == wanted else "warn"), _pairs(found), _pairs(wanted), fix


def _sitecustomize(launch: Launch) -> Answer:
    parts = [launch.need(name) for name in ("sitecustomize", "usercustomize")]
    wanted = "one, or none, that does not raise; the same for every configuration"
    for part in parts:
        if part["raised"]:
            path = part["candidates"][0]["path"]
            return "fail", f"{path} raised: {part['raised']}", wanted, f"correct {path}"
    found = "; ".join(filter(None, map(_loaded, parts))) or "none"
    set_by = sorted({**launch.need("environment")["set"]}.keys() - {"LC_CTYPE"})
    if set_by:
        found += f"; set at the start of Python: {', '.join(set_by)}"
    if any(len({one["sha256"] for one in part["candidates"]}) > 1 for part in parts):
        return "warn", found, wanted, "remove those that do not win, or the first of them"
    if any(_is_passed_over(part) for part in parts):
        return "warn", found, wanted, "see why Python does not load it: python -v -c ''"
    return "pass", found, wanted, ""


def _is_passed_over(part: Mapping[str, Any]) -> bool:
    return bool(part["candidates"]) and part["loaded"] is None and not part["switched_off"]


def loaded_file(part: Mapping[str, Any]) -> str:
    """The file that Python loads with its hash, empty where it loads none."""
    path = part["loaded"]
    return f"{path} ({_hashes(part).get(path, 'not hashed')})" if path else ""


def _loaded(part: Mapping[str, Any]) -> str | None:
    """The file that was loaded with its hash, and those it shadows."""
    shadowed = {path: digest for path, digest in _hashes(part).items() if path != part["loaded"]}
    others = ", ".join(f"{path} ({digest})" for path, digest in shadowed.items())
    said = [loaded_file(part), f"not loaded: {others}" if others else ""]
    return ", ".join(filter(None, said)) or None


def _hashes(part: Mapping[str, Any]) -> dict[str, str]:
    return {one["path"]: str(one["sha256"])[:12] for one in part["candidates"]}


def _where_gpus_are(judge: Callable[[Launch], Answer]) -> Callable[[Launch], Answer]:
    """``judge``, left out where no GPUs are asked for."""

    def judged(launch: Launch) -> Answer:
        if launch.case.stack.gpus == 0:
            return "skipped", "these parameters use no GPU (stack.gpus: 0)", "", ""
        return judge(launch)

    return judged


def over_launches(name: str, judge: Callable[[Launch], Answer], case: Case) -> Check:
    """The worst answer; configurations are named where their answers differ."""
    answers: dict[str, Answer] = {}
    for config, spec in case.specs.items():
        serving = case.facts.serving.get(config, ServingFacts({}, {}, "it was not asked"))
        try:
            answers[config] = judge(Launch(config, spec, serving, case))
        except Missing as error:
            answers[config] = ("unknown", str(error), "", "")
        except KeyError as error:  # told by another runbook, or asked of another place
            answers[config] = ("unknown", f"what was told does not hold {error}", "", "")
    if not answers:
        return Check(name, "unknown", "no configuration was asked")
    worst = min(answers.values(), key=lambda answer: _ORDER.index(answer[0]))
    status, found, wanted, fix = worst
    if len({answer[:2] for answer in answers.values()}) > 1:
        found = "; ".join(f"{config}: {answer[1]}" for config, answer in answers.items())
    return Check(name, status, found, wanted, "" if status == "pass" else fix)


def same_sitecustomize(case: Case) -> Check:
    """Each launch judged, and all of them with one another."""
    check = over_launches("sitecustomize", _sitecustomize, case)
    loaded = {}
    for config, serving in case.facts.serving.items():
        parts = [serving.facts.get(name) for name in ("sitecustomize", "usercustomize")]
        if all(parts):
            loaded[config] = "; ".join(filter(None, map(_loaded, filter(None, parts)))) or "none"
    if len(set(loaded.values())) < 2 or check.status == "fail":
        return check
    found = "; ".join(f"{config}: {said}" for config, said in loaded.items())
    fix = "give every configuration the same PYTHONPATH and interpreter"
    return Check("sitecustomize", "fail", found, check.wanted or "the same for all", fix)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


#: The checks on one launch by their names.
LAUNCH_CHECKS: dict[str, Callable[[Launch], Answer]] = {
    "python": _python,
    "engine_version": _engine_version,
    "packages": _packages,
    "model": _model,
    "draft": _draft,
    "draft_fits": check_draft_fits,
    "cores": _cores,
    "memory": _memory,
    "disk": _disk,
    "shm": _shm,
    "limits": _limits,
    "tools": check_tools,
    "environment": check_environment,
    **{name: _where_gpus_are(judge) for name, judge in ACCELERATED_CHECKS.items()},
}
