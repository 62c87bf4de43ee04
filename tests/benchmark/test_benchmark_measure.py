"""The whole benchmark against a real server process that can be told to misbehave."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from boxes import box, machine
from far import far
from stand_in import StandIn, Starter, params_of

from runbook import cells
from runbook.benchmark import (
    changes,
    load_measurements,
    measure,
    measure_briefly,
    surroundings_of,
    verdict,
)
from runbook.benchmark.request_log import read_answers
from runbook.engines import engine_for
from runbook.errors import Blocked, NotHere
from runbook.hosts import SshHost
from runbook.launch.page_cache import Dropped
from runbook.launch.ports import port_holder
from runbook.launch.spec import LaunchSpec
from runbook.launch.systemd import UnitLauncher
from runbook.params import Configuration, Host, Params, load
from runbook.run import Run
from runbook.verify_stack import verify_captured

__all__ = ["box", "far", "machine"]

BASELINE = {"name": "baseline"}
HOSTS = Path(__file__).parents[1] / "cases" / "hosts"
FOURFOLD = {"name": "fourfold", "args": ["--tokens-per-event", "4"]}


#: What a line of ``requests.jsonl`` holds; the last ones follow from the others.
FIELDS = {
    "config",
    "life",
    "block",
    "concurrency",
    "cell",
    "prompt_id",
    "kind",
    "scheduled_s",
    "sent_s",
    "first_byte_s",
    "first_token_s",
    "first_answer_s",
    "last_token_s",
    "end_s",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "tokens_first",
    "verify_steps",
    "chunks",
    "finish_reason",
    "status",
    "error",
    "error_kind",
    "ttft_ms",
    "ttfat_ms",
    "tpot_ms",
    "chunk_gap_ms",
    "longest_gap_s",
    "e2e_ms",
    "doubt",
}
UNTOLD = ("tokens_cached", "tokens_first", "verify_steps", "error", "error_kind", "doubt")


def quiet(text: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def bench(tmp_path: Path, port: int):
    """``bench(configurations..., changes...)`` measures in the run folder of this test."""
    launcher = Starter(tmp_path)

    def run(*configurations, engine: StandIn | None = None, on_cell=quiet, on=None, **changes):
        folder = Run(tmp_path / "run", params_of(port, *configurations, **changes))
        folder.path.mkdir(exist_ok=True)
        return measure(folder, launcher, engine or StandIn(), on_cell, stack=on)

    run.path = tmp_path / "run"
    run.launcher = launcher
    return run


def by_place(measurements) -> dict[tuple[str, int, int], cells.Cell]:
    return {(c.config, c.block, c.concurrency): c for c in measurements.cells}


def answers_in(path: Path) -> list[dict]:
    return list(read_answers(path / "answers.jsonl.gz"))


def requests_in(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "requests.jsonl").read_text().splitlines()]


def test_a_whole_benchmark_and_its_artefacts(bench) -> None:
    seen: list[tuple[str, int, int]] = []
    found = bench(
        BASELINE,
        FOURFOLD,
        on_cell=lambda *told: seen.append(told),
        benchmark={"blocks": 2, "concurrencies": [1, 2], "requests": 3},
    )
    places = by_place(found)
    assert len(places) == len(found.cells) == 8
    assert verdict(found).ok, verdict(found)

    fast, slow = places["fourfold", 1, 2], places["baseline", 1, 2]
    assert fast.usable and slow.usable and fast.output_tok_s > slow.output_tok_s  # type: ignore[operator]
    assert (slow.requests, slow.errors, slow.accept_length) == (4, 0, 1.0)
    assert fast.accept_length == pytest.approx(4.0)
    assert slow.ttft_p50_ms and slow.ttft_p99_ms and slow.ttft_p50_ms <= slow.ttft_p99_ms
    assert slow.tpot_p50_ms and fast.tpot_p50_ms and slow.tpot_p50_ms > fast.tpot_p50_ms

    assert sorted({c.life for c in found.cells}) == [1, 2, 3, 4]
    assert [told[1:] for told in seen[1:]] == [(done, 8) for done in range(1, 9)]

    lines = requests_in(bench.path)
    assert Counter(line["cell"] for line in lines) == {
        f"life{life}-c{c}": 2 + c for life in (1, 2, 3, 4) for c in (1, 2)
    }
    first = lines[0]
    assert set(first) == FIELDS
    assert {first[name] for name in UNTOLD} == {None}  # absent is null, never left out
    assert first["tpot_ms"] and first["chunk_gap_ms"] is not None  # two chunks may come at once
    assert first["ttft_ms"] == first["ttfat_ms"]
    by_age = sorted((c.life, c.age_s) for c in found.cells)
    assert all(age is not None for _, age in by_age)
    assert len({age for life, age in by_age if life == 1}) == 2  # the second cell is older
    assert (first["block"], first["error"], first["tokens_out"]) == (1, None, 8)
    answers = answers_in(bench.path)
    assert [one["end_s"] for one in answers] == [one["end_s"] for one in lines]
    assert {one["text"] for one in answers} == {" w1 w2 w3 w4 w5 w6 w7 w8"} and "text" not in first
    prompts = {
        place: sorted(
            line["prompt_id"]
            for line in lines
            if (line["config"], line["block"], line["concurrency"]) == place
        )
        for place in places
    }
    assert len({tuple(ids) for place, ids in prompts.items() if place[2] == 2}) == 1

    rows = list(csv.DictReader((bench.path / "cells.csv").open()))
    assert len(rows) == 8 and rows[0].keys() >= {"config", "life", "tpot_p50_ms", "status"}
    launches = json.loads((bench.path / "launches.json").read_text())
    assert launches["fourfold"]["spec"]["argv"][-2:] == ["--tokens-per-event", "4"]
    assert len(launches["baseline"]["load_s"]) == 2
    assert launches["baseline"]["checks"][0]["status"] == "pass"
    assert launches["baseline"]["launch"] == "process"

    loaded = load_measurements(bench.path)
    assert {c.config for c in loaded.cells} == {"baseline", "fourfold"}
    assert loaded.launches == launches and loaded.notes == found.notes
    compared = [note for note in found.notes if "answers of fourfold equal to those of" in note]
    assert [note.split(":")[0] for note in compared] == ["C=1", "C=2"]
    guards = json.loads((bench.path / "measured.json").read_text())["guards"]
    status = {guard["name"]: guard["status"] for guard in guards}
    assert len(status) == 14 and {*status.values()} <= {"pass", "skipped", "unknown"}
    assert status["in flight"] == status["prompt tokens"] == "pass"
    asked = json.loads((bench.path / "workload.json").read_text())
    assert asked["source"] == "built-in prompts" and asked["prompts"] >= 60


class Dropping(Starter):
    """Starts servers, and says that it dropped what it was asked for."""

    stays = 0

    def drop_page_cache(self, paths):
        self.started.append(f"dropped {' '.join(paths)}")
        return Dropped(1, 100, self.stays, ())


def test_a_cold_start_is_each_configurations_first_life_where_it_is_asked_for(tmp_path, port):
    asked = {"cold_start": True, "blocks": 2, "concurrencies": [1]}
    run = Run(tmp_path / "run", params_of(port, BASELINE, FOURFOLD, benchmark=asked))
    run.path.mkdir()
    launcher = Dropping(tmp_path)
    measure(run, launcher, StandIn(), quiet)
    launches = json.loads((run.path / "launches.json").read_text())
    for launch in launches.values():
        assert launch["cold_s"] > 0 and len(launch["load_s"]) == 1
    drops = [at for at, name in enumerate(launcher.started) if name == "dropped /no/model"]
    assert len(drops) == 2 and drops[0] == 0, "before the first life of each"


def test_what_stays_in_memory_makes_no_cold_start(tmp_path, port):
    asked = {"cold_start": True, "concurrencies": [1]}
    run = Run(tmp_path / "run", params_of(port, BASELINE, benchmark=asked))
    run.path.mkdir()
    launcher = Dropping(tmp_path)
    launcher.stays = 90
    measured = measure(run, launcher, StandIn(), quiet)
    launch = json.loads((run.path / "launches.json").read_text())["baseline"]
    assert launch["cold_s"] is None and len(launch["load_s"]) == 1
    assert any("no cold start of baseline: 90% of its files" in note for note in measured.notes)


def test_a_server_that_dies_costs_its_own_cells_alone(bench) -> None:
    dying = {"name": "dying", "args": ["--die-at", "4"]}
    found = bench(BASELINE, dying, benchmark={"concurrencies": [1, 2, 3], "requests": 2})
    places = by_place(found)
    assert all(cell.usable for place, cell in places.items() if place[0] == "baseline")
    statuses = Counter(cell.status for place, cell in places.items() if place[0] == "dying")
    assert statuses["server_died"] == 1 and statuses["not_run"] >= 1
    (died,) = [cell for cell in found.cells if cell.status == "server_died"]
    assert died.output_tok_s is None and "died" in died.note
    answer = verdict(found)
    assert not answer.ok and "dying" in answer.text and len(answer.text) < 300


def test_a_server_that_does_not_start_is_tried_once(bench) -> None:
    broken = {"name": "broken", "args": ["--refuse"]}
    found = bench(BASELINE, broken, benchmark={"blocks": 2, "concurrencies": [1], "requests": 1})
    lost = [cell for cell in found.cells if cell.config == "broken"]
    assert [cell.status for cell in lost] == ["not_run", "not_run"]
    assert "no such model" in lost[0].note  # the end of its log
    assert "not started again" in lost[1].note
    assert sum(name.startswith("broken") for name in bench.launcher.started) == 1
    assert not verdict(found).ok


def test_a_configuration_that_was_not_taken_gives_no_figures(bench) -> None:
    found = bench(BASELINE, FOURFOLD, engine=StandIn(taken=False), benchmark={"blocks": 2})
    wrong = [cell for cell in found.cells if cell.config == "fourfold"]
    assert {cell.status for cell in wrong} == {"void"} and len(wrong) == 4
    assert {cell.output_tok_s for cell in wrong} == {None}
    assert "check speculation failed: found none, wanted eagle" in wrong[0].note
    assert not verdict(found).ok
    again = bench(BASELINE, FOURFOLD, engine=StandIn(taken=False), benchmark={"blocks": 2})
    assert again.cells == load_measurements(bench.path).cells
    assert len(bench.launcher.started) == 3


def test_answers_without_usage_have_no_throughput(bench) -> None:
    silent = {"name": "baseline", "args": ["--shape", "no-usage", "--shape-every", "3"]}
    (cell,) = bench(silent, benchmark={"concurrencies": [1], "requests": 6, "warmup": 0}).cells
    assert (cell.status, cell.output_tok_s, cell.errors) == ("void", None, 0)
    assert "2 of 6 answers came without usage" in cell.note
    untold = [line for line in requests_in(bench.path) if line["tokens_out"] is None]
    assert len(untold) == 2
    assert all(line["tpot_ms"] is None and line["chunk_gap_ms"] for line in untold)


def test_failures_beyond_the_limit_void_the_cell(bench) -> None:
    failing = {"name": "baseline", "args": ["--shape", "error-in-stream", "--shape-every", "3"]}
    few = {"concurrencies": [1], "requests": 6, "warmup": 0}
    (cell,) = bench(failing, benchmark=few).cells
    assert (cell.status, cell.errors, cell.requests) == ("void", 2, 6)
    assert "KV cache is full" in cell.note and cell.output_tok_s is not None


def test_failures_below_the_limit_mark_the_cell(bench) -> None:
    failing = {"name": "baseline", "args": ["--shape", "status-503-empty", "--shape-every", "3"]}
    few = {"concurrencies": [1], "requests": 6, "warmup": 0}
    choose = {"limits": {"error_share": 0.5}}
    (cell,) = bench(failing, benchmark=few, choose=choose).cells
    assert (cell.status, cell.errors) == ("ok", 2) and "2 failed (HTTP 503)" in cell.note


def test_answers_without_sense_are_void_in_the_baseline_too(bench) -> None:
    bang = ["--shape", "bang", "--shape-every", "1"]
    mute = ["--shape", "mute", "--shape-every", "1"]
    few = {"concurrencies": [1], "requests": 6, "warmup": 0}
    found = bench({"name": "baseline", "args": bang}, {"name": "mute", "args": mute}, benchmark=few)
    bad, silent = sorted(found.cells, key=lambda cell: cell.config)
    assert bad.status == silent.status == "void" and not verdict(found).ok
    assert "answers without sense: 6 of 6 (a loop of '!'" in bad.note
    assert "answers without sense: 6 of 6 (no text" in silent.note
    told = json.loads((bench.path / "measured.json").read_text())["guards"]
    (check,) = [one for one in told if one["name"] == "repetition"]
    assert check["status"] == "fail" and check["found"].startswith("void: ")


def test_usage_that_cannot_be_is_no_figure(bench) -> None:
    wild = {"name": "baseline", "args": ["--shape", "usage-beyond-asked", "--shape-every", "6"]}
    (cell,) = bench(wild, benchmark={"concurrencies": [1], "requests": 6, "warmup": 0}).cells
    assert (cell.status, cell.output_tok_s) == ("void", None)
    assert "usage counts 1000000000 output tokens, 8 were asked for" in cell.note


def test_a_warm_up_that_fails_is_told(bench) -> None:
    failing = {"name": "baseline", "args": ["--shape", "status-503-empty", "--shape-every", "4"]}
    few = {"concurrencies": [1], "requests": 3, "warmup": 4}
    (cell,) = bench(failing, benchmark=few).cells
    assert cell.status == "ok" and "1 of the warm-up failed (HTTP 503)" in cell.note


def test_what_the_client_gave_up_is_ended_before_the_next_cell(bench) -> None:
    stuck = {"name": "baseline", "args": ["--shape", "silence-in-stream", "--shape-every", "3"]}
    settings = {
        "benchmark": {"concurrencies": [1, 2], "requests": 3, "warmup": 0},
        "server": {"timeouts": {"start_s": 20, "stop_s": 5, "request_s": 0.5}},
    }
    ends, goes_on = StandIn(), StandIn(left="1 requests still run 60 s after that")
    found = bench(stuck, engine=ends, **settings)
    assert [(cell.status, cell.errors) for cell in found.cells] == [("void", 1), ("void", 1)]
    assert ends.told_to_end == 2
    first, second = bench(stuck, engine=goes_on, workload={"output_tokens": 9}, **settings).cells
    assert first.status == "void" and "no end within 0.5 s" in first.note
    assert (second.status, second.output_tok_s) == ("not_run", None)
    assert f"1 requests still run 60 s after that before, at C={first.concurrency}" in second.note
    warmed = settings | {"benchmark": {"concurrencies": [1], "requests": 3, "warmup": 3}}
    found = bench(stuck, engine=goes_on, workload={"output_tokens": 10}, **warmed)
    cell = by_place(found)["baseline", 1, 1]
    assert cell.status == "not_run" and "after its warm-up: 1 requests still run" in cell.note


def test_a_configuration_that_ends_over_the_longest_prompt_is_out(bench) -> None:
    dying = {"name": "dying", "args": ["--die-over", "15000"]}
    found = bench(BASELINE, dying, stack={"context_tokens": 20000})
    told = {
        name: next(check for check in launch["checks"] if check["name"] == "longest prompt")
        for name, launch in found.launches.items()
    }
    assert told["baseline"]["status"] == "pass"
    assert 19000 < int(told["baseline"]["found"].split()[0]) <= 20000
    assert told["dying"]["status"] == "fail"
    cells_of = {name: [c for c in found.cells if c.config == name] for name in told}
    assert all(cell.usable for cell in cells_of["baseline"])
    assert {cell.status for cell in cells_of["dying"]} == {"void"}
    assert "AssertionError: not disable_chunked_prefix_cache" in cells_of["dying"][0].note
    assert not verdict(found).ok


def test_a_server_that_queues_is_not_compared(bench) -> None:
    found = by_place(bench(BASELINE, engine=StandIn(max_concurrency=1)))
    assert found["baseline", 1, 1].usable
    assert found["baseline", 1, 2].status == "void"
    assert "queue-limited: the server runs 1 at once" in found["baseline", 1, 2].note


def test_a_port_in_use_is_refused_with_its_holder(bench, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)), pytest.raises(NotHere) as caught:
        bench(BASELINE)
    assert f"port {port} is in use: pid {os.getpid()} (" in str(caught.value)
    assert bench.launcher.started == []


class Robbed(Starter):
    """Somebody else takes the port once the first server has stopped."""

    def start(self, spec, name, start_timeout_s, stop_timeout_s):
        server = super().start(spec, name, start_timeout_s, stop_timeout_s)
        stop = server.stop

        def stop_and_lose_the_port() -> None:
            stop()
            self.thief = socket.create_server(("127.0.0.1", int(spec.argv[3])))

        server.stop = stop_and_lose_the_port  # type: ignore[method-assign]
        return server


def test_a_port_taken_between_two_lives_is_a_negative_answer(bench, tmp_path, port: int) -> None:
    robbed = Robbed(tmp_path)
    run = Run(bench.path, params_of(port, BASELINE, FOURFOLD))
    run.path.mkdir()
    with pytest.raises(Blocked) as caught:
        measure(run, robbed, StandIn(), quiet)
    assert caught.value.exit_code == 1
    assert f"port {port} is in use: pid {os.getpid()} (" in caught.value.found
    assert caught.value.do.endswith("what was measured is kept, then: runbook run PARAMS --resume")
    assert len(robbed.started) == 1
    robbed.thief.close()
    found = bench(BASELINE, FOURFOLD)
    assert len(bench.launcher.started) == 1
    assert verdict(found).ok and len(found.cells) == 4


def test_a_finished_benchmark_is_not_repeated(bench) -> None:
    first = bench(BASELINE, FOURFOLD)
    table = (bench.path / "cells.csv").read_text()
    seen: list[tuple[str, int, int]] = []
    second = bench(BASELINE, FOURFOLD, on_cell=lambda *told: seen.append(told))
    assert len(bench.launcher.started) == 2
    assert (bench.path / "cells.csv").read_text() == table
    assert seen[-1] == ("measured before, and still valid", 4, 4)
    assert [c.life for c in second.cells] == [c.life for c in first.cells]


def test_what_has_changed_is_measured_again_and_said(bench) -> None:
    bench(BASELINE, FOURFOLD)
    other = {"name": "fourfold", "args": ["--tokens-per-event", "2"]}
    found = bench(BASELINE, other)
    assert sorted(name.split("-")[0] for name in bench.launcher.started) == [
        "baseline",
        "fourfold",
        "fourfold",
    ]
    assert {c.life for c in found.cells if c.config == "fourfold"} == {3}
    assert by_place(found)["fourfold", 1, 2].accept_length == pytest.approx(2.0)
    assert any("another launch line or environment" in note for note in found.notes)
    longer = bench(BASELINE, other, workload={"output_tokens": 6})
    assert any("another output_tokens" in note for note in longer.notes)
    assert all(cell.usable for cell in longer.cells)


def stack_with(folder: Path, groups: str, order: int = 1, driver="580", sglang="0.5.10") -> dict:
    """The facts of a captured host whose cards are near those of their group, a letter a card."""
    shutil.copytree(HOSTS / "eight-cards", folder)
    (folder / "serving.json").unlink()  # the packages alone are told
    names = [f"GPU{number}" for number in range(8)]
    rows = [
        [" X " if a == b else "PIX" if groups[a] == groups[b] else "SYS" for b in range(8)]
        for a in range(8)
    ]
    lines = ["\t".join([name, *row]) for name, row in zip(names, rows, strict=True)]
    (folder / "nvidia-smi-topo-m.txt").write_text("\n".join(["\t" + "\t".join(names), *lines]))
    cards, packages = folder / "nvidia-smi-query.csv", folder / "python-packages.json"
    listed = cards.read_text().replace("580.126.20", f"{driver}.126.20").splitlines()
    cards.write_text("\n".join(listed[::order]))
    packages.write_text(json.dumps(json.loads(packages.read_text()) | {"sglang": sglang}))
    production = load(HOSTS.parents[2] / "params" / "kimi-k2.5-8x-rtx-pro-6000.yaml")
    engine = engine_for(production.server)
    specs = {one.name: engine.launch_spec(production, one) for one in production.configurations}
    return verify_captured(production, folder, specs, engine).to_json()


def test_a_cell_stands_on_the_same_stack_alone(bench, tmp_path: Path) -> None:
    """However its cards are numbered; what differs is named."""
    few = {"concurrencies": [1], "requests": 1}
    asked: dict[str, dict] = {
        "first": {"groups": "aaaabbbb"},
        "renumbered": {"groups": "abababab", "order": -1},
        "links": {"groups": "aaaabbbc"},
        "driver": {"groups": "aaaabbbc", "driver": "595"},
        "engine": {"groups": "aaaabbbc", "driver": "595", "sglang": "0.5.12"},
    }
    stacks = {name: stack_with(tmp_path / name, **one) for name, one in asked.items()}
    said: list[list[str]] = []
    for name, stack in stacks.items():
        before = len(bench.launcher.started)
        said.append(list(bench(BASELINE, benchmark=few, on=stack).notes))
        assert len(bench.launcher.started) - before == (name != "renumbered"), name
    first, other = (stacks[name]["fingerprints"]["topology"] for name in ("first", "links"))
    assert said[0] == said[1] == []
    assert said[-1] == [
        f"measured again on another stack: topology {first}, now {other}",
        "measured again on another stack: driver 8 x 580.126.20, now 8 x 595.126.20",
        "measured again on another stack: sglang 0.5.10, now 0.5.12",
    ]
    found = bench(BASELINE, benchmark=few)  # nobody looked
    assert found.cells[0].life == 5 and "sglang 0.5.12, now unknown" in found.notes[-1]


def test_what_python_loads_at_its_start_and_the_files_of_nccl_count() -> None:
    def of(sha256: str, graph: str) -> dict[str, str | None]:
        site = {"candidates": [{"path": "/s", "sha256": sha256}], "loaded": "/s"}
        facts = {
            **{"sitecustomize": site, "usercustomize": {**site, "loaded": None}},
            **{"nccl": {"preload": ""}, "nccl_conf": {}, "nccl_graph": {"sha256": graph}},
        }
        return surroundings_of({"readings": {"serving": {"a": {"facts": facts}}}}, "a")

    assert changes(of("x", "y"), of("x", "y")) == []
    (said,) = changes(of("x", "y"), of("z", "y"))
    assert said.startswith("what the start of Python does ")
    (said,) = changes(of("x", "y"), of("x", "z"))
    assert said.startswith("NCCL, its settings files and its graph ")
    assert surroundings_of({}, "a") == {} and changes({}, {}) == []


def test_options_that_the_driver_was_loaded_with_count() -> None:
    def of(dwords: str, asked: str) -> dict[str, str | None]:
        settings = {"/proc/driver/nvidia/params": [dwords], "/etc/modprobe.d/nvidia.conf": [asked]}
        return surroundings_of({"readings": {"host": {"settings": {"value": settings}}}}, "a")

    assert changes(of("x", "a"), of("x", "b")) == []
    (said,) = changes(of("x", "a"), of("ForceP2P=0x11", "a"))
    assert said.startswith("options of the driver ")


def test_warm_up_until_two_agree_and_the_end_cut_off(bench) -> None:
    settings = {"concurrencies": [1, 2], "rounds": 2, "warmup_agree": 1.0, "window": "steady"}
    engine = StandIn(running=2.0)
    cell = by_place(bench(BASELINE, engine=engine, benchmark=settings | {"warmup": 3}))[
        "baseline", 1, 2
    ]
    assert engine.most_running == 2  # six warm-ups a cell, never more at once than its own
    assert cell.running == 2.0 and not any("Traceback" in log for log in engine.logs)
    cell = by_place(bench(BASELINE, benchmark=settings))["baseline", 1, 2]
    assert cell.usable and cell.max_in_flight == 2 and "agreed" not in cell.note
    assert cell.client_share is not None and cell.loop_lag_ms is not None
    never = bench(BASELINE, benchmark=settings | {"warmup_agree": 1e-9})
    cell = by_place(never)["baseline", 1, 2]
    assert cell.usable and "no two of 10 warm-ups agreed within" in cell.note
    whole = bench(BASELINE, benchmark=settings | {"window": "whole"}, workload={"ignore_eos": True})
    assert any("forced to their full length" in note for note in whole.notes)
    assert any(
        "measured again, another warm-up, ignore_eos, window" in note for note in whole.notes
    )


def test_a_run_ends_at_a_look_that_decides_and_stays_ended(bench, tmp_path, port: int) -> None:
    settings = {"blocks": 4, "concurrencies": [1], "requests": 1}
    params = params_of(port, BASELINE, benchmark=settings, choose={"looks": [3, 4]})
    asked: list[int] = []

    def enough(cells) -> bool:
        asked.append(len(cells))
        return True

    run = Run(tmp_path / "looks", params)
    run.path.mkdir()
    said: list[str] = []

    def told(text: str, done: int, total: int) -> None:
        said.append(text)

    for _ in range(2):
        found = measure(run, bench.launcher, StandIn(), told, enough)
        assert [cell.block for cell in found.cells] == [1, 2, 3]
        assert said[-1] == "decided after 3 of 4 blocks"
    assert asked == [3, 3] and len(bench.launcher.started) == 3
    assert len(measure(run, bench.launcher, StandIn(), quiet, lambda cells: False).cells) == 4


def test_other_model_files_are_measured_again(bench, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("one")
    given = {"name": "baseline", "args": ["--served", str(model)]}
    few = {"concurrencies": [1], "requests": 1}
    bench(given, benchmark=few)
    bench(given, benchmark=few)
    assert len(bench.launcher.started) == 1
    (model / "weights").write_text("another")
    found = bench(given, benchmark=few)
    assert any("measured again, another model files" in note for note in found.notes)
    assert len(bench.launcher.started) == 2


def test_a_dead_servers_cells_are_measured_again(bench) -> None:
    dying = {"name": "baseline", "args": ["--die-at", "2"]}
    assert not verdict(bench(dying, benchmark={"concurrencies": [1], "requests": 1})).ok
    found = bench(BASELINE, benchmark={"concurrencies": [1], "requests": 1})
    assert verdict(found).ok and len(found.cells) == 1 and found.cells[0].life == 2


def test_different_totals_are_noted(bench) -> None:
    short = {"name": "short", "args": ["--shape", "complete", "--shape-every", "1"]}
    found = bench(BASELINE, short, benchmark={"concurrencies": [1], "requests": 2})
    assert any("output tokens of a cell differ: " in note for note in found.notes)
    assert any("prompt tokens of a cell differ: " in note for note in found.notes)
    assert load_measurements(bench.path).notes == found.notes


def test_a_brief_look_needs_no_run_folder(tmp_path: Path, port: int) -> None:
    params = params_of(port, BASELINE, FOURFOLD, benchmark={"blocks": 5, "concurrencies": [2, 1]})
    for _ in range(2):
        launcher = Starter(tmp_path)
        found = measure_briefly(params, launcher, StandIn(), tmp_path, quiet)
        assert len(launcher.started) == 2
        assert [(c.concurrency, c.requests, c.usable) for c in found.cells] == [(1, 2, True)] * 2
        assert "not to compare by" in found.notes[0]


RUNNER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from stand_in import Starter, StandIn, params_of
from runbook.benchmark import measure
from runbook.run import Run
port, path = int(sys.argv[3]), Path(sys.argv[4])
params = params_of(port, {"name": "baseline"}, {"name": "other"}, benchmark={"requests": 20})
measure(Run(path / "run", params), Starter(path), StandIn(), lambda *told: None)
"""


