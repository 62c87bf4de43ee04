"""The document: from notebooks really executed, whole, half-finished, failed, moved and edited."""

import base64
import json
import os
import platform
import re
import shutil
import stat
import warnings
from pathlib import Path

import nbformat
import pytest
from markdown_it import MarkdownIt

from runbook import atomic
from runbook.errors import BadInput, RunbookWarning
from runbook.hosts import LocalHost
from runbook.publish import document
from runbook.publish.outline import OUTLINE
from runbook.publish.seal import is_edited, unsealed
from runbook.run import clone_root, process_mark

GFM = MarkdownIt("gfm-like", {"linkify": False})
GOLDEN = Path(__file__).with_name("golden_production_v2.md")
PNG = b"\x89PNG\r\n\x1a\n"


def tokens(text):
    return [t for token in GFM.parse(text) for t in (token, *(token.children or []))]


def kinds(text):
    return {token.type for token in tokens(text)}


def links(text):
    found = tokens(text)
    images = [token.attrs["src"] for token in found if token.type == "image"]
    return images + [token.attrs["href"] for token in found if token.type == "link_open"]


def headings(text):
    found = GFM.parse(text)
    return [
        found[at + 1].content
        for at, token in enumerate(found)
        if token.type == "heading_open" and token.tag == "h2"
    ]


def section(text, title):
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip()


def change_step(run, name, **change):
    stored = run.read_json("run.json")
    for step in stored["steps"]:
        if step["name"] == name:
            step.update(change)
    run.write_json("run.json", stored)


def set_todo(run, done, then, status, reason=""):
    """The first ``done`` steps completed, the next as given, the others pending."""
    stored = run.read_json("run.json")
    for at, step in enumerate(stored["steps"]):
        if at >= done:
            step.update(status="pending", reason="", started=None, ended=None)
        if step["name"] == then:
            step.update(status=status, reason=reason)
    run.write_json("run.json", stored)


def neutral(text, run):
    """What changes from run to run, replaced by its name."""
    text = text.replace(str(run.path), "RUN").replace(run.params.identity(), "IDENTITY")
    text = text.replace(f"on `{platform.node()}` in the clone `{clone_root()}`", "on HOST in CLONE")
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
    text = re.sub(
        r"\| (Python of the runbook|packages|commit of the project) \| .*", r"| \1 | X |", text
    )
    text = re.sub(r"at commit `[^`]*`", "at commit `X`", text)
    text = re.sub(r"```yaml\n.*?```", "```yaml\nPARAMETERS\n```", text, flags=re.DOTALL)
    return re.sub(r"[0-9a-f]{64}", "DIGEST", text)


@pytest.fixture(scope="module")
def text(finished, tmp_path_factory):
    """The document of the complete run as it is, rendered once."""
    return document.export(finished, tmp_path_factory.mktemp("record") / "r.md").read_text()


# --- a complete run ---------------------------------------------------------------------------


def test_the_document_of_a_complete_run_is_as_it_was_read_by_a_person(run):
    text = neutral(document.export(run.path).read_text(), run)
    if not GOLDEN.exists():
        GOLDEN.write_text(text)
        pytest.fail("golden file written: read it, commit it")
    assert text == GOLDEN.read_text()


def test_it_says_by_which_versions_it_was_measured_and_by_which_exported(run):
    stored = run.read_json("run.json")
    stored["versions"] = {**stored["versions"], "commit": "c0ffee"}
    run.write_json("run.json", stored)
    (run.path / "05_publish.ipynb").unlink()
    text = document.export(run.path).read_text()
    assert "| commit of the project | c0ffee |" in text
    assert "| commit of the project, at the export |" in text
    assert "| packages, at the export |" not in text
    assert "at commit `c0ffee`" in section(text, "How to repeat the run")


def test_sections_stand_in_their_one_order(text):
    assert headings(text) == [one.title for one in OUTLINE]


def test_it_is_clean_markdown(text):
    for parser in (GFM, MarkdownIt("commonmark")):
        assert not {token.type for token in parser.parse(text)} & {"html_block"}
        assert "html_inline" not in str(parser.parse(text))
    assert "\x1b" not in text
    assert "\n\n\n" not in re.sub(r"```.*?```", "X", text, flags=re.DOTALL)
    assert text.endswith("`\n")


