"""The plan document belongs to the operator: outside the one block no byte changes."""

import json
import stat

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from runbook.errors import BadInput
from runbook.hosts import LocalHost
from runbook.publish import on_host
from runbook.publish.artefacts import Artefacts
from runbook.publish.plan_document import is_edited, update

BLOCK = "### Result\n\n- **Choice.** lean"
BEGIN, END = b"<!-- golive-runbook:begin", b"<!-- golive-runbook:end -->"
FOREIGN = st.binary(max_size=60) | st.text(st.sampled_from("ab#<!->` \n\r\té"), max_size=60).map(
    str.encode
)


def usable(text):
    assume(b"golive-runbook" not in text)  # hypothesis tries the marks themselves
    assume(b"\x00" not in text and not text.startswith((b"\xff\xfe", b"\xfe\xff")))
    return text


@given(FOREIGN)
def test_inserting_changes_no_byte_before_the_block(text):
    after = update(usable(text), BLOCK)
    assert after.startswith(text)
    added = after[len(text) :]
    assert added.count(BEGIN) == 1
    assert added.strip().startswith(BEGIN)
    assert added.strip().endswith(END)
    assert after.endswith(b"\n") == (text.endswith(b"\n") or not text)


@given(FOREIGN, FOREIGN)
def test_replacing_changes_no_byte_around_the_block(head, tail):
    head, tail = usable(head), usable(tail)
    head = head + b"\n" if head and not head.endswith(b"\n") else head
    inserted = update(head, BLOCK) + tail
    after = update(inserted, "other")
    start, end = inserted.index(BEGIN), inserted.index(END)
    assert after[:start] == inserted[:start]
    assert after[after.index(END) :] == inserted[end:]
    assert b"other" in after
    assert b"lean" not in after[start : after.index(END)]


@given(FOREIGN)
def test_twice_is_once(text):
    once = update(usable(text), BLOCK)
    assert update(once, BLOCK) == once
    assert not is_edited(once)


def test_dos_lines_are_kept():
    after = update(b"# Plan\r\n\r\ntext\r\n", BLOCK)
    assert after.count(b"\n") == after.count(b"\r\n")
    assert not is_edited(after)
    assert update(after, BLOCK) == after


def test_a_file_without_final_newline_stays_without():
    assert update(b"# Plan", BLOCK).startswith(b"# Plan\n\n<!-- golive-runbook:begin")
    assert update(b"# Plan", BLOCK).endswith(END)


def test_a_missing_file_becomes_the_block_alone():
    after = update(None, BLOCK)
    assert after.startswith(BEGIN)
    assert after.endswith(END + b"\n")


def test_the_block_is_invisible_but_for_its_content():
    html = MarkdownIt().render(update(b"# Plan\n", BLOCK).decode())
    assert "<h3>Result</h3>" in html
    assert "sha256" not in html.replace("<!-- golive-runbook:begin sha256", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (update(update(None, "a"), "b") + update(None, "c"), "holds 2 blocks"),
        (b"<!-- golive-runbook:begin -->\nx\n", "half a block"),
        (b"x\n<!-- golive-runbook:end -->\n", "half a block"),
        (b"<!-- golive-runbook:end -->\n<!-- golive-runbook:begin -->\n", "half a block"),
        ("# Plan".encode("utf-16"), "no text in UTF-8"),
    ],
)
def test_what_cannot_be_told_is_refused(text, words):
    with pytest.raises(BadInput, match=words):
        update(text, BLOCK)


def test_a_mark_inside_a_line_is_no_block():
    text = b"see `<!-- golive-runbook:begin -->` and <!-- golive-runbook:end -->\n"
    assert update(text, BLOCK).startswith(text)


def test_an_edit_by_hand_is_seen():
    text = update(b"# Plan\n", BLOCK)
    assert is_edited(text.replace(b"lean", b"wide"))
    assert not is_edited(text.replace(b"# Plan", b"# My plan"))
    assert not is_edited(b"# Plan\n")


# --- on a host --------------------------------------------------------------------------------


