"""The committed example: a real rehearsal, whole, that names no place but its own."""

import gzip
import json
import re
from pathlib import Path

import pytest

from runbook.run import Run

EXAMPLE = Path(__file__).parents[1] / "docs" / "example-run"
TEXTS = [path for path in sorted(EXAMPLE.rglob("*")) if path.is_file() and path.suffix != ".png"]


def test_it_is_a_finished_run():
    run = Run.open(EXAMPLE)
    assert run.finished
    assert json.loads((EXAMPLE / "decision.json").read_text())["status"] == "chosen"
    proofs = json.loads((EXAMPLE / "service" / "proofs.json").read_text())
    assert {proof["status"] for proof in proofs} == {"proved"}
    assert len(list(EXAMPLE.glob("0*.ipynb"))) == 5
    assert "(changed)" not in (EXAMPLE / "production_v2.md").read_text()


def test_it_holds_no_box_and_no_lock():
    assert not (EXAMPLE / "box").exists()
    assert not (EXAMPLE / "run.lock").exists()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_it_names_no_foreign_place(path):
    kept = path.read_bytes()
    text = (gzip.decompress(kept) if path.suffix == ".gz" else kept).decode()
    assert not re.findall(
        r"https?://(?!127\.0\.0\.1|github\.com)[\w.-]+", re.sub(r'"\$schema".*', "", text)
    )
    assert not re.search(r"(?<![\w.])/(work|home|mnt|srv)/", text)
    for found in re.findall(r"/opt/[\w-]+", text):
        assert found == "/opt/golive-runbook"
    assert ".pyenv" not in text


def test_its_record_is_whole():
    text = (EXAMPLE / "production_v2.md").read_text()
    assert "Not reached" not in text
    assert "Complete: measured, chosen and installed" in text
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (EXAMPLE / link).is_file()


def test_the_readme_shows_the_choice_of_this_run():
    readme = " ".join((EXAMPLE.parents[1] / "README.md").read_text().split())
    assert json.loads((EXAMPLE / "decision.json").read_text())["reason"] in readme
    proofs = json.loads((EXAMPLE / "service" / "proofs.json").read_text())
    assert f"{len(proofs)} of {len(proofs)} proved" in readme