def test_what_a_server_says_is_shown_to_the_letter(text):
    cells = [token for token in GFM.parse(section(text, "Stack")) if token.type == "inline"]
    shown = ["".join(child.content for child in cell.children) for cell in cells]
    assert shown[-1] == "<script>alert(1)</script> | `x` red"


def test_every_table_is_parsed_as_one(text):
    parsed = [token for token in GFM.parse(text) if token.type == "table_open"]
    drawn = re.findall(r"^\| :?---", text, re.MULTILINE)
    assert len(parsed) == len(drawn) > 8


def test_code_prose_and_noise_of_the_notebooks_stay_there(text):
    for absent in ("sections.", "injected", "Path(", "Prose of the notebook", "of a cell"):
        assert absent not in text


def test_every_link_resolves_also_where_the_document_is_moved(run, tmp_path):
    here = document.export(run.path)
    there = document.export(run.path, tmp_path / "elsewhere" / "record.md")
    for path, folder in ((here, "figures"), (there, "record.md.figures")):
        found = links(path.read_text())
        assert f"{folder}/throughput_by_concurrency.png" in found
        for link in found:
            assert (path.parent / link).read_bytes().startswith(PNG)
    assert here.read_text().splitlines()[:20] == there.read_text().splitlines()[:20]


def test_figures_have_words(text):
    images = [token for token in tokens(text) if token.type == "image"]
    assert "baseline 17.42 at C=1" in "".join(image.content for image in images)


def test_it_is_readable_by_its_owner_only(run, tmp_path):
    for path in (document.export(run.path), document.export(run.path, tmp_path / "d" / "r.md")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for link in links(path.read_text()):
            assert stat.S_IMODE((path.parent / link).stat().st_mode) == 0o600


def test_the_verdict_is_three_lines(text):
    lines = section(text, "Verdict").splitlines()
    assert len(lines) == 3
    assert "ngram-lean: +16.3 % (95 %: +13.3 % to +19.5 %, 4 blocks)" in lines[0]
    assert "3 proofs: 2 proved, 1 not provable here" in lines[1]
    assert "Complete" in lines[2]


def test_the_rehearsal_says_that_it_is_not_eagle3(text):
    assert "n-gram drafting (`ngram-simple`), not EAGLE-3" in text.partition("## Verdict")[0]


def test_an_override_is_shown_with_reason_and_name(run):
    values = run.params.model_dump(mode="json")
    values["choose"]["override"] = {"choose": "ngram-wide", "reason": "a | trial", "by": "Ada"}
    run.write("params.yaml", json.dumps(values))
    text = document.export(run.path).read_text()
    assert r"ngram-wide, by override of Ada: a \| trial. The figures say: ngram-lean" in text


# --- unfinished runs ----------------------------------------------------------------------------


def test_a_failed_run_says_where_and_why(run):
    set_todo(run, 1, "benchmark", "failed", "server died:\nline 1\nout of memory")
    for name in ("cells.csv", "service/manifest.json", "service/proofs.json"):
        (run.path / name).unlink()
    for number in (2, 3, 4, 5):
        next(run.path.glob(f"0{number}_*")).unlink()
    text = document.export(run.path).read_text()
    assert "**FAILED at benchmark: server died**" in text.splitlines()[:4]
    *_, last = section(text, "Verdict").split("\n\n")
    assert "3. **Run.** FAILED at benchmark: server died.\n" in section(text, "Verdict") + "\n"
    assert last == "```\nserver died:\nline 1\nout of memory\n```"
    assert text.count("out of memory") == 1
    assert section(text, "Benchmark") == "Not reached: benchmark failed: server died"
    assert section(text, "Proofs") == "Not reached: the run failed at benchmark."
    assert section(text, "Stack").startswith("| check")


def test_a_long_reason_is_cut_in_the_head_and_whole_below(run):
    set_todo(run, 1, "benchmark", "failed", " ".join(f"word{number}" for number in range(90)))
    lines = document.export(run.path).read_text().splitlines()
    assert len(lines[2]) < 340
    assert lines[2].endswith(" ...**")
    assert sum("word89" in line for line in lines) == 1


def test_a_draft_says_that_the_service_is_not_installed(run):
    set_todo(run, 3, "draft", "in_progress")
    change_step(run, "draft", owner=process_mark(os.getpid()))
    shutil.rmtree(run.path / "service")
    text = document.export(run.path).read_text()
    assert "**DRAFT: the service is not installed yet**" in text.splitlines()[:4]
    assert section(text, "Service") == "Not reached: install_service has not been started."
    assert section(text, "Operations") == "Not reached: install_service has not been started."
    assert "+16.3" in section(text, "Decision")
    assert "runbook run" in section(text, "How to repeat the run")


def test_notebooks_of_an_earlier_pass_are_not_taken_for_this_one(run):
    set_todo(run, 1, "benchmark", "failed", "Ctrl-C")
    text = document.export(run.path).read_text()
    assert section(text, "Decision") == "Not reached: the run failed at benchmark."


def test_a_skipped_service_says_why(run):
    for step in ("install_service", "boot"):
        change_step(run, step, status="skipped", reason="no --apply")
    (run.path / "04_install_service.ipynb").unlink()
    text = document.export(run.path).read_text()
    assert "**DRAFT: the service is not installed: no --apply**" in text
    assert section(text, "Proofs").startswith("**Unfinished: install_service was skipped: no ")
    shutil.rmtree(run.path / "service")
    text = document.export(run.path).read_text()
    assert section(text, "Service") == "Not reached: install_service was skipped: no --apply"


def test_a_dead_owner_reads_as_interrupted(run):
    change_step(run, "benchmark", status="in_progress", owner="1:1:gone")
    assert "INTERRUPTED at benchmark: its process is gone" in document.export(run.path).read_text()


def test_a_folder_that_is_no_run_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="no run folder"):
        document.export(tmp_path)


