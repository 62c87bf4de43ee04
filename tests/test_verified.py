"""``stack.json`` of the example as later stages read it, and of a run where nobody looked."""

import json
from pathlib import Path

import pytest

from runbook.verified import (
    cards_of,
    fingerprints_of,
    links_of,
    reading_of,
    resolved_for,
    told_of,
)

EXAMPLE = Path(__file__).parents[1] / "docs" / "example-run" / "stack.json"
EIGHT = Path(__file__).parent / "cases" / "records" / "chosen" / "stack.json"


@pytest.mark.parametrize("stack", [{}, {"readings": None}, {"readings": {"host": {"gpus": None}}}])
def test_where_nobody_looked_nothing_is_told(stack):
    assert (told_of(stack, "a"), resolved_for(stack, "a"), reading_of(stack, "gpus")) == (
        {},
        None,
        None,
    )
    assert (cards_of(stack), links_of(stack), fingerprints_of(stack)) == ((), None, {})


def test_what_a_run_verified_is_told():
    example, eight = (json.loads(path.read_text()) for path in (EXAMPLE, EIGHT))
    assert told_of(example, "baseline")["python"]["version"].startswith("3.")
    assert told_of(example, "no such") == {}
    assert cards_of(example) == ()
    assert len({card["uuid"] for card in cards_of(eight)}) == 8
    assert links_of(eight) == "system"
    assert fingerprints_of(eight)["topology"]
