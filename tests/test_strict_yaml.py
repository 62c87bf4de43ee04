"""YAML is read safely, with its plain meaning, or refused with the key that is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook import strict_yaml
from runbook.errors import ParameterError

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")))
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abcxyz_", min_size=1, max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(trees)
def test_what_is_dumped_is_read_back(tree):
    assert strict_yaml.parse(strict_yaml.dump(tree), "x") == tree


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused_in_our_words(text):
    try:
        strict_yaml.parse(text, "x")
    except ParameterError as error:
        assert error.exit_code == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no", {"a": "no"}),
        ("a: on", {"a": "on"}),
        ("a: false", {"a": False}),
        ('a: "false"', {"a": "false"}),
        ("a: 1e5", {"a": 1e5}),
        ("a: 0x10", {"a": 16}),
        ("a: 12:30:45", {"a": "12:30:45"}),
        ("a: 2026-11-30", {"a": "2026-11-30"}),
        ("a: 0.10", {"a": 0.1}),
        ('a: "007"', {"a": "007"}),
        ("a: 0", {"a": 0}),
        ("a: 0.5", {"a": 0.5}),
        ("a:", {"a": None}),
    ],
)
def test_plain_scalars(text, value):
    found = strict_yaml.parse(text, "x")
    assert found == value
    assert type(found["a"]) is type(value["a"])


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("a: {b: 1, b: 2}", "a.b", "second time"),
        ("port: 1\nname: x\nport: 2", "port", "line 3"),
        ("a: [1, 007]", "a[1]", "leading zeros"),
        ("a: !!python/object/apply:os.system [ls]", "a", "tag"),
        ("a: !env HOME", "a", "tag"),
        ("a: &x 1\nb: *x", "", "alias"),
        ("a: {<<: {b: 1}}", "a", "no plain text"),
        ("? [1, 2]\n: 3", "", "no plain text"),
        ("a: [", "", "no valid YAML: line 1, column 5: expected"),
        ("a: 1\n---\nb: 2", "", "no valid YAML"),
        ("a: \x00", "", "no valid YAML"),
        ("[" * 50 + "]" * 50, "", "deeper"),
    ],
)
def test_refused(text, key, words):
    with pytest.raises(ParameterError) as caught:
        strict_yaml.parse(text, "file.yaml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("file.yaml")
    if key:
        assert caught.value.key == key


def test_a_large_file_is_refused(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text("# " + "x" * strict_yaml.MAX_BYTES)
    with pytest.raises(ParameterError, match="KiB"):
        strict_yaml.load(path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: \xc3\x28"])
def test_no_utf8(tmp_path, content):
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(ParameterError, match="UTF-8"):
        strict_yaml.load(path)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(ParameterError, match="No such file"):
        strict_yaml.load(tmp_path / "absent.yaml")
    with pytest.raises(ParameterError, match="directory"):
        strict_yaml.load(tmp_path)
