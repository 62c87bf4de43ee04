import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.errors import BadInput
from runbook.launch.quoting import exec_line, quote_argument, quote_assignment, split_words

TEXT = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0").filter(
        lambda c: not (0xFDD0 <= ord(c) <= 0xFDEF or ord(c) & 0xFFFE == 0xFFFE)
    )
)


@given(TEXT)
def test_an_argument_is_one_word_on_one_line_and_reads_back(text):
    quoted = quote_argument(text)
    assert not set(quoted) & set("\n\r\0")
    assert [w.replace("%%", "%").replace("$$", "$") for w in split_words(quoted)] == [text]


@given(TEXT)
def test_an_assignment_keeps_dollars_and_doubles_percent(value):
    (word,) = split_words(quote_assignment("NAME", value))
    assert word.replace("%%", "%") == f"NAME={value}"


@given(st.lists(TEXT, min_size=1))
def test_a_command_reads_back_whole(arguments):
    line = exec_line(("/usr/bin/x", *arguments)).replace("\\\n", " ")
    words = [word.replace("%%", "%").replace("$$", "$") for word in split_words(line)]
    assert words == ["/usr/bin/x", *arguments]


def test_options_stand_on_lines_of_their_own_with_their_values():
    assert exec_line(("/p", "s.py", "--a", "1", "-b")) == "/p s.py \\\n    --a 1 \\\n    -b"


def test_a_program_that_systemd_would_alter_gets_its_first_argument_by_itself():
    assert exec_line(("/o$t//p", "x")) == '@"/o$t//p" "/o$$t//p" x'


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\ufdd0", "\uffff"])
def test_what_no_unit_can_carry_is_refused(text):
    with pytest.raises(BadInput, match="no unit can carry"):
        quote_argument(text)
    with pytest.raises(BadInput, match="no unit can carry"):
        quote_assignment("A", text)


@pytest.mark.parametrize("program", ["python", "/a'b", '/a"b', "/a\\b", "/a/", "/a\tb", "/a "])
def test_a_program_that_systemd_refuses_is_refused_with_what_to_do(program):
    with pytest.raises(BadInput):
        exec_line((program,))


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A="])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(BadInput, match="no name of a variable"):
        quote_assignment(name, "x")
