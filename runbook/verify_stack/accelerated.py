"""Checks on what is between a launch and its cards: torch, kernels, NCCL and its files. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packaging.utils import canonicalize_name

from runbook.checks import Status, counted
from runbook.verify_stack.case import Answer, Launch, Missing
from runbook.verify_stack.commands import IOMMU_GROUPS
from runbook.verify_stack.facts import model_paths
from runbook.verify_stack.gpu_checks import in_range

#: The oldest driver that runs a major release of CUDA.
DRIVER_OF_CUDA = {"12": ">=525", "13": ">=580"}

_UNCHECKED = "FLASHINFER_DISABLE_VERSION_CHECK"


def check_torch(launch: Launch) -> Answer:
    """Built for CUDA, with kernels for the cards, and for a CUDA that the driver can run."""
    torch, stack = launch.need("torch"), launch.case.stack
    cap = stack.compute_cap or _cap_of(launch)
    sm = "sm_" + cap.replace(".", "") if cap else ""
    found = f"{torch['version']}, CUDA {torch['cuda'] or 'none'}, {' '.join(torch['arch_list'])}"
    wanted = f"built for CUDA, with kernels for {sm or 'these cards'}"
    fix = f"install a build of torch for these cards for {launch.spec.interpreter}"
    if not torch["cuda"] or (sm and not _runs_on(sm, torch["arch_list"])):
        return "fail", found, wanted, fix
    old = [version for version in _drivers(launch) if _is_too_old(version, torch["cuda"])]
    if old:
        needed = DRIVER_OF_CUDA[torch["cuda"].split(".")[0]]
        return "fail", f"{found}; driver {old[0]}", f"driver {needed}", "install a newer driver"
    if sm.startswith("sm_12") and in_range(torch["cuda"], "<13"):
        return "warn", found, "CUDA 13 for these cards", fix
    return "pass", found, wanted, ""


def _cap_of(launch: Launch) -> str:
    gpus = (launch.case.reading("gpus").value or {"gpus": []})["gpus"]
    return next((gpu["compute_cap"] for gpu in gpus if gpu["compute_cap"]), "")


def _drivers(launch: Launch) -> list[str]:
    gpus = (launch.case.reading("gpus").value or {"gpus": []})["gpus"]
    return [gpu["driver_version"] for gpu in gpus if gpu["driver_version"]]


def _is_too_old(driver: str, cuda: str) -> bool:
    return in_range(driver, DRIVER_OF_CUDA.get(cuda.split(".")[0], "")) is False


def _runs_on(sm: str, arch_list: list[str]) -> bool:
    """Whether kernels for ``sm`` are built in: for it ("sm_120a"), or for a card of its generation
    that is not newer, without features of that card alone ("sm_86", "sm_120f")."""
    generation, minor = sm[:-1], sm[-1]
    built = [re.fullmatch(rf"{generation}(\d)([af]?)", name) for name in arch_list]
    return any(
        one[1] == minor or (one[1] <= minor and one[2] != "a") for one in built if one is not None
    )


def check_kernels(launch: Launch) -> Answer:
    """The packages that hold kernels are of one release each."""
    given = launch.need("packages")
    packages = {str(canonicalize_name(name)): version for name, version in given.items()}
    wanted = "the parts of FlashInfer of one version, one package of SGLang's kernels"
    parts = {name: v for name, v in packages.items() if name.startswith("flashinfer") and v}
    found = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    if len({version.partition("+")[0] for version in parts.values()}) > 1:
        return (
            "fail",
            found,
            wanted,
            "install all parts of FlashInfer of one version",
        )
    if packages.get("sgl-kernel") and packages.get("sglang-kernel"):
        return "warn", found, wanted, "remove sgl-kernel: newer releases call it sglang-kernel"
    if launch.case.variables()[launch.name].get(_UNCHECKED):  # any text counts, "0" too
        return "warn", f"{found}; {_UNCHECKED} is set", wanted, f"take {_UNCHECKED} out of env"
    return "pass", found or "none", wanted, ""


def check_nccl(launch: Launch) -> Answer:
    """The NCCL that torch really loads, and whether another one lies in wait."""
    torch, nccl, stack = launch.need("torch"), launch.need("nccl"), launch.case.stack
    version = torch["nccl"]
    if version is None:
        raise Missing("torch does not tell its NCCL")
    loaded = torch["nccl_loaded"]
    found = f"{version} from {', '.join(loaded) or 'torch itself'}"
    wanted = f"one NCCL {stack.nccl or 'of any version'}"
    if in_range(version, stack.nccl) is False:
        return "fail", found, wanted, "install another build of nvidia-nccl, as SGLang pins it"
    packaged = {value for value in nccl["packages"].values() if value}
    others = sorted({*nccl["libraries"]} - {*loaded})
    odd = [f"packages say {', '.join(sorted(packaged))}"] if packaged - {version} else []
    odd += [f"also on disk: {', '.join(others)}"] if others else []
    odd += [f"LD_PRELOAD={nccl['preload']}"] if "nccl" in nccl["preload"] else []
    fix = "keep one libnccl, or name the one that is meant in stack.packages"
    return ("warn" if odd else "pass"), "; ".join([found, *odd]), wanted, fix


def check_nccl_conf(launch: Launch) -> Answer:
    """Files that set NCCL's variables unseen. A launch by hand as root may read other ones."""
    files, roots = launch.need("nccl_conf"), _lines_of_root(launch)
    wanted = "none: every variable of NCCL in server.env"
    fix = "move the settings into server.env and remove the file"
    shown = "; ".join(f"{path}: {_conf(conf)}" for path, conf in files.items())
    own = {line for conf in files.values() for line in conf.get("lines", [])}
    if roots - own and not any("why" in conf for conf in files.values()):
        found = f"{shown or 'none'}; but root reads {', '.join(sorted(roots - own))}"
        return "fail", found, "the same for root and for the service's user", fix
    return ("warn" if files else "pass"), shown or "none", wanted, fix