def test_a_damaged_notebook_is_named(run):
    (run.path / "02_benchmark.ipynb").write_text("{")
    with pytest.raises(BadInput, match=r"02_benchmark\.ipynb is no notebook"):
        document.export(run.path)


# --- outputs of every kind ----------------------------------------------------------------------


def exported(run, outputs, **metadata):
    """The section "Stack" of a document whose one cell has these outputs."""
    cell = nbformat.v4.new_code_cell("x", metadata={"record": "stack", **metadata})
    cell.outputs = [nbformat.from_dict(output) for output in outputs]
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), run.path / "01_verify_stack.ipynb")
    return section(document.export(run.path).read_text(), "Stack")


def display(**data):
    return {
        "output_type": "display_data",
        "metadata": {},
        "data": {key.replace("_", "/", 1): value for key, value in data.items()},
    }


def test_html_is_dropped_for_text(run):
    output = display(text_html="<table><style>x</style></table>", text_plain="a  b")
    assert exported(run, [output]) == "```\na  b\n```"


def test_html_alone_and_widgets_leave_nothing(run):
    widget = display(text_plain="HBox()")
    widget["data"]["application/vnd.jupyter.widget-view+json"] = {}
    assert exported(run, [display(text_html="<b>x</b>"), widget]) == ""


def test_colours_are_stripped(run):
    assert exported(run, [display(text_markdown="\x1b[31mred\x1b[0m")]) == "red"
    assert exported(run, [display(text_plain="\x1b[31mred\x1b[0m")]) == "```\nred\n```"


def test_streams_show_only_where_wanted(run):
    def stream(name, text):
        return {"output_type": "stream", "name": name, "text": text}

    noise = [stream("stdout", "1 %\r50 %\r100 %\ndone\n"), stream("stderr", "warning\n")]
    assert exported(run, noise) == ""
    assert exported(run, noise, record_streams=True) == "```\n100 %\ndone\n```"


def test_an_error_shows_its_words_without_the_traceback(run):
    error = {
        "output_type": "error",
        "ename": "NotProved",
        "evalue": "memory: 1 GiB\n  wanted: 3 GiB",
        "traceback": ["\x1b[31mTraceback", "File x.py"],
    }
    assert exported(run, [error]) == "```\nNotProved: memory: 1 GiB\n  wanted: 3 GiB\n```"


def test_a_foreign_image_gets_a_stable_name(run):
    output = display()
    output["data"]["image/png"] = base64.b64encode(PNG).decode()
    assert exported(run, [output]) == "![figure](figures/stack_1.png)"
    assert (run.path / "figures/stack_1.png").read_bytes() == PNG


