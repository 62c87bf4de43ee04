"""The plan document belongs to the operator: outside the one block no byte changes."""

import datetime
import json
import stat

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from runbook.errors import BadInput, Blocked, HostFailed
from runbook.hosts import LocalHost
from runbook.publish.plan_document import block, is_edited, update, update_on

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

TODAY = datetime.date(2026, 11, 30)


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "plans").mkdir()
    return tmp_path / "plans" / "plan.md"


def test_the_block_says_result_date_and_a_link_that_resolves(run, plan):
    text = block(run.path, TODAY)
    assert text.startswith("### Go-live of rehearsal, 2026-11-30")
    assert "ngram-lean: +16.3 %" in text
    assert "[production_v2.md](production_v2.md)" in text
    values = run.params.model_dump(mode="json")
    values["server"]["cwd"] = "/srv"
    values["record"] = {"document": "record/the record.md", "plan": "plans/plan.md"}
    run.write("params.yaml", json.dumps(values))
    assert "[the record.md](../record/the%20record.md)" in block(run.path, TODAY)


def test_without_a_document_there_is_no_link(run):
    values = run.params.model_dump(mode="json")
    values["record"] = {"document": None, "plan": "/x/plan.md"}
    run.write("params.yaml", json.dumps(values))
    assert "Record" not in block(run.path, TODAY)


def test_writing_it_again_changes_nothing(run, plan):
    text = block(run.path, TODAY)
    assert update_on(LocalHost(), str(plan), text) == f"{plan}: the block was inserted"
    before = plan.stat().st_mtime_ns
    assert update_on(LocalHost(), str(plan), text) == f"{plan}: the block was up to date"
    assert plan.stat().st_mtime_ns == before
    assert update_on(LocalHost(), str(plan), "other") == f"{plan}: the block was replaced"


def test_a_plan_behind_a_link_keeps_link_mode_and_text(plan, tmp_path):
    real = tmp_path / "real.md"
    real.write_bytes(b"# Plan\r\nmine\r\n")
    real.chmod(0o640)
    plan.symlink_to(real)
    update_on(LocalHost(), str(plan), BLOCK)
    assert plan.is_symlink()
    assert real.read_bytes().startswith(b"# Plan\r\nmine\r\n\r\n<!-- golive-runbook:begin")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_block_edited_by_hand_is_told_and_kept(plan):
    update_on(LocalHost(), str(plan), BLOCK)
    edited = plan.read_text().replace("lean", "mine")
    plan.write_text(edited)
    said = update_on(LocalHost(), str(plan), BLOCK)
    assert "edited by hand, the old text is kept as plan.md.orig-1" in said
    assert (plan.parent / "plan.md.orig-1").read_text() == edited
    assert "mine" not in plan.read_text()


def test_two_blocks_are_named_with_the_file(plan):
    plan.write_bytes(2 * update(None, "a"))
    with pytest.raises(Blocked, match=r"plans/plan\.md: the plan document holds 2 blocks"):
        update_on(LocalHost(), str(plan), BLOCK)


def test_what_the_host_refuses_is_said(plan):
    plan.symlink_to(plan.with_name("b"))
    plan.with_name("b").symlink_to(plan)
    with pytest.raises(HostFailed, match="symbolic links"):
        update_on(LocalHost(), str(plan), BLOCK)
    with pytest.raises(BadInput, match="no absolute path"):
        update_on(LocalHost(), "plan.md", BLOCK)
