from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_in import params_of

from runbook.benchmark.blocks import plan_blocks
from runbook.benchmark.cost import estimate, foresee
from runbook.benchmark.lengths import Lengths
from runbook.benchmark.workload import plan_workload, workload_of
from runbook.errors import BadInput
from runbook.load import Prompt
from runbook.load.context import texts_of
from runbook.load.prompts import builtin_prompts


def prompts(**kinds: int) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(f"{kind}-{n}", kind, ({"role": "user", "content": f"{kind} {n}"},))
        for kind, count in kinds.items()
        for n in range(count)
    )


def ids(asked: tuple[Prompt, ...]) -> list[str]:
    return [prompt.id for prompt in asked]


def test_the_same_seed_asks_the_same_whatever_order_the_prompts_come_in() -> None:
    params, pool = params_of(1), prompts(edit=30)
    first, again = plan_workload(params, pool), plan_workload(params, pool[::-1])
    assert first == again
    assert {c: cell.fingerprint() for c, cell in first.items()} == {
        c: cell.fingerprint() for c, cell in again.items()
    }
    other = plan_workload(params_of(1, workload={"seed": 2}), pool)
    assert other[1, None].fingerprint() != first[1, None].fingerprint()


def test_a_life_asks_no_prompt_twice_while_there_are_enough() -> None:
    params = params_of(1, benchmark={"concurrencies": [1, 8], "requests": 4, "rounds": 1})
    cells = plan_workload(params, prompts(edit=21))
    asked = [id for cell in cells.values() for id in ids(cell.warmup + cell.measured)]
    assert len(asked) == 21 == len(set(asked))
    assert [len(cells[8, None].warmup), len(cells[8, None].measured)] == [8, 8]
    few = plan_workload(params, prompts(edit=5))
    asked = [one for cell in few.values() for one in cell.warmup + cell.measured]
    texts = [one.messages[0]["content"] for one in asked]
    assert len(set(texts)) == len(set(ids(asked))) == 21
    assert {one.split("~")[0] for one in ids(asked)} == set(ids(prompts(edit=5)))
    # The whole begins otherwise, or the prefix cache would answer for the second asking.
    second = next(one for one in asked if one.id == "edit-3~2")
    assert second.messages[0]["content"] == "(2)\n\nedit 3"


def test_no_two_prompts_of_a_life_begin_with_the_same_context() -> None:
    """Warm-up and measured, one cell and the next, an answer of 97 % from the cache else."""
    mix = [
        {"concurrency": c, "context_tokens": context, "share": 1}
        for c in (1, 3)
        for context in (2000, 4000)
    ]
    params = params_of(
        1, choose={"mix": mix}, benchmark={"concurrencies": [1, 3], "requests": 3, "warmup": 2}
    )
    pool = prompts(edit=7)
    lengths = Lengths(texts_of(pool), 4.0)
    asked = [lengths.sample(2000)]
    for cell in plan_workload(params, pool).values():
        warmup = cell.first + len(cell.measured)
        asked += lengths.of(cell.context_tokens, cell.measured, cell.first)
        asked += lengths.of(cell.context_tokens, cell.warmup, warmup)
    begins = [one.messages[0]["content"].partition("\n")[0] for one in asked]
    assert len(set(begins)) == len(begins) == 1 + 2 * (3 + 2) + 2 * (6 + 6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"benchmark": {"blocks": 1}}, ["the cheap mode, one life of each", "cannot be excluded"]),
        ({"benchmark": {"blocks": 2}}, ["the cheap mode, two lives", "12.7 standard errors"]),
        ({"benchmark": {"blocks": 3, "concurrencies": [1, 100]}}, ["304 prompts and there are 33"]),
        (
            {
                "choose": {"mix": [{"concurrency": 1, "context_tokens": 64000, "share": 1}]},
                "benchmark": {"blocks": 3, "concurrencies": [1]},
            },
            ["contexts of 64000 tokens repeat the texts of the workload, about 8010 tokens, 8"],
        ),
    ],
)
def test_what_a_benchmark_cannot_say_is_known_before(changes: dict, said: list[str]) -> None:
    changes = {"benchmark": {"blocks": 3}} | changes
    found = "; ".join(foresee(params_of(1, **changes), builtin_prompts()))
    assert all(part in found for part in said) and bool(said) == bool(found)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(0, 100), min_size=1).filter(
        lambda mix: sum(mix.values()) > 1e-3
    ),
    st.integers(1, 60),
)
def test_every_cell_holds_the_mix_to_less_than_one_request(mix: dict, requests: int) -> None:
    params = params_of(
        1,
        workload={"mix": mix},
        benchmark={"concurrencies": [1], "requests": requests, "rounds": 1, "warmup": 0},
    )
    (cell,) = plan_workload(params, prompts(a=7, b=7, c=7, d=7)).values()
    assert len(cell.measured) == requests
    for kind, weight in mix.items():
        exact = requests * weight / sum(mix.values())
        assert abs(sum(p.kind == kind for p in cell.measured) - exact) < 1 + 1e-9