def _conf(conf: Mapping[str, Any]) -> str:
    return str(conf.get("why") or ", ".join(conf["lines"]) or "empty")


def _lines_of_root(launch: Launch) -> set[str]:
    settings = launch.case.value("settings")
    if IOMMU_GROUPS not in settings:
        raise Missing("root's files: settings are cut off")
    files = [lines for path, lines in settings.items() if path.endswith("nccl.conf")]
    return {line for lines in files for line in lines if line and not line.startswith("#")}


def check_nccl_graph(launch: Launch) -> Answer:
    """A graph of NCCL that is named is there. For how many cards it must be knows the engine."""
    graph, wanted = launch.need("nccl_graph"), "a graph that can be read"
    if not graph["path"]:
        return "skipped", "NCCL_GRAPH_FILE is not set", "", ""
    if "why" in graph:
        fix = "correct NCCL_GRAPH_FILE, or give the service's user the right to read it"
        return "fail", f"{graph['path']}: {graph['why']}", wanted, fix
    found = f"{graph['path']} ({counted(graph['gpus'], 'GPU')}, SHA-256 {graph['sha256'][:12]})"
    fix = "write the graph again with NCCL_GRAPH_DUMP_FILE on all the cards that serve"
    return ("pass" if graph["gpus"] else "fail"), found, wanted, fix


def check_collective(launch: Launch) -> Answer:
    """All cards really reach one another with what was sent, in a time that was recorded before."""
    trial, stack = launch.need("collective"), launch.case.stack
    wanted = f"an answer within {stack.collective_s:g} s"
    if trial.get("wrong"):
        return "fail", _wrong_data(trial["wrong"]), _AS_SENT, _WRONG_DATA
    if not trial["us"]:
        after = f"; at work afterwards: GPU {', '.join(trial['busy_after'])}"
        found = "no all-reduce: " + (trial["said"] or "no answer in time, NCCL hangs")
        fix = "see topology, acs, iommu; try NCCL_P2P_DISABLE=1; reset cards that stay at work"
        return "fail", found + after * bool(trial["busy_after"]), wanted, fix
    recorded, found = stack.collective_us, _times(trial["us"])
    if recorded:
        wanted = f"at most {stack.collective_slower:g} times as recorded: {_times(recorded)}"
    if any(
        trial["us"].get(size, 0) > stack.collective_slower * us for size, us in recorded.items()
    ):
        return "warn", found, wanted, "compare NCCL's variables, its graph, driver and topology"
    if unmeasured := [size for size in recorded if size not in trial["us"]]:
        found = f"{found}; {', '.join(map(_size, unmeasured))} not measured"
        fix = f"record stack.collective_us at the sizes that are measured: {', '.join(trial['us'])}"
        return "warn", found, wanted, fix
    if not trial.get("compared"):
        fix = "capture it again: this probe timed the answers and never looked at the data"
        return "warn", f"{found}; what arrived was not compared", _AS_SENT, fix
    return "pass", f"{found}; all {trial['compared']} answers are what was sent", wanted, ""


def _times(by_size: Mapping[str, float]) -> str:
    """``32 KiB 26 us, 32768 KiB 1400 us``."""
    return ", ".join(
        f"{_size(size)} {us:.0f} us" if us >= 100 else f"{_size(size)} {us:.3g} us"
        for size, us in by_size.items()
    )


