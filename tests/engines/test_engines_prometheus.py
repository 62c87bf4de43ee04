"""The metrics text: as captured, as the format allows, and as anything at all."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.engines.prometheus import Sample, parse_metrics, total

NAMES = st.from_regex(r"[a-z_:][a-z0-9_:]{0,20}", fullmatch=True)
LABEL_NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
LABELS = st.dictionaries(
    LABEL_NAMES, st.text(st.characters(exclude_characters='\\"', exclude_categories=["C", "Z"]))
)
VALUES = st.floats(allow_nan=False, allow_infinity=False)


def line(sample, stamp=""):
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
    return f"{sample.name}{'{' + labels + '}' if labels else ''} {sample.value!r}{stamp}"


@given(st.lists(st.builds(Sample, NAMES, LABELS, VALUES)), st.sampled_from(["", " 1796007338000"]))
def test_what_is_printed_is_read_back(samples, stamp):
    printed = "# HELP x y\n# TYPE x counter\n" + "\n".join(line(s, stamp) for s in samples)
    assert parse_metrics(printed) == samples


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    assert all(math.isfinite(sample.value) for sample in parse_metrics(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a{x="1",} 2\n', [Sample("a", {"x": "1"}, 2.0)]),
        ('a{x="with } and \\" and ,"} 3e+06', [Sample("a", {"x": 'with } and \\" and ,'}, 3e6)]),
        ("a NaN\nb +Inf\nc 1", [Sample("c", {}, 1.0)]),
        ("a\nb one\n 1\n# c 1\nd 1 2 3", []),
        ("a 1\r\n", [Sample("a", {}, 1.0)]),
    ],
)
def test_lines_of_the_format(text, expected):
    assert parse_metrics(text) == expected


def test_a_total_sums_over_labels_and_is_none_without_a_sample():
    samples = parse_metrics('a{r="0"} 1\na{r="1"} 2\nb 5')
    assert total(samples, "a") == 3.0
    assert total(samples, "c") is None
