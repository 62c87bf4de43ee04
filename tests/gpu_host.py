"""A box as the inference host of the production case: eight cards, SGLang, a clone, no GPU at all.

Cards and their links answer from ``tests/cases/hosts/eight-cards``, SGLang and torch are stand-ins
in an environment of their own; systemd, interpreter, processes and files are real.

``python tests/gpu_host.py`` makes the records of ``tests/cases/records`` anew, in about 3 minutes.
"""

import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from server_lives import free_port

from runbook.hosts.box import Box

ROOT = Path(__file__).parents[1]
CAPTURED = ROOT / "tests" / "cases" / "hosts" / "eight-cards"
PRODUCTION = ROOT / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml"
CLONE = "/srv/golive-runbook"
#: What SGLang's environment has installed.
VERSIONS = {
    **{"sglang": "0.5.10", "sglang-kernel": "0.4.1", "torch": "2.9.1+cu130", "triton": "3.5.1"},
    **{"flashinfer-python": "0.6.2", "flashinfer-cubin": "0.6.2", "nvidia-nccl-cu13": "2.28.9"},
}


def furnish(box, folder):
    """Make ``box`` such a host; ``folder`` is bound into it and holds what is copied there."""
    _clone(folder / CLONE[1:])
    shutil.copytree(ROOT / "tests" / "standin_host" / "usr", folder / "usr")
    shutil.copytree(ROOT / "tests" / "standin_host" / "root", folder / "root")
    shutil.copytree(CAPTURED, folder / "usr" / "local" / "share" / "captured-host")
    wanted = yaml.safe_load(PRODUCTION.read_text())["server"]
    config = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25"}
    _model(folder / wanted["model"][1:], {**config, "quantization_config": {"bits": 4}})
    _model(folder / wanted["draft"][1:], {"architectures": ["LlamaForCausalLMEagle3"]})
    _packages(folder / "site")
    box.run("sh", "-c", f"cd {folder} && cp -a [!s]* srv shared /")
    box.run("/usr/bin/python3", "-m", "venv", "--without-pip", "/opt/sglang", timeout_s=120)
    box.run("sh", "-c", f"cp -r {folder}/site/. /opt/sglang/lib/python*/site-packages")


def _clone(folder):
    """The files that git has, and the environment they are run with."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout
    for name in names.decode().split("\0"):
        source = ROOT / name
        if source.is_file() and not name.startswith(("tests/", "docs/example-run/")):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    (folder / "outputs").mkdir(exist_ok=True)
    (folder / ".venv").symlink_to(sys.prefix)


def _packages(site):
    """What is installed beside SGLang's interpreter."""
    shutil.copytree(ROOT / "tests" / "standin_host" / "site", site)
    shutil.copytree(ROOT / "tests" / "standin_sglang", site, dirs_exist_ok=True)
    for name, version in VERSIONS.items():
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (site / "nvidia/nccl/lib").mkdir(parents=True)
    (site / "nvidia/nccl/lib/libnccl.so.2").write_bytes(b"in place of a library\n" * 200)


def _model(folder, config):
    """A model of one small shard, whole."""
    folder.mkdir(parents=True)
    sizes = {"hidden_size": 7168, "vocab_size": 163840, "max_position_embeddings": 262144}
    (folder / "config.json").write_text(json.dumps({**config, **sizes}))
    header = json.dumps({"w": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    shard = struct.pack("<Q", len(header)) + header + bytes(4)
    (folder / "model-00001-of-00001.safetensors").write_bytes(shard)
    index = {"weight_map": {"w": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def parameters(**benchmark):
    """The production parameters as an editor leaves them: small sizes, a short benchmark."""
    values = yaml.safe_load(PRODUCTION.read_text())
    values["name"] = "standin-8x-rtx-pro-6000"
    small = {"min_cores": 1, "min_memory_gib": 1, "want_memory_gib": 0, "min_shm_gib": 0}
    values["stack"].update({**small, "want_shm_gib": 0, "min_nofile": 1025})
    values["stack"]["topology"] = "system"
    values["server"].update(port=free_port(), timeouts={"start_s": 60, "stop_s": 20})
    values["server"]["env"]["PYTHONPATH"] = "/root/patches"
    short = {"concurrencies": [1, 10], "requests": 2, "rounds": 1, "warmup_agree": None}
    short["client_lag_ms"] = 1000.0  # tests run beside others
    values["benchmark"].update({**short, "window": "whole", **benchmark})
    values["workload"]["output_tokens"] = 16
    mix = [{"concurrency": 1, "share": 0.15}, {"concurrency": 10, "share": 0.85}]
    values["choose"]["mix"] = mix
    values["service"].update(burst=20, restart_s=1, nofile=16384, memlock=8388608)
    return values


def write_parameters(box, values):
    """What ``cp params/kimi-k2.5-8x-rtx-pro-6000.yaml params/mine.yaml`` and an editor leave."""
    box.write(f"{CLONE}/params/mine.yaml", yaml.safe_dump(values, sort_keys=False))


def run(box, line, timeout_s=600):
    """A line of a shell in the clone, as root of that host; returned whatever its code."""
    script = f"cd {CLONE} && export PYTHONPATH={CLONE} HOME=/root && {line}"
    return box.run("sh", "-c", script, timeout_s=timeout_s, check=False)


#: What the record is made from, where no notebook bears it.
ARTEFACTS = (
    *("run.json", "params.yaml", "stack.json", "workload.json", "launches.json", "cells.csv"),
    *("requests.jsonl", "decision.json", "measured.json"),
    *("service/sglang-kimi.service", "service/diff.txt", "service/manifest.json"),
    *("service/proofs.json", "service/set_by_server.json", "service/guard_said.json"),
    "service/prometheus-alerts.yaml",
)
RUNBOOK = ".venv/bin/runbook"


def make_records(target):
    """One run that chooses and installs, and one left undecided by the same figures."""
    folder = Path(tempfile.mkdtemp())
    tree = folder / "tree"
    tree.mkdir()
    with Box(folder / "box", [ROOT, tree]) as box:
        furnish(box, tree)
        values = parameters()
        values["server"]["port"] = 30000
        write_parameters(box, values)
        box.write("/root/eagle-fast-verify.md", "# EAGLE-3: fast verify\n")
        must(box, f"{RUNBOOK} run params/mine.yaml --to choose --out outputs/chosen")
        must(box, "cp -a outputs/chosen outputs/undecided")
        effects = json.loads(box.read(f"{CLONE}/outputs/chosen/decision.json"))["effects"]
        margin = effects[-1]["ratio"] - 1
        words = f"--from choose --to choose --out outputs/undecided -p choose.margin={margin:.3f}"
        must(box, f"{RUNBOOK} run params/mine.yaml {words}", 1)
        words = "--from install_service --out outputs/chosen --apply"
        must(box, f"{RUNBOOK} run params/mine.yaml {words}")
        for name in ("chosen", "undecided"):
            shutil.rmtree(target / name, ignore_errors=True)
            made = folder / "box" / "upper" / CLONE[1:] / "outputs" / name
            for artefact in (one for one in ARTEFACTS if (made / one).is_file()):
                (target / name / artefact).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(made / artefact, target / name / artefact)
    shutil.rmtree(folder)


def must(box, line, code=0):
    done = run(box, line)
    print(f"$ {line}\n{done.out}{done.err}", flush=True)
    assert done.code == code, line


if __name__ == "__main__":
    make_records(ROOT / "tests" / "cases" / "records")
