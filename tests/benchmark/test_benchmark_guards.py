"""What makes configurations comparable: each guard where it held and where it did not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stand_in import params_of

from runbook.benchmark.guards import Measured, guards
from runbook.benchmark.measurements import key_of
from runbook.benchmark.sense import SOME_WITHOUT_SENSE, VOID_WITHOUT_SENSE
from runbook.cells import Cell
from runbook.checks import Check

ALIKE = ("attention_backend", "mem_fraction_static", "cuda_graph_max_bs")
SETTINGS = {
    "attention_backend": "triton",
    "mem_fraction_static": 0.9,
    "cuda_graph_max_bs": 160,
    "speculative_num_steps": None,
}
FAST = {"speculative_num_steps": 3}


def launch(cap: int | None = 128, **settings: Any) -> dict[str, Any]:
    return {"info": {"max_concurrency": cap, "settings": SETTINGS | settings}}


def measured(**changes: Any) -> Measured:
    """Two configurations, three blocks, C=1 and 100, with nothing amiss."""
    cells = []
    for block in (1, 2, 3):
        for at, config in enumerate(("baseline", "topk1")):
            for concurrency in (1, 100):
                speed = 90.0 * concurrency**0.5 * (1 + 0.01 * ((block * 2 + at) % 3))
                cells.append(
                    Cell(
                        config,
                        2 * block + at,
                        block,
                        concurrency,
                        requests=8,
                        output_tok_s=speed,
                        accept_length=2.6 if at else None,
                        client_share=0.06,
                        loop_lag_ms=0.9,
                        max_in_flight=concurrency,
                        running=float(concurrency),
                        age_s=5.0 * concurrency,
                    )
                )
    totals = {
        key_of(cell): {"prompt tokens": 1000, "output tokens": 1600, "cached prompt tokens": 0}
        for cell in cells
    }
    gpus = {
        key_of(cell): {"sm_mhz": 2400.0, "power_w": 450.5, "temperature_c": 71.0} for cell in cells
    }
    usual = Measured(
        params_of(
            1,
            {"name": "baseline"},
            {"name": "topk1"},
            benchmark={"concurrencies": [1, 100], "warmup_agree": 0.05, "window": "steady"},
        ),
        cells,
        {"baseline": launch(), "topk1": launch(**FAST)},
        totals,
        gpus,
        ALIKE,
    )
    return replace(usual, **changes)


def named(looked_at: Measured) -> dict[str, Check]:
    return {check.name: check for check in guards(looked_at)}


def cells_of(change, config: str = "topk1", at: int = 100) -> list[Cell]:
    """The cells of the usual run, those of one place and configuration changed."""
    return [
        replace(cell, **change) if (cell.config, cell.concurrency) == (config, at) else cell
        for cell in measured().cells
    ]


def usual_cells() -> list[Cell]:
    return list(measured().cells)


def test_what_held_is_told_with_what_was_found() -> None:
    found = named(measured())
    assert {check.status for check in found.values()} == {"pass"}
    for name, said in {
        "request cap": "128 at once in all",
        "settings of the servers": "attention_backend triton, mem_fraction_static 0.9, "
        "cuda_graph_max_bs 160",
        "prompt tokens": "C=1: 1000, C=100: 1000",
        "output tokens": "C=1: 1600, C=100: 1600",
        "prefix cache": "none flushed; of prompt tokens from the cache: 0.0% in all",
        "warm-up": "1 request a stream before every cell",
        "in flight": "C=1: 1, C=100: 100",
        "ramp-down": "all streams at work",
        "server lives": "3 in all; cells began 5 to 500 s after",
        "drift": "p = ",
        "repetition": "none in 12 cells",
        "acceptance": "topk1 at most 2.60 of 4",
        "load generator": "at most 6.0% of a core, 0.9 ms late",
        "clocks of the GPUs": "2400 to 2400 MHz, at most 71 °C, 450 to 450 W",
    }.items():
        assert said in found[name].found, name
    assert guards(measured(cells=[])) == []


@pytest.mark.parametrize(
    ("name", "changes", "status", "said"),
    [
        # Without an explicit cap speculation runs 48 at once, and the baseline thousands.
        (
            "request cap",
            {"launches": {"baseline": launch(4096), "topk1": launch(48)}},
            "fail",
            "baseline 4096 at once, topk1 48 at once",
        ),
        (
            "request cap",
            {"launches": {"baseline": launch(4096), "topk1": launch(128)}},
            "warn",
            "4096",
        ),
        (
            "request cap",
            {"launches": {"baseline": launch(128), "topk1": launch(None)}},
            "unknown",
            "not told: topk1",
        ),
        (
            "settings of the servers",
            {"launches": {"baseline": launch(), "topk1": launch(mem_fraction_static=0.85)}},
            "warn",
            "mem_fraction_static: baseline 0.9, topk1 0.85",
        ),
        ("settings of the servers", {"launches": {"baseline": {}}}, "unknown", "none"),
        ("in flight", {"cells": cells_of({"max_in_flight": 101})}, "fail", "C=100: 101"),
        (
            "in flight",
            {"cells": cells_of({"note": "(83/100): the server ran 83 at once", "running": 83.0})},
            "warn",
            "topk1, block 1, C=100 (83/100)",
        ),
        (
            "warm-up",
            {"cells": cells_of({"note": "no two of 10 warm-ups agreed within 5%"})},
            "warn",
            "no two agreed in 3 cells",
        ),
        (
            "warm-up",
            {"cells": cells_of({"note": "throughput rose by 40% within the cell: warm up longer"})},
            "warn",
            "throughput rose within 3 cells",
        ),
        (
            "repetition",
            {"cells": cells_of({"status": "void", "note": "repetition: 3 of 8 answers"})},
            "fail",
            "void: topk1, block 1, C=100",
        ),
        # A draft of three steps that brings 3.93 or 3.97 of 4 tokens copies, it does not guess.
        ("acceptance", {"cells": cells_of({"accept_length": 3.93})}, "warn", "at most 3.93 of 4"),
        ("acceptance", {"cells": cells_of({"accept_length": 3.79})}, "pass", "at most 3.79 of 4"),
        (
            "load generator",
            {"cells": cells_of({"note": "latencies are blurred by the client", "loop_lag_ms": 7})},
            "warn",
            "7.0 ms late",
        ),
        # The baseline alone answers "!!!!": the others are no slower for it.
        (
            "repetition",
            {
                "cells": cells_of(
                    {"status": "void", "note": VOID_WITHOUT_SENSE + "8 of 8 (a loop of '!': p)"},
                    "baseline",
                )
            },
            "fail",
            "void: baseline, block 1, C=100, baseline, block 2, C=100",
        ),
        (
            "repetition",
            {"cells": [replace(one, status="void", note="queue-limited") for one in usual_cells()]},
            "unknown",
            "no cell can be used",
        ),
        (
            "repetition",
            {"cells": cells_of({"note": SOME_WITHOUT_SENSE + "1 of 200 (no text: p)"})},
            "warn",
            "a few answers of topk1, block 1, C=100",
        ),
        (
            "warm-up",
            {"cells": cells_of({"note": "2 of the warm-up failed (HTTP 503), first: busy"})},
            "warn",
            "requests of it failed in 3 cells",
        ),
        ("server lives", {"cells": measured().cells[:4]}, "warn", "1 in all"),
        ("drift", {"cells": measured().cells[:4]}, "unknown", "too few lives"),
        ("clocks of the GPUs", {"gpus": {}}, "skipped", "no GPU"),
    ],
)
def test_what_did_not_hold(name: str, changes: dict, status: str, said: str) -> None:
    check = named(measured(**changes))[name]
    assert check.status == status and said in check.found, check


def totals_of(config: str, **counts: int | None) -> dict[str, dict[str, int | None]]:
    usual = measured()
    return {
        key_of(cell): dict(usual.totals[key_of(cell)]) | (counts if cell.config == config else {})
        for cell in usual.cells
    }


def test_unequal_work_and_a_lost_prefix_cache_are_told_with_both_figures() -> None:
    """Speculation has cost the prefix cache: 97 % from it without, 46 % with."""
    cached = totals_of("topk1", **{"cached prompt tokens": 460})
    for key, counts in cached.items():
        if key.startswith("baseline"):
            counts["cached prompt tokens"] = 970
    check = named(measured(totals=cached))["prefix cache"]
    assert check.status == "warn" and "baseline 97.0%, topk1 46.0%" in check.found
    for what in ("prompt tokens", "output tokens"):
        check = named(measured(totals=totals_of("topk1", **{what: 1601})))[what]
        assert check.status == "warn" and "topk1 1601" in check.found
        assert named(measured(totals=totals_of("topk1", **{what: None})))[what].status == "unknown"
    unknown = named(measured(totals=totals_of("topk1", **{"cached prompt tokens": None})))
    assert unknown["prefix cache"].status == "unknown"
    assert "baseline 0.0%, topk1 untold" in unknown["prefix cache"].found


def test_one_that_takes_from_the_cache_beside_one_that_tells_of_none_is_told() -> None:
    totals = totals_of("topk1", **{"cached prompt tokens": None})
    first = next(key for key in totals if key.startswith("baseline"))
    for key, counts in totals.items():
        if key.startswith("baseline"):
            counts["cached prompt tokens"] = 360 if key == first else None
    check = named(measured(totals=totals))["prefix cache"]
    assert check.status == "warn" and "baseline 6.0%, topk1 untold" in check.found


def test_drift_and_clocks_that_differ() -> None:
    slower = [
        replace(cell, output_tok_s=100.0 * (1 - 0.01 * cell.life)) for cell in measured().cells
    ]
    assert named(measured(cells=slower))["drift"].status == "warn"
    cells = measured().cells
    hot = {key_of(cell): {"sm_mhz": 2400.0 if cell.config == "topk1" else 2250.0} for cell in cells}
    check = named(measured(gpus=hot))["clocks of the GPUs"]
    assert check.status == "warn" and "baseline 2250 MHz, topk1 2400 MHz" in check.found


def test_what_is_not_guarded_is_said() -> None:
    plain = params_of(1, {"name": "baseline"}, {"name": "topk1"}, benchmark={"warmup": 0})
    found = named(measured(params=plain))
    assert found["ramp-down"].status == "skipped" and "window: whole" in found["ramp-down"].found
    assert (found["warm-up"].status, found["warm-up"].found) == (
        "warn",
        "none (benchmark.warmup: 0)",
    )
