"""The rehearsal with SGLang, as far as it can be looked at without SGLang."""

import json
import shutil
from pathlib import Path

import pytest

from runbook import params
from runbook.benchmark import plan_workload, workload_of
from runbook.engines import Seen, engine_for
from runbook.errors import BadInput, NotHere
from runbook.rehearsal import sglang_on_cpu, tiny_corpus
from runbook.rehearsal.model import resolve_model

ROOT = Path(__file__).parents[2]
REHEARSAL = ROOT / "params" / "rehearsal-sglang.yaml"
UNTRAINED = ROOT / "params" / "rehearsal-sglang-untrained.yaml"


def test_the_prompts_are_those_of_the_corpus(tmp_path):
    tiny_corpus.main(tmp_path / "prompts.jsonl")
    committed = (ROOT / "params" / "rehearsal-sglang.jsonl").read_text()
    assert (tmp_path / "prompts.jsonl").read_text() == committed


def test_every_kind_is_in_the_corpus_and_seeds_repeat():
    first, again = tiny_corpus.exchanges(5), tiny_corpus.exchanges(5)
    found = [next(first) for _ in range(200)]
    assert found == [next(again) for _ in range(200)]
    assert {one.kind for one in found} == set(tiny_corpus.KINDS)
    json_answers = [json.loads(one.answer) for one in found if one.kind == "json"]
    assert all(2 <= len(records) <= 4 for records in json_answers)


def test_no_prompt_of_a_run_is_asked_twice():
    loaded = params.load(REHEARSAL)
    asked = [
        prompt.id
        for cell in plan_workload(loaded, workload_of(loaded.workload).prompts).values()
        for prompt in (*cell.warmup, *cell.measured)
    ]
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("path", [REHEARSAL, UNTRAINED], ids=lambda path: path.stem)
def test_launches_lie_in_the_clone(path):
    loaded = params.load(path)
    engine = engine_for(loaded.server)
    for configuration in loaded.configurations:
        spec = engine.launch_spec(loaded, configuration)
        assert spec.interpreter == str(ROOT / ".venv-sglang" / "bin" / "python")
        assert spec.env["SGLANG_USE_CPU_ENGINE"] == "1"
        folders = [word for word in spec.argv if "tiny_eagle3" in word]
        assert len(folders) == (1 if configuration.name == "baseline" else 2)
        assert all((Path(folder) / "model.safetensors").is_file() for folder in folders)
    workers = [
        check for check in engine.check_stack(loaded, Seen({"sglang": "0.5.23"})) if check.found
    ]
    assert "eagle3-topk4: v2; eagle3-topk1: v2" in [
        check.found.partition("; ")[2] for check in workers if check.name == "sglang_worker"
    ]


def test_a_model_that_was_changed_or_taken_away_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sglang_on_cpu, "interpreter", lambda: "/bin/true")
    folder = tmp_path / "tiny"
    shutil.copytree(sglang_on_cpu.MODELS_FOLDER, folder)
    monkeypatch.setattr(sglang_on_cpu, "MODELS_FOLDER", folder)
    sglang_on_cpu.require()
    (folder / "draft" / "config.json").write_text("{}")
    with pytest.raises(NotHere, match=r"config.json is not the file that was recorded"):
        sglang_on_cpu.require()
    shutil.rmtree(folder)
    with pytest.raises(NotHere, match="make train-tiny-eagle3"):
        sglang_on_cpu.require()


def test_without_sglang_the_command_that_brings_it_is_named(monkeypatch):
    monkeypatch.setattr(sglang_on_cpu, "interpreter", lambda: "/no/such/python")
    with pytest.raises(NotHere, match="make setup-sglang"):
        sglang_on_cpu.require()


def test_an_unknown_embedded_model_gets_the_nearest_name():
    with pytest.raises(BadInput, match=r"did you mean embedded:tiny-eagle3-draft"):
        resolve_model("embedded:tiny-eagle-draft")