def _size(size: str) -> str:
    """A size in bytes, as a key of JSON: in KiB where it is whole KiB."""
    if not (size.isascii() and size.isdigit()):
        return repr(size)
    return f"{size} bytes" if int(size) % 1024 else f"{int(size) >> 10} KiB"


_AS_SENT = "on every rank what was sent"
_WRONG_DATA = (
    "serve nothing on these cards: set NCCL_P2P_DISABLE=1 and ask again; then see acs, iommu, "
    "driver and BIOS, a card or riser alone if one rank is named"
)


def _wrong_data(wrong: Sequence[Mapping[str, Any]]) -> str:
    """The first wrong answer in full, the others by rank, size and sender."""
    sums = [one for one in wrong if one["sender"] is None]
    first = (sums or wrong)[0]
    what = "the sum is" if sums else "what arrived is"
    said = (
        f"{what} not what was sent: {_place(first)}, first wrong element {first['at']}: "
        f"{first['found']}, not {first['wanted']}"
    )
    others = [_place(one) for one in wrong if one is not first]
    more = f" and {len(others) - 8} more" if len(others) > 8 else ""
    return said + f"; also {', '.join(others[:8])}{more}" * bool(others)


def _place(one: Mapping[str, Any]) -> str:
    sent = "" if one["sender"] is None else f" from rank {one['sender']}"
    return f"rank {one['rank']}{sent}, {8 * one['elements']} bytes"


def check_loaded_link(launch: Launch) -> Answer:
    """Links at rest say nothing of their speed: read while all cards send."""
    trial, stack = launch.need("collective"), launch.case.stack
    links = {card["index"]: card for card in trial["links"]}
    told = {
        index: (card["pcie.link.gen.current"], card["pcie.link.width.current"])
        for index, card in links.items()
    }
    if not told or not all(word.isdecimal() for pair in told.values() for word in pair):
        raise Missing("no link could be read under load")
    slow = {
        index: pair
        for index, pair in told.items()
        if int(pair[0]) < stack.pcie_gen or int(pair[1]) < stack.pcie_width
    }
    if not slow and len(told) < stack.gpus:
        raise Missing(f"links of {len(told)} of {counted(stack.gpus, 'GPU')} were read under load")
    shown = slow or told
    found = "; ".join(
        f"GPU {index}: generation {gen} x{lanes}" for index, (gen, lanes) in shown.items()
    )
    wanted = f"generation {stack.pcie_gen}, {stack.pcie_width} lanes under load, at least"
    fix = "reseat the card; see slot, riser and the BIOS setting of the link"
    return ("fail" if slow else "pass"), found, wanted, fix


def check_draft_fits(launch: Launch) -> Answer:
    """The draft's sizes are the target's, and its positions reach the prompts to serve."""
    paths = model_paths(launch.case.params)
    if "draft" not in paths:
        return "skipped", "no draft in these parameters", "", ""
    target, draft = (_config(launch, paths[role]) for role in ("model", "draft"))
    wanted = "a draft of the target's hidden size and vocabulary"
    width = draft["target_hidden_size"] or draft["hidden_size"]
    for name, ours, theirs in (
        ("hidden size", width, target["hidden_size"]),
        ("vocabulary", draft["vocab_size"], target["vocab_size"]),
    ):
        if None not in (ours, theirs) and ours != theirs:
            found = f"{name}: draft {ours}, target {theirs}"
            return "fail", found, wanted, "take the draft that was trained for this target"
    reach, needed = draft["max_position_embeddings"], launch.case.stack.context_tokens
    known = None not in (width, target["hidden_size"])
    found = f"hidden size {width or 'unknown'}, {reach or 'unknown'} positions"
    if needed and (reach or 0) < needed:
        fix = "acceptance falls beyond them: measure at that context, or take another draft"
        status: Status = "warn" if reach else "unknown"
        return status, found, f"{needed} positions", fix
    return ("pass" if known else "unknown"), found, wanted, "see the config.json of both"


def _config(launch: Launch, path: str) -> Mapping[str, Any]:
    model = launch.need("models").get(path)
    if model is None or model["config"] is None:
        raise Missing(f"{path} has no config.json that can be read")
    config: Mapping[str, Any] = model["config"]
    return config


#: Looked at where GPUs are asked for.
ACCELERATED_CHECKS: dict[str, Callable[[Launch], Answer]] = {
    "torch": check_torch,
    "kernels": check_kernels,
    "nccl": check_nccl,
    "nccl_conf": check_nccl_conf,
    "nccl_graph": check_nccl_graph,
    "collective": check_collective,
    "loaded_link": check_loaded_link,
}
