"""The references of docs/ are what the program says today, and leave nothing out."""

import ast
import re
from pathlib import Path

import click
import pytest

from runbook import reference
from runbook.cli import verbs
from runbook.engines import engine_named
from runbook.params import Params
from runbook.reference.checks import LOOKS_AT, OF_SERVERS, engines
from runbook.reference.parameters import model_of
from runbook.verify_stack import CHECKS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", list(reference.PAGES))
def test_it_is_current(name, tmp_path):
    reference.write(tmp_path)
    made = (tmp_path / name).read_text()
    assert (ROOT / "docs" / name).read_text() == made, "next: make reference"


def fields(kind, path=""):
    for name, field in kind.model_fields.items():
        yield f"{path}{name}", field
        below = model_of(field.annotation)
        if below is not None:
            yield from fields(below, f"{path}{name}.")


def test_every_parameter_says_what_it_means():
    silent = [path for path, field in fields(Params) if not field.description]
    assert silent == []


def test_no_parameter_is_described_by_its_own_name_alone():
    for path, field in fields(Params):
        told = set(re.findall(r"\w+", field.description.lower()))
        assert told - {*re.findall(r"[a-z]+", path.lower()), "the", "a", "of"}, path


def test_every_parameter_has_its_row():
    text = reference.parameters().replace("[].", ".")
    for path, field in fields(Params):
        if "." in path or model_of(field.annotation) is None:
            assert f"| `{path}` |" in text


def test_every_verb_and_option_stands_there():
    text = reference.command_line()

    def walk(command, path):
        assert f"## {path}\n" in text
        for one in command.params:
            for option in one.opts if isinstance(one, click.Option) else []:
                assert option in text
        for name, below in getattr(command, "commands", {}).items():
            walk(below, f"{path} {name}")

    walk(verbs, "runbook")


def test_every_check_says_what_it_looks_at():
    named = [*CHECKS, *(name for engine in engines() for name in engine_named(engine).stack_checks)]
    assert list(LOOKS_AT) == named


def test_every_check_on_a_server_says_what_it_looks_at():
    named = set()
    for path in (ROOT / "runbook" / "engines").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Check":
                first = node.args[0]
                named |= {first.value} if isinstance(first, ast.Constant) else set()
    assert named <= {*OF_SERVERS, *LOOKS_AT}
    assert "draft used" in named
