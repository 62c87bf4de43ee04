"""The page: whole in itself, the same words as the Markdown, and no markup of strangers."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.hosts import LocalHost
from runbook.publish import document
from runbook.publish.page import page
from runbook.publish.seal import is_edited
from runbook.publish.tables import escape, fence
from runbook.run import Run

VOID = {"meta", "img", "br", "hr"}


class Reader(HTMLParser):
    """Tags, links and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links, self.texts = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [v for k, v in attributes if k in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


@pytest.fixture
def whole(run):
    return document.export(run.path, form="html").read_text()


def test_it_lies_beside_the_markdown_and_holds_its_figures(run, whole):
    text, figures = document.render(run.path)
    read = Reader(whole)
    assert figures
    assert read.tags.count("img") == len(re.findall(r"!\[", text))
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in read.links)


def test_it_fetches_nothing_and_runs_nothing(whole):
    read = Reader(whole)
    assert not {"script", "link", "iframe", "object"} & set(read.tags)
    assert not re.search(r"https?://|@import|url\(", whole)
    assert "default-src 'none'" in whole


def test_it_says_what_the_markdown_says(run, whole):
    text, _ = document.render(run.path)
    read = Reader(whole)
    for title in re.findall(r"^## (.*)$", text, re.M):
        assert title in read.text
    assert read.tags.count("table") == len(re.findall(r"^\| :?-", text, re.M))
    assert not read.open


def test_what_a_server_says_is_shown_to_the_letter(whole):
    read = Reader(whole)
    assert "<script>alert(1)</script> | `x` red" in read.text
    assert "script" not in read.tags


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"])))
def test_any_text_is_text(text):
    read = Reader(page(f"# x\n\n{escape('a ' + text)}\n\n{fence(text)}\n", {}))
    shown = " ".join(("a " + text).split())
    assert shown in read.text
    assert "script" not in read.tags
    assert not read.open


def test_exporting_twice_keeps_nothing_and_an_edited_page_is_kept(run, whole):
    path = run.path / "production_v2.html"
    assert not is_edited(whole)
    document.export(run.path, form="html")
    assert not list(run.path.glob("*.orig-*"))
    path.write_text(whole.replace("Verdict", "My verdict"))
    with pytest.warns(match="edited by hand"):
        document.export(run.path, form="html")
    assert "My verdict" in (run.path / "production_v2.html.orig-1").read_text()


def test_formats_of_the_parameters_are_written_by_themselves(run):
    stored = (run.path / "params.yaml").read_text()
    assert "formats:\n  - markdown" in stored
    changed = stored.replace("formats:\n  - markdown", "formats: [markdown, html]")
    (run.path / "params.yaml").write_text(changed)
    paths = document.export_all(Run.open(run.path).path)
    assert [path.name for path in paths] == ["production_v2.md", "production_v2.html"]
    host, to = LocalHost(), run.path / "host"
    said = document.write_on(host, run.path, str(to / "record.md"))
    assert "record.html beside it" in said
    assert "<!doctype html>" in (to / "record.html").read_text()
