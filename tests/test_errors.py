"""Every message has a next step: a rule over the source, and over what is said of it."""

import ast
from pathlib import Path

import pytest

from runbook import errors

PACKAGE = Path(errors.__file__).parent
KINDS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.RunbookError)
} - {"ParameterError", "Interrupted"}  # these two make their next step themselves

#: Where the whole message is another's: file and what it hands on.
HANDED_ON = {("notebook.py", "verdict.text")}


def constructions():
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in KINDS and node.args:
                where = str(path.relative_to(PACKAGE))
                yield pytest.param(where, node, id=f"{where}:{node.lineno}")


@pytest.mark.parametrize(("where", "node"), list(constructions()))
def test_every_error_says_what_was_wanted_and_what_to_do(where, node):
    if (where, ast.unparse(node.args[0])) in HANDED_ON:
        return
    given = [*node.args[1:], *(word.value for word in node.keywords)]
    assert len(given) == 2, ast.unparse(node)
    for part in given:
        assert not (isinstance(part, ast.Constant) and not part.value), ast.unparse(node)
        for choice in ast.walk(part):
            if isinstance(choice, ast.IfExp):
                assert not {ast.unparse(choice.body), ast.unparse(choice.orelse)} & {"''", '""'}
        if isinstance(part, ast.Name):
            assert not may_be_empty(part.id, where), ast.unparse(node)


def may_be_empty(name, where):
    """Whether this file sets ``name`` to nothing, by itself or as one of two."""
    for node in ast.walk(ast.parse((PACKAGE / where).read_text())):
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            value = node.value
            parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            if any(isinstance(part, ast.Constant) and part.value == "" for part in parts):
                return True
    return False


def test_the_message_shows_all_three():
    error = errors.BadInput("a is 1", "2", "set a")
    assert str(error) == "a is 1\n  wanted: 2\n  next: set a"
    assert str(errors.ParameterError("f.yaml", "a.b", "1", "2", near="a.c")).endswith(
        "next: did you mean a.c?"
    )
    assert "next: correct a.b in f.yaml" in str(errors.ParameterError("f.yaml", "a.b", "1", "2"))
    assert "next: continue with: runbook run 'r/params.yaml' --resume --out 'r'" in str(
        errors.Interrupted(2, "x", "r")
    )
    assert "--resume --apply --out 'r'" in str(errors.Interrupted(2, "x", "r", apply=True))


def test_the_tree_in_the_docstring_is_the_tree():
    drawn = errors.__doc__
    for name in KINDS:
        assert name in drawn
