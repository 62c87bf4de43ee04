"""When requests are sent: open loops, conversations, shares of several workers."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_prompts import prompts

from runbook.errors import BadInput
from runbook.load import LoadPlan, Prompt, Record, run_load
from runbook.load.arrivals import poisson, recorded
from runbook.load.shares import most_at_once, split


def stats(url: str) -> dict[str, int]:
    with urllib.request.urlopen(url + "/stats") as answer:
        return json.load(answer)


# --- arrivals


def test_poisson_arrivals_come_at_their_rate_and_from_their_seed() -> None:
    arrivals_s = poisson(4.0, 4000, 1)
    assert list(arrivals_s) == sorted(arrivals_s) and arrivals_s == poisson(4.0, 4000, 1)
    assert arrivals_s != poisson(4.0, 4000, 2)
    assert arrivals_s[-1] == pytest.approx(1000, rel=0.1)
    gaps = [after - before for before, after in itertools.pairwise(arrivals_s)]
    assert sum(gap > 0.25 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)


def test_recorded_arrivals_keep_their_distances() -> None:
    assert recorded([105.0, 100.0, 101.5, 109.0], 3) == (0.0, 1.5, 5.0)


def test_an_open_loop_sends_on_time_whatever_is_in_flight(plan_of) -> None:
    arrivals_s = (0.0, 0.05, 0.1, 0.1, 0.4)
    plan = plan_of(requests=5, concurrency=9, output_tokens=60, arrivals_s=arrivals_s)
    result = run_load(plan)
    due = sorted(record.scheduled_s for record in result.records)
    assert [at - due[0] for at in due] == pytest.approx(arrivals_s)
    assert result.max_in_flight >= 4 and all(record.ok for record in result.records)


def test_latency_counts_from_the_scheduled_time(plan_of) -> None:
    """One at a time where three are due at once: the last one waited for two whole answers."""
    plan = plan_of(requests=3, concurrency=1, output_tokens=40, arrivals_s=(0.0, 0.0, 0.0))
    result = run_load(plan)
    assert result.max_in_flight == 1
    first, second, third = sorted(record.ttft_ms or 0.0 for record in result.records)
    assert third > second > first and third > 2 * 39 * 4
    late = max(result.records, key=lambda record: record.ttft_ms or 0.0)
    assert late.sent_s is not None and late.sent_s - late.scheduled_s > 0.3


def test_as_many_arrivals_as_requests(plan_of) -> None:
    with pytest.raises(BadInput, match="2 arrivals of 3 requests"):
        run_load(plan_of(requests=3, arrivals_s=(0.0, 1.0)))


# --- conversations


def talks(count: int, turns: int) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(f"t{talk}#{turn}", "talk", ({"role": "user", "content": "x"},), (), f"t{talk}")
        for turn in range(turns)
        for talk in range(count)
    )


@pytest.mark.parametrize("arrivals_s", [(), (0.0,) * 12])
def test_a_turn_waits_for_the_one_before(plan_of, arrivals_s) -> None:
    plan = plan_of(
        requests=12, concurrency=6, output_tokens=8, prompts=talks(3, 4), arrivals_s=arrivals_s
    )
    result = run_load(plan)
    assert len(result.records) == 12 and result.max_in_flight == 3
    for talk in range(3):
        own = sorted(
            (one for one in result.records if one.prompt_id.startswith(f"t{talk}#")),
            key=lambda one: one.sent_s or 0.0,
        )
        assert [one.prompt_id[-1] for one in own] == ["0", "1", "2", "3"]
        assert all(a.end_s <= b.sent_s for a, b in itertools.pairwise(own))  # type: ignore[operator]


# --- tools and images


def test_tools_and_images_go_out_as_they_are(plan_of, server_url: str) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    asked = (
        Prompt(
            "tools",
            "agent",
            (
                {"role": "user", "content": "weather?"},
                {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
                {"role": "tool", "content": "rain", "tool_call_id": "1"},
            ),
            ({"type": "function", "function": {"name": "weather"}},),
        ),
        Prompt("image", "agent", ({"role": "user", "content": [picture]},)),
    )
    before = stats(server_url)
    result = run_load(plan_of(requests=2, prompts=asked))
    after = stats(server_url)
    assert all(record.ok for record in result.records)
    assert after["with_tools"] - before["with_tools"] == 1
    assert after["with_images"] - before["with_images"] == 1


# --- shares


@given(
    keys=st.lists(st.integers(0, 8), min_size=1, max_size=30),
    concurrency=st.integers(1, 40),
    per_worker=st.integers(1, 20),
    open_loop=st.booleans(),
)
def test_shares_are_the_whole(keys, concurrency: int, per_worker: int, open_loop: bool) -> None:
    asked = tuple(
        Prompt(f"p{n}", "edit", ({"role": "user", "content": "x"},), (), f"c{key}")
        for n, key in enumerate(keys)
    )
    arrivals_s = tuple(map(float, range(len(keys)))) if open_loop else ()
    plan = LoadPlan("http://x", "m", asked, len(keys), concurrency, 8, arrivals_s=arrivals_s)
    shares = split(plan, per_worker)
    assert sum(share.concurrency for share in shares) == concurrency
    assert sum(share.requests for share in shares) == len(keys)
    sent = [prompt for share in shares for prompt in share.prompts]
    assert Counter(prompt.id for prompt in sent) == Counter(prompt.id for prompt in asked)
    homes = [{prompt.conversation for prompt in share.prompts} for share in shares]
    assert sum(map(len, homes)) == len(set(keys))
    assert sorted(at for share in shares for at in share.arrivals_s) == list(arrivals_s)
    if len(shares) > 1:
        assert all(share.requests and share.concurrency for share in shares)


def test_most_at_once_counts_ends_before_sends() -> None:
    def one(begin: float, end: float) -> Record:
        return Record("p", begin, sent_s=begin, end_s=end)

    assert most_at_once([one(0, 1), one(1, 2), one(1.5, 3)]) == 2
    assert most_at_once([Record("p", 0.0)]) == 0


def test_several_workers_are_one_load(plan_of, server_url: str) -> None:
    seen: list[Record] = []
    before = stats(server_url)["same_prompt_twice"]
    plan = plan_of(requests=60, concurrency=12, prompts=prompts(30), output_tokens=30)
    result = run_load(plan, seen.append, streams_per_worker=4)
    assert result.workers == 3 and result.ended_early is None
    assert tuple(seen) == result.records and len(seen) == 60
    assert all(record.ok and record.tokens_out == 30 for record in seen)
    assert Counter(record.prompt_id for record in seen) == {f"p{n}": 2 for n in range(30)}
    assert result.max_in_flight == 12
    assert 0 < result.client_share < result.client_cpu_s / (result.ended_s - result.started_s)
    assert stats(server_url)["same_prompt_twice"] == before


def test_a_thousand_streams_at_once(plan_of, slow_server_url: str) -> None:
    plan = plan_of(
        requests=1000,
        concurrency=1000,
        prompts=prompts(1000),
        output_tokens=40,
        url=slow_server_url,
        request_timeout_s=200.0,
    )
    result = run_load(plan)
    assert {record.error for record in result.records} == {None}
    assert result.workers == 4 and result.max_in_flight == 1000
    assert {record.tokens_out for record in result.records} == {40}