def test_a_figure_cannot_be_written_outside_the_folder(run):
    output = display()
    output["data"]["image/png"] = ""
    output["metadata"] = {"runbook": {"figure": "../../x.png", "alt": "a ](x) b"}}
    assert exported(run, [output]) == r"![a \](x) b](figures/stack_1.png)"


# --- what lies there already ----------------------------------------------------------------------


def test_exporting_twice_keeps_nothing_and_warns_of_nothing(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        document.export(run.path)
        path = document.export(run.path)
    assert [one.name for one in path.parent.glob("production_v2.md*")] == ["production_v2.md"]


def test_a_document_edited_by_hand_is_kept_and_named(run):
    path = document.export(run.path)
    for number in (1, 2):
        edited = path.read_text().replace("## Known limits", f"My note {number}\n\n## Known limits")
        atomic.write(path, edited)
        with pytest.warns(RunbookWarning, match=rf"edited by hand.*orig-{number}"):
            document.export(run.path)
        assert path.with_name(f"production_v2.md.orig-{number}").read_text() == edited
    assert "My note" not in path.read_text()


def test_a_file_that_is_not_ours_is_kept(run, tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("mine\n")
    with pytest.warns(RunbookWarning, match="not ours"):
        document.export(run.path, path)
    assert (tmp_path / "notes.md.orig-1").read_text() == "mine\n"


def test_a_link_stays_a_link(run, tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "record.md"
    link.symlink_to(tmp_path / "real" / "record.md")
    document.export(run.path, link)
    assert link.is_symlink()
    assert "production record" in link.read_text()


def test_a_folder_cannot_be_the_document(run, tmp_path):
    with pytest.raises(BadInput, match="is a folder"):
        document.export(run.path, tmp_path)


def test_nothing_half_written_is_left(run):
    document.export(run.path)
    assert not [path for path in run.path.rglob(".*") if path.is_file()]


def test_written_on_a_host_with_its_figures(run, tmp_path):
    path = tmp_path / "record" / "production_v2.md"
    said = document.write_on(LocalHost(), run.path, str(path))
    assert said == f"{path}: written, with 2 figures"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for link in links(path.read_text()):
        assert (path.parent / link).read_bytes().startswith(PNG)
    assert document.write_on(LocalHost(), run.path, str(path)) == said
    assert not (path.parent / "figures").exists()


def test_the_record_of_the_run_before_is_kept_beside_the_new_with_its_figures(
    run, tmp_path, tmp_path_factory
):
    path, last = tmp_path / "production_v2.md", tmp_path / "production_v2.last.md"
    document.write_on(LocalHost(), run.path, str(path))
    before, folder = path.read_text(), tmp_path / "production_v2.md.figures"
    pictures = {one.name: one.read_bytes() for one in folder.iterdir()}
    newer = tmp_path_factory.mktemp("next") / "rehearsal-20261201T000000Z"
    shutil.copytree(run.path, newer)
    (newer / "05_publish.ipynb").unlink()  # it says which run it was
    for _ in range(2):
        document.write_on(LocalHost(), newer, str(path))
        assert "`rehearsal-20261201T000000Z`" in path.read_text()
        shown = last.read_text()
        assert not is_edited(shown)
        assert unsealed(shown).replace(".last.md.figures/", ".md.figures/") == unsealed(before)
        for link in links(shown):
            assert (tmp_path / link).read_bytes() == pictures[Path(link).name]
        assert len(links(shown)) == len(pictures) == 2
    assert not list(tmp_path.glob("*.orig-*"))
    path.write_text(path.read_text().replace("Verdict", "My verdict"))
    said = document.write_on(LocalHost(), run.path, str(path))
    assert said.endswith("kept as production_v2.md.orig-1")
    assert last.read_text() == shown


def test_edited_on_a_host_it_is_kept_and_named(run, tmp_path):
    path = tmp_path / "production_v2.md"
    path.write_text("mine\n")
    said = document.write_on(LocalHost(), run.path, str(path))
    assert said.endswith("kept as production_v2.md.orig-1")
    assert (tmp_path / "production_v2.md.orig-1").read_text() == "mine\n"