def test_kill_dash_nine_loses_only_what_was_in_flight(bench, tmp_path: Path, port: int) -> None:
    bench.path.mkdir()
    here = Path(__file__).parent
    arguments = [here, here.parent / "load", str(port), tmp_path]
    with subprocess.Popen([sys.executable, "-c", RUNNER, *arguments]) as runner:
        log, table = bench.path / "requests.jsonl", bench.path / "cells.csv"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # until the second cell is half done
            if table.exists() and len(requests_in(bench.path)) > 25:
                break
            time.sleep(0.02)
        runner.kill()
    (kept,) = cells.from_csv(table.read_text())
    before = len(requests_in(bench.path))
    assert before <= len(answers_in(bench.path)) <= before + 1
    with log.open("ab") as torn:
        torn.write(b'{"config": "baseline", "li')

    deadline = time.monotonic() + 10
    while port_holder(port) and time.monotonic() < deadline:  # its owner ends the server
        time.sleep(0.05)
    found = bench(BASELINE, {"name": "other"}, benchmark={"requests": 20})
    assert verdict(found).ok and len(found.cells) == 4
    assert kept == next(c for c in found.cells if c.life == kept.life)
    half = [c for c in found.cells if c.config == kept.config and c.life != kept.life]
    assert [c.life for c in half] == [2]
    lines = requests_in(bench.path)
    assert len(lines) == before + 60 <= len(answers_in(bench.path)) <= before + 61
    assert Counter(line["life"] for line in lines)[2] == 20


