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


def constructions(source):
    """Every error that a source file makes: the call, and what it is made with."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if getattr(node.func, "id", getattr(node.func, "attr", "")) in KINDS:
            yield node, [*node.args[1:], *(word.value for word in node.keywords)]


def lacking(source, where=""):
    """What is wrong with the errors of a source file, by their lines."""
    for node, given in constructions(source):
        if (where, ast.unparse(node.args[0])) in HANDED_ON:
            continue
        if len(given) != 2:
            yield f"{where}:{node.lineno}: {len(given)} instead of what was wanted and what to do"
        for part in given:
            words = [part, *(branch for one in ast.walk(part) for branch in branches(one))]
            empty = any(isinstance(word, ast.Constant) and not word.value for word in words)
            if empty or (isinstance(part, ast.Name) and may_be_empty(part.id, source)):
                yield f"{where}:{node.lineno}: may say nothing: {ast.unparse(part)}"


def branches(node):
    return (node.body, node.orelse) if isinstance(node, ast.IfExp) else ()


def test_every_error_says_what_was_wanted_and_what_to_do():
    wrong, seen = [], 0
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        seen += len(list(constructions(source)))
        wrong += lacking(source, str(path.relative_to(PACKAGE)))
    assert wrong == []
    assert seen > 150


@pytest.mark.parametrize(
    "source",
    [
        "raise BadInput('found')",
        "raise errors.BadInput('found', 'wanted')",
        "raise HostFailed('found', 'wanted', '')",
        "raise HostFailed('found', 'wanted', do='x' if a else '')",
        "do = ''\nraise BadInput('found', 'wanted', do)",
        "do = 'x' if a else ''\nraise BadInput('found', 'wanted', do)",
    ],
)
def test_an_error_that_leaves_one_out_is_found(source):
    assert len(list(lacking(source))) == 1
    assert list(lacking("raise BadInput('found', 'wanted', f'do {this}')")) == []


def may_be_empty(name, source):
    """Whether this file sets ``name`` to nothing, by itself or as one of two."""
    for node in ast.walk(ast.parse(source)):
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
