"""The kernel of a notebook interrupted in the middle of a measurement, and the cell run again."""

import time

import pytest
from command import SHORT, processes_about, short_parameters, wait_nothing_left
from jupyter_client.manager import KernelManager

from runbook import params
from runbook.run import Run

OPEN = """
import runbook
work = runbook.open_stage("benchmark", {{"run": {run!r}}})
"""
MEASURE = "measured = runbook.stages.benchmark(work)"
VERDICT = "work.verdict(runbook.stages.measured_verdict(measured))"


@pytest.fixture
def run(tmp_path):
    path, _ = short_parameters(tmp_path, real=True)
    local = ("host={kind: local}", "benchmark.launch=process")
    run = Run.create(params.load(path, [*SHORT, *local]), tmp_path / "run")
    run.finish("verify_stack", "completed")
    return run


@pytest.fixture
def client(tmp_path):
    manager = KernelManager(transport="ipc", ip=str(tmp_path / "k"), kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(60)
    yield client, manager
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def execute(client, source):
    """Run one cell; its reply and what it printed."""
    said = []
    reply = client.execute_interactive(
        source,
        timeout=200,
        output_hook=lambda message: said.append(message["content"].get("text", "")),
    )
    return reply["content"], "".join(said)


def test_interrupting_the_kernel_stops_the_server_and_the_cell_can_be_run_again(run, client):
    channels, manager = client
    port = run.params.server.port
    assert execute(channels, OPEN.format(run=str(run.path)))[0]["status"] == "ok"
    number = channels.execute(MEASURE)
    deadline = time.monotonic() + 120
    requests = run.path / "requests.jsonl"
    while not (requests.exists() and requests.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert processes_about(str(port))
    manager.interrupt_kernel()
    while (reply := channels.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != number:
        pass
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    assert reply["content"]["traceback"] == [
        "KeyboardInterrupt: interrupted. What this stage had started is stopped; "
        "run its cells again to go on"
    ]
    wait_nothing_left(port)
    step = run.step("benchmark")
    assert (step.status, step.reason, step.exit_code) == ("failed", "interrupted", 130)

    reply, said = execute(channels, MEASURE)
    assert reply["status"] == "ok", said
    reply, said = execute(channels, VERDICT)
    assert "VERDICT ok: benchmark: 3 cells" in said
    assert run.step("benchmark").status == "completed"
    wait_nothing_left(port)