def test_contexts_have_cells_of_their_own(bench) -> None:
    mix = [{"concurrency": 1, "context_tokens": tokens, "share": 1} for tokens in (0, 3000)]
    sizes = {"blocks": 2, "concurrencies": [1], "requests": 2}
    found = bench(BASELINE, benchmark=sizes, choose={"mix": mix})
    assert all(cell.usable for cell in found.cells) and verdict(found).ok
    places = {(c.block, c.context_tokens) for c in found.cells}
    assert places == {(1, 0), (1, 3000), (2, 0), (2, 3000)}
    asked = {line["cell"]: line["tokens_in"] for line in requests_in(bench.path)}
    for cell in found.cells:
        tokens = asked[f"life{cell.life}-c1-{cell.context_tokens}"]
        assert 2700 < tokens < 3300 if cell.context_tokens else tokens < 2700

    told: list[str] = []
    hear = lambda text, done, total: told.append(text)  # noqa: E731
    bench(BASELINE, benchmark=sizes, choose={"mix": mix}, on_cell=hear)
    assert told[-1] == "measured before, and still valid"


@pytest.mark.parametrize("kind", ["box", "ssh"])
def test_servers_can_be_units_of_a_host(tmp_path: Path, port: int, kind: str, far) -> None:
    """Over ssh the way to the server is told with each cell."""
    dying = {"name": "dying", "args": ["--die-at", "2"]}
    params = params_of(port, BASELINE, dying, benchmark={"concurrencies": [1], "requests": 1})
    there = {"address": far.address, "ssh_config": far.config} if kind == "ssh" else {}
    run = Run(tmp_path / "run", params.model_copy(update={"host": Host(kind=kind, **there)}))
    run.path.mkdir()
    with contextlib.ExitStack() as scratch:
        # Without a forwarded port: the far host has this machine's network.
        over_ssh = SshHost(far.address, config=far.config)
        host = far.box if kind == "box" else scratch.enter_context(over_ssh)
        found = measure(run, UnitLauncher(host), StandIn(), quiet)
    places = by_place(found)
    cell = places["baseline", 1, 1]
    assert cell.output_tok_s, cell.note
    assert places["dying", 1, 1].status == "server_died"
    assert "systemd" in places["dying", 1, 1].note
    assert found.launches["baseline"]["launch"] == "unit"
    assert port_holder(port) is None
    if kind == "box":
        assert cell.usable and cell.round_trip_ms is None
    else:
        assert cell.round_trip_ms > 0 and cell.way_lag_ms >= 0
        assert cell.usable or "the way to the server was the limit" in cell.note


