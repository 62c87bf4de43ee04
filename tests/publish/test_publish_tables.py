"""Tables: what is untrusted stays text, unknown is said, numbers stand flush right."""

import html
import math
import re

import pandas
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from runbook.publish.lab import as_html
from runbook.publish.tables import Code, Markdown, code, escape, fence, strip_controls, table

GFM = MarkdownIt("gfm-like", {"linkify": False})
NASTY = st.text(
    st.sampled_from(list("`|<>&\\*_~[]()!#-+=.:;/\"'$ \n\r\t\x1b\x00ab1http www.é")), max_size=40
) | st.text(max_size=40)


def shown(markdown: str) -> list[list[tuple[str, str]]]:
    """The cells of the one table in ``markdown``: per row, (text, kinds of tokens)."""
    rows: list[list[tuple[str, str]]] = []
    for token in GFM.parse(markdown):
        if token.type == "tr_open":
            rows.append([])
        if token.type == "inline":
            kinds = {child.type for child in token.children or []}
            text = "".join(child.content for child in token.children or [])
            rows[-1].append((text, " ".join(sorted(kinds - {"text", "text_special"}))))
    return rows


def plain(text: str) -> str:
    return " ".join(strip_controls(text).split())


@given(NASTY)
def test_escaped_text_renders_to_its_own_characters(text):
    tokens = GFM.parse(escape(text))
    if not plain(text):
        assert tokens == []
        return
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    children = tokens[1].children
    assert {child.type for child in children} <= {"text", "text_special"}
    assert "".join(child.content for child in children) == plain(text)


@given(NASTY, NASTY)
def test_a_table_cell_holds_exactly_the_text(first, second):
    rows = shown(str(table([{"a": first, "b": Code(second)}])))
    assert len(rows) == 2
    assert rows[1][0] == (plain(first), "")
    expected = (plain(second), "code_inline") if plain(second) else ("(empty)", "")
    assert rows[1][1] == expected


@given(NASTY)
def test_a_code_span_is_one_span(text):
    children = GFM.parse(f"a {code(text)} b")[1].children
    spans = [child.content for child in children if child.type == "code_inline"]
    assert spans == ([plain(text)] if plain(text) else [])


@given(NASTY)
def test_a_fence_holds_its_text(text):
    tokens = GFM.parse(fence(text, "text") + "\n\nafter")
    assert [token.type for token in tokens][0::1][0] == "fence"
    assert tokens[0].content.rstrip("\n") == strip_controls(text).rstrip("\n").replace("\r", "\n")
    assert tokens[2].content == "after"


@given(NASTY)
def test_no_escape_byte_is_left(text):
    assert "\x1b" not in escape(text) + code(text) + fence(text)


def test_the_two_directions_of_text_cannot_deceive():
    assert "\u202e" not in escape("a\u202eb")


def test_colours_of_a_terminal_are_dropped():
    assert escape("\x1b[31mred\x1b[0m \x1b]8;;http://x\x1b\\link") == "red link"


def test_a_link_of_a_model_stays_text():
    assert (
        escape("https://evil.example www.evil.example")
        == r"https\://evil.example www\.evil.example"
    )


def test_unknown_is_said_and_never_zero():
    rows = [{"tok/s": 17.4, "n": None}, {"tok/s": math.nan}]
    assert str(table(rows)).splitlines()[2:] == ["| 17.4 | unknown |", "| unknown | unknown |"]


def test_numbers_stand_flush_right_and_text_left():
    head = str(table([{"a": 1, "b": "x", "c": "1 [0, 2]"}], right=["c"])).splitlines()[1]
    assert head == "| ---: | :--- | ---: |"


def test_yes_and_no_are_no_numbers():
    assert str(table([{"ok": True}, {"ok": False}])).splitlines()[1:] == [
        "| :--- |",
        "| yes |",
        "| no |",
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [(759.3, "759.3"), (12345.6, "12346"), (0.02531, "0.02531"), (4, "4"), (5.0, "5")],
)
def test_numbers_are_readable(value, said):
    assert str(table([{"x": value}])).splitlines()[2] == f"| {said} |"


def test_decimals_by_column():
    assert "| 1.50 |" in str(table([{"x": 1.5}], decimals={"x": 2}))


def test_a_data_frame_is_rows_and_its_gaps_are_unknown():
    frame = pandas.DataFrame(
        {"a": [1.5, None], "b": ["x", None], "n": pandas.array([1, None], "Int64")}
    )
    lines = str(table(frame)).splitlines()
    assert lines[2:] == ["| 1.5 | x | 1 |", "| unknown | unknown | unknown |"]
    assert lines[1] == "| ---: | :--- | ---: |"


def test_columns_choose_and_order():
    assert str(table([{"a": 1, "b": 2}], ["b"])).splitlines()[0] == "| b |"


def test_no_rows_is_a_sentence():
    assert str(table([], empty="No proof was made.")) == "*No proof was made.*"


def test_markdown_shows_in_jupyter_and_on_a_terminal():
    shown_text = Markdown("**x**")
    assert str(shown_text) == repr(shown_text) == "**x**"
    assert shown_text._repr_mimebundle_() == {"text/markdown": "**x**", "text/plain": "**x**"}


def test_in_jupyterlab_tables_have_a_style_and_how_a_thing_stands_a_colour(monkeypatch):
    made = table([{"check": "<b>p|2p</b>", "status": status} for status in ("pass", "fail")])
    assert "text/html" not in made._repr_mimebundle_()
    monkeypatch.setenv("JPY_SESSION_NAME", "01.ipynb")
    assert "text/html" not in Markdown("no table")._repr_mimebundle_()
    shown_html = made._repr_mimebundle_()["text/html"]
    assert '<td class="bad" style="text-align:left">fail</td>' in shown_html
    assert '<td class="good" style="text-align:left">pass</td>' in shown_html
    assert "&lt;b&gt;p|2p&lt;/b&gt;" in shown_html
    assert ".runbook td" in shown_html


@given(NASTY, NASTY)
@example("", "\\|")
@example("\\|", "|")
def test_in_jupyterlab_a_cell_holds_exactly_the_text(first, second):
    body = as_html(str(table([{"a": first, "b": Code(second)}]))).partition("</style>")[2]
    cells = [
        html.unescape(re.sub(r"</?code>", "", cell))
        for cell in re.findall(r"<td[^>]*>(.*?)</td>", body, re.DOTALL)
    ]
    assert cells == [plain(first), plain(second) or "(empty)"]
    assert set(re.findall(r"<(\w+)", body)) <= {
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
    }


def test_finished_markdown_in_a_cell_is_left_alone():
    assert "| **x** |" in str(table([{"a": Markdown("**x**")}]))
    assert not re.search(r"\\\*", str(table([{"a": Markdown("**x**")}])))
