"""The committed notebooks: thin, parameterised alike, with prose, and without outputs."""

import ast
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from runbook.params import Params
from runbook.pipeline import NOTEBOOKS
from runbook.publish.outline import KEYS

FOLDER = Path(__file__).parents[2] / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
FORBIDDEN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try, ast.While, ast.Lambda)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def is_parameters(cell):
    return "parameters" in cell.metadata.get("tags", [])


def test_they_are_the_stages_in_order():
    assert [path.name for path in BOOKS] == list(NOTEBOOKS.values())


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
class TestEach:
    def test_it_carries_no_outputs(self, path):
        for cell in code_cells(path):
            assert not cell.outputs
            assert cell.execution_count is None

    def test_it_is_thin(self, path):
        cells = code_cells(path)
        assert len(cells) <= 10
        for cell in cells:
            if not is_parameters(cell):
                assert len([line for line in cell.source.splitlines() if line.strip()]) <= 6
            for node in ast.walk(ast.parse(cell.source)):
                assert not isinstance(node, FORBIDDEN), cell.source

    def test_prose_comes_before_every_cell(self, path):
        cells = read(path).cells
        assert cells[0].cell_type == "markdown"
        assert cells[0].source.startswith("# ")
        bare = [
            later.source
            for first, later in pairwise(cells)
            if later.cell_type == "code" and first.cell_type != "markdown"
        ]
        assert not bare

    def test_it_declares_every_parameter_typed_and_commented(self, path):
        (cell,) = [cell for cell in code_cells(path) if is_parameters(cell)]
        names = {
            node.target.id: ast.literal_eval(node.value)
            for node in ast.parse(cell.source).body
            if isinstance(node, ast.AnnAssign)
        }
        assert list(names) == [*Params.model_fields, "run", "figures", "apply"]
        assert not any(names.values())
        lines = [line for line in cell.source.splitlines() if not line.startswith("#")]
        assert all("  # " in line for line in lines)

    def test_papermill_knows_the_type_of_every_parameter(self, path):
        done = subprocess.run(
            [sys.executable, "-m", "papermill", "--help-notebook", str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "Unknown type" not in done.stdout
        for name in [*Params.model_fields, "run", "figures", "apply"]:
            assert f"  {name}: " in done.stdout

    def test_it_opens_its_own_stage_and_ends_with_the_verdict(self, path):
        cells = [cell for cell in code_cells(path) if not is_parameters(cell)]
        assert f'runbook.open_stage("{path.stem[3:]}", globals())' in cells[0].source
        assert cells[-1].source.startswith("work.verdict(")

    def test_its_record_cells_name_sections_of_the_document(self, path):
        for cell in code_cells(path):
            assert cell.metadata.get("record", "verdict") in KEYS


def test_no_cell_may_hang_the_tests():
    """A cell has two minutes, a notebook has five, and figures need no display."""
    (line,) = re.findall(
        r"^\t.*pytest --nbmake .*$", (FOLDER.parent / "Makefile").read_text(), re.M
    )
    (limit_s,) = re.findall(r"--nbmake-timeout=(\d+)", line)
    assert int(limit_s) <= 120
    assert line.endswith(" notebooks tests")
    settings = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())
    assert settings["tool"]["pytest"]["ini_options"]["timeout"] <= 300
    source = "\n".join(path.read_text() for path in (FOLDER.parent / "runbook").rglob("*.py"))
    assert "pyplot" not in re.sub(r'"""?.*?"""?|#.*', "", source, flags=re.S)