def test_a_long_start_is_told_of_by_the_last_line_of_its_log(bench, monkeypatch) -> None:
    monkeypatch.setattr("runbook.benchmark.lives._TELL_S", 0.0)
    said: list[str] = []
    bench(on_cell=lambda text, done, total: said.append(text))
    assert any(text.startswith("baseline: starting for 0 s: ") for text in said), said


class Stuck(StandIn):
    """Its second configuration hangs in its first collective; ``mark`` bears its number then."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def launch_spec(self, params: Params, configuration: Configuration) -> LaunchSpec:
        if configuration.name == "baseline":
            return super().launch_spec(params, configuration)
        says = "echo Init torch distributed begin.; echo $$ > $MARK; exec sleep 60"
        env = {"NCCL_P2P_LEVEL": "SYS", "MARK": str(self.mark), "PATH": os.environ["PATH"]}
        return LaunchSpec(("/bin/sh", "-c", says), env, "/")

    def explain_log(self, log: str, launch: LaunchSpec | None = None) -> str:
        return f"its log: {log.strip()}"


def test_cards_are_waited_for_and_a_start_that_hangs_on_them_is_ended(
    bench, tmp_path: Path, monkeypatch
) -> None:
    """nvidia-smi is a script: memory is held at every other look, and a stuck start spins."""
    mark, freed = tmp_path / "mark", tmp_path / "freed"
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(
        f"#!/bin/sh\nif kill -0 $(cat {mark}); then echo 0, 80000, 100, 128.4, 600.00\n"
        f"elif rm {freed}; then echo 0, 4, 0, 30.1, 600.00\n"
        f"else touch {freed}; echo 0, 80000, 0, 90.0, 600.00; fi\n"
    )
    smi.chmod(0o755)
    path = f"{smi.parent}:{os.environ['PATH']}"
    monkeypatch.setattr("runbook.launch.cards.COMMAND_ENV", {"PATH": path})
    monkeypatch.setattr("runbook.launch.cards._POLL_S", 0.05)
    timeouts = {"start_s": 50, "stop_s": 2, "request_s": 20, "silent_s": 0.3, "gpu_free_s": 5}
    settings = {
        "benchmark": {"concurrencies": [1], "requests": 1},
        "stack": {"gpus": 1},
        "server": {"timeouts": timeouts},
    }
    seen = stack_with(tmp_path / "host", "aaaabbbb")
    measured = bench(BASELINE, {"name": "stuck"}, engine=Stuck(mark), on=seen, **settings)
    found = by_place(measured)
    stuck = found["stuck", 1, 1]
    assert found["baseline", 1, 1].usable and stuck.status == "not_run"
    assert "NCCL deadlock suspected: GPU 0 100 % 128 W, and no line in its log" in stuck.note
    assert "with NCCL_P2P_LEVEL=SYS, topology system; its log: Init torch" in stuck.note
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()

    smi.write_text("#!/bin/sh\necho 0, 80000, 0, 90.0, 600.00\n")
    timeouts["gpu_free_s"] = 0.2
    with pytest.raises(Blocked, match="memory of the cards is not free"):
        bench({"name": "baseline", "args": ["--step-ms", "3"]}, **settings)
    assert len(bench.launcher.started) == 2
