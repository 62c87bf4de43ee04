"""Markdown as the document takes it: no HTML outside code, code to the letter."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from runbook.publish.markup import drop_html, squeeze

GFM = MarkdownIt("gfm-like", {"linkify": False})
HTML = ["<b>", "</b>", "<!-- c -->", "<div>\n", "<?x?>", "<https://a.example>", "\\<"]
CODE = ["`", "``", "```\n", "~~~\n", "    ", "\\`"]
OTHER = ["a", " ", "|", "\\", "\n", "\n\n", "- ", "> ", "1. ", "# "]
PIECES = st.sampled_from([*HTML, *CODE, *OTHER])
TEXT = st.lists(PIECES, max_size=14).map("".join)


def kinds(text):
    return {t.type for token in GFM.parse(text) for t in (token, *(token.children or []))}


@given(TEXT)
@example("a `x\ny` <b> `z`")
@example("- a `x\n- <b> `")
def test_no_html_is_left_outside_code(text):
    assert not kinds(drop_html(text)) & {"html_inline", "html_block"}


@pytest.mark.parametrize(
    "text",
    [
        "a `<b>` c",
        "``a ` <b>``",
        "```html\n<b>\n```\n",
        "~~~\n<b>\n```\n~~~\n",
        "a < b and 1<2, a -> b",
        "see <https://a.example/x>",
        "\\<b>",
        "| `<b>` | x |",
    ],
)
def test_what_is_no_html_stays(text):
    assert drop_html(text) == text


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("<b>x</b>", "&lt;b>x&lt;/b>"),
        ("\\\\<b>", "\\\\&lt;b>"),
        ("`a` <b> `c`", "`a` &lt;b> `c`"),
        ("```\n<b>\n```\n<i>", "```\n<b>\n```\n&lt;i>"),
        ("<!-- x -->", "&lt;!-- x -->"),
    ],
)
def test_html_becomes_text(text, after):
    assert drop_html(text) == after


def test_blank_lines_are_squeezed_outside_fences_only():
    text = "\n\na\n\n \n\n```\n\n\nx\n```\n\n\n\nb\n\n"
    assert squeeze(text) == "a\n\n```\n\n\nx\n```\n\nb\n"


@given(TEXT)
def test_squeezing_twice_is_squeezing_once(text):
    assert squeeze(squeeze(text)) == squeeze(text)
