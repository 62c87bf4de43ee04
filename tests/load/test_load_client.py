"""The worker process as its caller sees it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from load_prompts import prompts

from runbook.errors import BadInput, RunbookError
from runbook.load import Record, run_load
from runbook.load.worker import plan_from_json


def stats(url: str) -> dict[str, int]:
    with urllib.request.urlopen(url + "/stats") as answer:
        return json.load(answer)


def worker_pids(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"runbook.load.worker" in (entry / "cmdline").read_bytes():
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                found += [int(entry.name)] if int(fields[1]) == parent else []
        except OSError:
            continue
    return found


def test_never_more_in_flight_than_asked_and_no_prompt_twice(plan_of, server_url: str) -> None:
    result = run_load(plan_of(requests=40, concurrency=6, prompts=prompts(8)))
    assert [len(result.records), result.max_in_flight, result.ended_early] == [40, 6, None]
    assert all(record.ok and record.tokens_out == 8 for record in result.records)
    counts = {id: sum(record.prompt_id == id for record in result.records) for id in ("p0", "p7")}
    assert counts == {"p0": 5, "p7": 5}
    seen = stats(server_url)
    assert seen["max_running"] <= 6 and seen["same_prompt_twice"] == 0


def test_fewer_prompts_than_streams_still_run(plan_of) -> None:
    result = run_load(plan_of(requests=6, concurrency=3, prompts=prompts(1)))
    assert (len(result.records), result.max_in_flight) == (6, 3)


def test_records_are_seen_as_they_end(plan_of) -> None:
    seen: list[tuple[float, Record]] = []
    result = run_load(
        plan_of(requests=3, output_tokens=40),
        lambda record: seen.append((time.monotonic(), record)),
    )
    assert tuple(record for _, record in seen) == result.records
    assert seen[0][0] < result.records[1].end_s  # type: ignore[operator]


def test_the_client_states_its_own_cost(plan_of) -> None:
    result = run_load(plan_of(requests=8, concurrency=4, output_tokens=20))
    assert 0 < result.client_cpu_s < result.ended_s - result.started_s
    assert result.startup_cpu_s > 0
    assert result.loop_lag_ms is not None and result.loop_lag_ms >= 0


def test_a_dead_server_ends_the_load(plan_of) -> None:
    plan = plan_of(requests=1000, concurrency=2, shape="silence")
    before = stats(plan.url)["requests"]
    start = time.monotonic()
    result = run_load(plan, alive=lambda: stats(plan.url)["requests"] < before + 2)
    assert time.monotonic() - start < 15  # a request has 20 s
    assert result.ended_early == "the server died"
    assert [record.error_kind for record in result.records] == ["cut", "cut"]


def test_a_port_nobody_listens_on_is_not_hammered(plan_of) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    start = time.monotonic()
    result = run_load(plan_of(requests=4, url=url))
    assert [record.error_kind for record in result.records] == ["connect"] * 4
    assert all(record.sent_s is None and not record.ok for record in result.records)
    assert time.monotonic() - start > 0.6


def test_the_worker_ends_when_its_caller_is_killed(plan_of, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from runbook.load import run_load\n"
        "from runbook.load.worker import plan_from_json\n"
        "run_load(plan_from_json(open(sys.argv[1], 'rb').read()))"
    )
    file = tmp_path / "plan.json"
    file.write_bytes(orjson.dumps(replace(plan_of(shape="silence"), request_timeout_s=600.0)))
    with subprocess.Popen([sys.executable, "-c", script, file]) as caller:
        deadline = time.monotonic() + 20
        while not (pids := worker_pids(caller.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(pids) == 1
        time.sleep(0.3)
        caller.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pids[0]}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pids[0]}").exists()


def test_a_worker_that_dies_is_a_fault_of_ours(plan_of) -> None:
    def kill_worker() -> bool:
        for pid in worker_pids(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        return True

    with pytest.raises(RunbookError, match="without a result, after 0 records") as caught:
        run_load(plan_of(shape="silence"), alive=kill_worker)
    assert caught.value.exit_code == 70


def test_an_error_of_the_callers_callback_ends_the_worker(plan_of) -> None:
    def stop(record: Record) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_load(plan_of(requests=100), stop)
    assert worker_pids(os.getpid()) == []


def test_the_api_key_is_sent_and_shows_nowhere(plan_of, server_url: str, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("sk-of-the-test\n")
    before = stats(server_url)["authorized"]
    arguments: list[bytes] = []

    def look() -> bool:
        arguments.extend(
            Path(f"/proc/{pid}/{name}").read_bytes()
            for pid in worker_pids(os.getpid())
            for name in ("cmdline", "environ")
        )
        return True

    plan = plan_of(output_tokens=100, api_key_file=str(key_file))
    result = run_load(plan, alive=look)
    assert stats(server_url)["authorized"] == before + 1
    assert arguments and not any(b"sk-of-the-test" in one for one in arguments)
    assert "sk-of-the-test" not in repr(result)


def test_an_echoed_api_key_is_taken_out_of_the_record(plan_of, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("model")  # the shape answers: bad model
    (record,) = run_load(plan_of(shape="status-400-wrapped", api_key_file=str(key_file))).records
    assert record.error == "bad <removed>"


@pytest.mark.parametrize("content", ["", "two\nlines", "naïve"])
def test_a_key_that_is_none_is_refused_before_the_start(
    plan_of, tmp_path: Path, content: str
) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(content)
    with pytest.raises(BadInput, match="API key"):
        run_load(plan_of(api_key_file=str(key_file)))


def test_bad_plans_are_refused(plan_of, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="API key"):
        run_load(plan_of(api_key_file=str(tmp_path / "absent")))
    with pytest.raises(BadInput, match="without prompts"):
        run_load(plan_of(prompts=()))
    with pytest.raises(BadInput, match="0 requests"):
        run_load(plan_of(requests=0))


def test_a_plan_survives_its_way_to_the_worker(plan_of) -> None:
    plan = plan_of(requests=3, shape="complete")
    assert plan_from_json(orjson.dumps(plan)) == plan


def test_many_streams_and_their_memory_stay_bounded(plan_of) -> None:
    """Ten answers of 10 MB in one event: the worker's peak stays below what one would take."""
    peak_kib = 0

    def watch() -> bool:
        nonlocal peak_kib
        for pid in worker_pids(os.getpid()):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    peak_kib = max(peak_kib, int(line.split()[1]))
        return True

    result = run_load(plan_of(requests=10, concurrency=10, shape="huge-event"), alive=watch)
    assert {record.error_kind for record in result.records} == {"too_large"}
    assert peak_kib < 120 * 1024