def test_a_kind_without_prompts_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"(?s)no prompt of kind edti.*kinds out of: agent, edit"
    ) as caught:
        plan_workload(params_of(1, workload={"mix": {"edti": 1}}), prompts(edit=1, agent=1))
    assert caught.value.exit_code == 2


def test_prompts_come_from_the_package_or_a_file(tmp_path: Path) -> None:
    assert len(workload_of(params_of(1).workload).prompts) >= 60
    file = tmp_path / "own.jsonl"
    file.write_text('{"id": "a", "kind": "edit", "messages": [{"role": "user", "content": "x"}]}\n')
    assert ids(workload_of(params_of(1, workload={"prompts": str(file)}).workload).prompts) == ["a"]
    with pytest.raises(BadInput, match="absent"):
        workload_of(params_of(1, workload={"prompts": str(tmp_path / "absent.jsonl")}).workload)


def test_blocks_hold_every_configuration_once_in_an_order_of_their_own() -> None:
    names = [{"name": name} for name in ("baseline", "b", "c", "d")]
    params = params_of(1, *names, benchmark={"blocks": 12, "concurrencies": [1, 4, 16, 64]})
    blocks = plan_blocks(params)
    assert blocks == plan_blocks(params)
    assert [block.number for block in blocks] == list(range(1, 13))
    assert all(sorted(block.configs) == ["b", "baseline", "c", "d"] for block in blocks)
    assert all(sorted(c for c, _ in block.points) == [1, 4, 16, 64] for block in blocks)
    assert len({block.configs for block in blocks}) > 3
    assert len({block.points for block in blocks}) > 3
    other = params.model_copy(update={"benchmark": params.benchmark.model_copy(update={"seed": 9})})
    assert plan_blocks(other) != blocks


def test_turns_keep_their_order_in_a_cell(tmp_path: Path) -> None:
    messages = [
        {"role": role, "content": f"say {n}"} for n, role in enumerate(["user", "assistant"] * 3)
    ]
    lines = [{"id": f"c{n}", "kind": "edit", "messages": messages} for n in range(4)]
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    system = tmp_path / "system.txt"
    system.write_text("You are terse.\n")
    asked = {"prompts": str(file), "turns": "every", "system": str(system)}
    params = params_of(1, workload=asked, benchmark={"concurrencies": [1], "requests": 12})
    workload = workload_of(params.workload)
    assert len(workload.prompts) == workload.manifest.prompts == 12
    assert {p.messages[0]["content"] for p in workload.prompts} == {"You are terse."}
    cell = plan_workload(params, workload.prompts)[1, None]
    by_talk: dict[str, list[int]] = {}
    for prompt in cell.measured:
        by_talk.setdefault(prompt.conversation, []).append(len(prompt.messages))
    assert by_talk == {f"c{n}": [2, 4, 6] for n in range(4)}
    assert [p.id for p in cell.measured] != sorted(p.id for p in cell.measured)


def test_a_mix_of_contexts_is_measured_at_its_points() -> None:
    mix = [
        {"concurrency": 1, "context_tokens": 0, "share": 0.5},
        {"concurrency": 1, "context_tokens": 4096, "share": 0.5},
    ]
    params = params_of(1, choose={"mix": mix}, benchmark={"concurrencies": [1, 8]})
    assert set(params.points()) == {(1, 0), (1, 4096), (8, 0)}
    workload = plan_workload(params, workload_of(params.workload).prompts)
    assert set(workload) == set(params.points())
    same = replace(workload[1, 0], context_tokens=4096)
    assert same.fingerprint() != workload[1, 0].fingerprint()
    short = params_of(1, benchmark={"concurrencies": [1, 8]})
    assert short.points() == ((1, None), (8, None))
    assert params.identity() != short.identity()
    assert estimate(params).seconds > estimate(short).seconds
    with pytest.raises(BadInput, match="without context_tokens"):
        params_of(1, choose={"mix": [*mix, {"concurrency": 2, "share": 1}]})
