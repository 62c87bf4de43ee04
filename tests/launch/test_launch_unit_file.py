from hypothesis import given
from hypothesis import strategies as st

from runbook.launch.spec import LaunchSpec
from runbook.launch.unit import UnitSettings, render_unit
from runbook.launch.unit_file import parse_unit

TEXT = st.text(st.characters(max_codepoint=0x2FFF, exclude_characters="\0", codec="utf-8"))


@given(st.lists(TEXT), st.dictionaries(st.from_regex(r"[A-Z]{1,5}", fullmatch=True), TEXT))
def test_what_is_rendered_reads_back(arguments, env):
    spec = LaunchSpec(("/usr/bin/x", *arguments), env, "/")
    unit = parse_unit(render_unit(spec, UnitSettings("d", 10, 10)))
    assert unit.command() == spec.argv
    assert unit.environment() == env


def test_a_program_with_its_own_first_argument():
    assert parse_unit('[Service]\nExecStart=@"/o$t/p" "/o$$t/p" x').command() == ("/o$t/p", "x")


def test_comments_continuations_and_resets_as_systemd_reads_them():
    unit = parse_unit(
        "# c\n[Service]\nExecStart=/p a \\\n# a comment inside\n  b\nExecStart=\n"
        "ExecStart = /q \\\n\n c\n;x\nbroken\n[Install]\nWantedBy=a"
    )
    assert unit.command() == ("/q", "c")
    assert unit.value("Install", "WantedBy") == "a"
    assert unit.value("Service", "User") is None
    assert unit.command("ExecStop") == ()


def test_words_without_an_equals_sign_are_no_variables():
    unit = parse_unit("[Service]\nEnvironment=A=Ring Tree\nEnvironment='B=x y'")
    assert unit.environment() == {"A": "Ring", "B": "x y"}
    assert unit.assignments() == ["A=Ring", "Tree", "B=x y"]
