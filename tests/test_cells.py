from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.cells import Cell, from_csv, from_rows, to_csv
from runbook.errors import BadInput

figure = st.none() | st.floats(0.001, 1e6).map(lambda x: float(f"{x:.6g}"))
text = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=20)
cells = st.builds(
    Cell,
    config=st.sampled_from(["baseline", "a", "b,c", 'q"uote']),
    life=st.integers(1, 50),
    block=st.integers(1, 9),
    concurrency=st.integers(1, 4096),
    context_tokens=st.none() | st.integers(0, 10**6),
    requests=st.integers(0, 10**6),
    output_tok_s=figure,
    ttft_p50_ms=figure,
    ttft_p99_ms=figure,
    tpot_p50_ms=figure,
    tpot_p99_ms=figure,
    chunk_gap_p50_ms=figure,
    accept_length=figure,
    errors=st.integers(0, 10**6),
    status=st.sampled_from(["ok", "void", "server_died", "not_run"]),
    note=text,
)


@given(st.lists(cells, max_size=5))
def test_cells_survive_the_way_through_csv(given_cells):
    assert from_csv(to_csv(given_cells)) == given_cells


@given(st.lists(cells, min_size=1, max_size=5))
def test_cells_survive_the_way_through_objects(given_cells):
    rows = [(f"line {number}", asdict(cell)) for number, cell in enumerate(given_cells, 1)]
    assert from_rows(rows, "cells.jsonl") == given_cells


def test_three_columns_suffice():
    found = from_csv("config,concurrency,output_tok_s\nbaseline,1,92.7\nfast,1,86.8\n")
    assert found == [
        Cell("baseline", 1, 1, 1, output_tok_s=92.7),
        Cell("fast", 1, 1, 1, output_tok_s=86.8),
    ]


def test_without_blocks_the_lives_of_a_configuration_are_its_blocks():
    rows = "a,4,1,10\na,4,8,11\nb,5,1,12\na,9,1,13\n"
    found = from_csv("config,life,concurrency,output_tok_s\n" + rows)
    assert [(cell.config, cell.block) for cell in found] == [("a", 1), ("a", 1), ("b", 1), ("a", 2)]


def test_byte_order_mark_blanks_and_foreign_columns_are_taken():
    found = from_csv("\ufeffconfig, concurrency, output_tok_s, colour\na, 1, 10, red\n")
    assert found == [Cell("a", 1, 1, 1, output_tok_s=10.0)]


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("", "config, concurrency, output_tok_s"),
        ("config,concurrency\na,1\n", "output_tok_s"),
        ("config,concurrency,output_tok_s\na,1,fast\n", "line 2, column output_tok_s"),
        ("config,concurrency,output_tok_s\na,1,nan\n", "column output_tok_s"),
        ("config,concurrency,output_tok_s\na,1,-3\n", "column output_tok_s"),
        ("config,concurrency,output_tok_s\na,1.5,3\n", "column concurrency"),
        ("config,concurrency,output_tok_s\n,1,3\n", "config is empty"),
        ("config,concurrency,output_tok_s,status\na,1,3,fine\n", "column status"),
        ("config,concurrency,output_tok_s\n" + "x" * 200_000 + ",1,3\n", "line 1: no CSV"),
        ("config,concurrency,output_tok_s\ra,1,3\r", "no CSV"),
        ("x" * 200_000, "no CSV"),
    ],
)
def test_a_bad_table_is_refused_with_its_place(table, named):
    with pytest.raises(BadInput, match=named):
        from_csv(table)