@pytest.fixture
def placed(run, tmp_path):
    """A run whose record goes to a folder of this machine."""
    values = run.params.model_dump(mode="json")
    values["server"]["cwd"] = str(tmp_path / "srv")
    values["record"] = {"document": "record/production v2.md", "plan": "plans/plan.md"}
    run.write("params.yaml", json.dumps(values))
    (tmp_path / "srv" / "plans").mkdir(parents=True)
    return run.path, tmp_path / "srv"


def test_relative_paths_start_at_the_servers_folder_and_the_link_resolves(placed):
    run_path, folder = placed
    written = on_host.write_document(LocalHost(), run_path)
    planned = on_host.write_plan(LocalHost(), run_path)
    assert str(written).endswith("production v2.md: written")
    assert planned.changed
    document = folder / "record" / "production v2.md"
    assert document.read_text().startswith("# rehearsal: production record")
    assert (folder / "record/figures/throughput_by_concurrency.png").is_file()
    assert stat.S_IMODE(document.stat().st_mode) == 0o600
    text = (folder / "plans/plan.md").read_text()
    tokens = [child for token in MarkdownIt().parse(text) for child in token.children or []]
    link = next(token.attrs["href"] for token in tokens if token.type == "link_open")
    assert link == "../record/production%20v2.md"
    assert "ngram-lean: +16.3 %" in text


def test_writing_the_plan_again_changes_nothing(placed):
    run_path, folder = placed
    on_host.write_plan(LocalHost(), run_path)
    before = (folder / "plans/plan.md").stat().st_mtime_ns
    assert str(on_host.write_plan(LocalHost(), run_path)).endswith("was up to date")
    assert (folder / "plans/plan.md").stat().st_mtime_ns == before


def test_a_plan_behind_a_link_keeps_link_mode_and_text(placed, tmp_path):
    run_path, folder = placed
    real = tmp_path / "real.md"
    real.write_bytes(b"# Plan\r\nmine\r\n")
    real.chmod(0o640)
    (folder / "plans/plan.md").symlink_to(real)
    on_host.write_plan(LocalHost(), run_path)
    assert (folder / "plans/plan.md").is_symlink()
    assert real.read_bytes().startswith(b"# Plan\r\nmine\r\n\r\n<!-- golive-runbook:begin")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_block_edited_by_hand_is_told_and_kept(placed):
    run_path, folder = placed
    on_host.write_plan(LocalHost(), run_path)
    plan = folder / "plans/plan.md"
    edited = plan.read_text().replace("lean", "mine")
    plan.write_text(edited)
    written = on_host.write_plan(LocalHost(), run_path)
    assert "edited by hand, the old text is kept as plan.md.orig-1" in str(written)
    assert (folder / "plans/plan.md.orig-1").read_text() == edited
    assert "mine" not in plan.read_text()


def test_a_document_edited_by_hand_is_told_and_kept(placed):
    run_path, folder = placed
    document = folder / "record" / "production v2.md"
    document.parent.mkdir()
    document.write_text("mine\n")
    written = on_host.write_document(LocalHost(), run_path)
    assert written.kept == "production v2.md.orig-1"
    assert (document.parent / written.kept).read_text() == "mine\n"
    assert on_host.write_document(LocalHost(), run_path).kept is None


def test_two_blocks_are_named_with_the_file(placed):
    run_path, folder = placed
    (folder / "plans/plan.md").write_bytes(2 * update(None, "a"))
    with pytest.raises(BadInput, match=r"plans/plan\.md: the plan document holds 2 blocks"):
        on_host.write_plan(LocalHost(), run_path)


def test_nothing_is_written_where_nothing_is_wanted(run):
    values = run.params.model_dump(mode="json")
    values["record"] = {"document": None, "plan": None}
    run.write("params.yaml", json.dumps(values))
    assert on_host.write_document(LocalHost(), run.path) is None
    assert on_host.write_plan(LocalHost(), run.path) is None
    assert "Record" not in on_host.plan_block(Artefacts.of(run.path))
