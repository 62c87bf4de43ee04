"""The probe of torch, NCCL and model files, run by real interpreters on real files."""

import hashlib
import json
import struct
import sys
from pathlib import Path

import pytest
from test_probe_serving import BASE, ENV, interpreters

from runbook.hosts.local import LocalHost
from runbook.launch.spec import LaunchSpec
from runbook.probe.ask import Questions, ask_serving

STANDIN_TORCH = """
from types import SimpleNamespace
__version__ = "2.11.0+cu130"
version = SimpleNamespace(cuda="13.0")
cuda = SimpleNamespace(nccl=SimpleNamespace(version=lambda: (2, 28, 9)))
_C = SimpleNamespace(_cuda_getArchFlags=lambda: "sm_90 sm_120")
"""


def ask(interpreter=BASE, env=None, files=(), torch=False):
    spec = LaunchSpec((interpreter, "-m", "server"), {**ENV, **(env or {})}, "/")
    questions = Questions(files=[str(path) for path in files], torch=torch)
    return ask_serving(LocalHost(), spec, questions, "accelerator")


def shard(path: Path, data_bytes: int, kept_bytes: int | None = None) -> None:
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, "w": {"data_offsets": [0, data_bytes]}}
    ).encode()
    kept = data_bytes if kept_bytes is None else kept_bytes
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * kept)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 10\n"


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "a model [1]"
    folder.mkdir()
    config = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": {"hidden_size": 7168, "vocab_size": 163840, "quantization_config": {"b": 4}},
    }
    (folder / "config.json").write_text(json.dumps(config))
    names = [f"model-{n}-of-2.safetensors" for n in (1, 2)]
    index = {"weight_map": {"a": names[0], "b": names[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in names:
        shard(folder / name, 100)
    return folder


@pytest.mark.parametrize("interpreter", interpreters())
def test_every_interpreter_here_tells_of_a_model(interpreter, model):
    found = ask(interpreter, files=[model, "/etc/hostname"])
    assert (found.reason, found.reasons) == ("", {})
    told = found.facts["models"][str(model)]
    assert (told["shards"], told["faults"]) == (2, [])
    assert told["config"]["hidden_size"] == 7168 and told["config"]["quantized"] is True
    assert told["config"]["max_position_embeddings"] is None
    assert found.facts["models"]["/etc/hostname"] is None
    assert found.facts["torch"] is None


def test_every_shard_that_is_not_whole_is_named(model):
    first, second = sorted(model.glob("*.safetensors"))
    second.unlink()
    shard(first, 100, 60)
    (model / "extra.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid")
    (model / "empty.safetensors").write_bytes(b"")
    (model / "garbled.safetensors").write_bytes(struct.pack("<Q", 4) + b"nope")
    (model / "head.safetensors").write_bytes(struct.pack("<Q", 999) + b"{")
    size = first.stat().st_size
    told = ask(files=[model]).facts["models"][str(model)]
    assert told["faults"] == [
        "empty.safetensors is empty",
        "extra.safetensors is a Git LFS pointer",
        "garbled.safetensors has a broken header",
        "head.safetensors is cut off in its header",
        f"{first.name} is cut off: {size} of {size + 40} bytes",
        f"{second.name} is missing",
    ]


@pytest.mark.parametrize(
    ("files", "shards", "faults"),
    [
        ({}, 0, ["it holds no weights"]),
        ({"training_args.bin": b"x"}, 0, ["it holds no weights"]),
        ({"pytorch_model.bin": b"PK" + b"0" * 99}, 1, []),
        ({"pytorch_model.bin": POINTER}, 1, ["pytorch_model.bin is a Git LFS pointer"]),
        (
            {"pytorch_model.bin.index.json": b'{"weight_map": {"w": "a.bin"}}'},
            1,
            ["a.bin is missing"],
        ),
        (
            {"m-00001-of-000003.bin": b"PK", "m-00003-of-000003.bin": b"PK"},
            3,
            ["m-00002-of-000003.bin is missing"],
        ),
        (
            {"pytorch_model.bin": b"PK", "tokenizer.json": POINTER},
            1,
            ["tokenizer.json is a Git LFS pointer"],
        ),
        (
            {"a.safetensors.index.json": b'{"weight_map": ["a"]}'},
            0,
            ["a.safetensors.index.json names no shards", "it holds no weights"],
        ),
    ],
)
def test_weights_of_any_kind_are_there_or_named(tmp_path, files, shards, faults):
    (tmp_path / "config.json").write_text("{}")
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    told = ask(files=[tmp_path]).facts["models"][str(tmp_path)]
    assert (told["shards"], told["faults"]) == (shards, faults)


def test_a_shard_longer_than_its_header_says_is_refused_as_its_loader_does(model):
    first, _ = sorted(model.glob("*.safetensors"))
    first.write_bytes(first.read_bytes() + b"x")
    (fault,) = ask(files=[model]).facts["models"][str(model)]["faults"]
    assert fault.startswith(f"{first.name} is longer than its header says: ")


def test_a_configuration_that_cannot_be_read_is_a_fault(model):
    (model / "config.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    (model / "model.safetensors.index.json").write_text("[]")
    told = ask(files=[model]).facts["models"][str(model)]
    assert told["config"] is None
    assert told["faults"] == [
        "config.json is no JSON: cut off, or a Git LFS pointer",
        "model.safetensors.index.json holds no object",
    ]


def test_torch_is_imported_only_when_asked(tmp_path):
    (tmp_path / "torch.py").write_text(STANDIN_TORCH)
    env = {"PYTHONPATH": str(tmp_path)}
    assert ask(env=env).facts["torch"] is None
    told = ask(env=env, torch=True).facts["torch"]
    assert told == {
        "version": "2.11.0+cu130",
        "cuda": "13.0",
        "arch_list": ["sm_90", "sm_120"],
        "nccl": "2.28.9",
        "nccl_loaded": [],
    }


def test_torch_that_fails_leaves_a_reason(tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: not found')")
    found = ask(env={"PYTHONPATH": str(tmp_path)}, torch=True)
    assert found.facts["torch"] is None
    assert "libcudart.so.13: not found" in found.why_unknown("torch")


def test_every_nccl_on_the_path_is_found(tmp_path):
    library = tmp_path / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"")
    env = {"PYTHONPATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path / "none")}
    assert str(library) in ask(env=env).facts["nccl"]["libraries"]


def test_nccl_files_are_told_with_their_settings(tmp_path):
    conf, graph = tmp_path / "nccl.conf", tmp_path / "graph.xml"
    conf.write_text("# tuned\nNCCL_PROTO=LL\n\n")
    gpus = "".join(f'<gpu dev="{n}"/>' for n in (0, 1, 2, 1))
    graph.write_text(f'<graphs version="1"><graph id="0">{gpus}</graph></graphs>')
    found = ask(env={"NCCL_CONF_FILE": str(conf), "NCCL_GRAPH_FILE": str(graph)}).facts
    assert found["nccl_conf"][str(conf)]["lines"] == ["NCCL_PROTO=LL"]
    digest = hashlib.sha256(graph.read_bytes()).hexdigest()
    assert found["nccl_graph"] == {"path": str(graph), "sha256": digest, "gpus": 3}
    gone = ask(env={"NCCL_GRAPH_FILE": str(tmp_path / "gone")}).facts["nccl_graph"]
    assert gone["why"] == "No such file or directory"
    assert ask(interpreter=sys.executable).facts["nccl_graph"] == {"path": ""}
