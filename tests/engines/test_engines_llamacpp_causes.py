"""Why llama.cpp does not start: the real launcher's own words, and what native code prints."""

import socket
import subprocess
import sys

import pytest

from runbook.engines.llamacpp import LlamaCpp
from runbook.rehearsal import serve_llamacpp


def explained(*arguments):
    words = [sys.executable, serve_llamacpp.__file__, "--alias", "x", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    return LlamaCpp().explain_log(done.stdout + done.stderr)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_a_port_that_is_held(model):
    with socket.create_server(("127.0.0.1", 0)) as held:
        said = explained("--port", held.getsockname()[1], "--model", model)
    assert said.startswith("port in use (")
    assert "ss -ltnp" in said


def test_an_address_of_another_host(model):
    said = explained("--port", 31000, "--host", "192.0.2.1", "--model", model)
    assert said.startswith("address that cannot be taken (")


def test_a_model_that_is_not_there_and_one_that_is_none(tmp_path):
    said = explained("--port", 31000, "--model", tmp_path / "absent.gguf")
    assert said.startswith("model path (")
    (tmp_path / "page.gguf").write_text("<!doctype html>")
    said = explained("--port", 31000, "--model", tmp_path / "page.gguf")
    assert said.startswith("model file is broken (")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("tensor 'blk.7.ffn_up.weight' data is not within the file bounds, model is", "broken"),
        ("gguf_init_from_reader: failed to read header", "broken"),
        ("error loading model: unknown model architecture: 'newer'", "another release"),
        ("error loading model: mmap failed: Cannot allocate memory", "out of memory"),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "memory"),
        (
            "llm.service: A process of this unit has been killed by the OOM killer: oom-kill",
            "memory",
        ),
        ("ModuleNotFoundError: No module named 'xllamacpp'", "not installed"),
        ("ImportError: libgomp.so.1: cannot open shared object file: No such file", "library"),
    ],
)
def test_what_native_code_and_systemd_print(line, cause):
    said = LlamaCpp().explain_log(f"srv init: starting\n2026-11-30 host llm[7]: {line}\nat last\n")
    assert cause in said.partition(" (")[0]
    assert line in said


@pytest.mark.parametrize(
    "log",
    [
        "",
        "serve_llamacpp: READY smol after 0.42 s",
        "llama_params_fit: projected to use 900 MiB of host memory",
        "serve_llamacpp: cannot serve: RuntimeError: Failed to init server, please check the input",
    ],
)
def test_what_tells_no_cause_is_given_none(log):
    assert LlamaCpp().explain_log(log) == ""
