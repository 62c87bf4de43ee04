import os
import socket
from pathlib import Path

from boxes import run_python
from server_lives import free_port

from runbook.launch.ports import port_holder, unit_of

LISTEN = """
import socket, sys, time
server = socket.create_server((sys.argv[1], int(sys.argv[2])), family=int(sys.argv[3]))
print("up", flush=True)
time.sleep(600)
"""


def hold(address, port, family=socket.AF_INET):
    return run_python(LISTEN, address, str(port), str(int(family)), "--api-key", "s3cret")


def test_a_free_port_has_no_holder():
    assert port_holder(free_port()) is None


def test_the_holder_is_named_and_lives_on_and_its_secrets_are_not_shown():
    port = free_port()
    for address, family in (("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET)):
        with hold(address, port, family) as holder:
            holder.stdout.readline()
            said = port_holder(port)
            assert said is not None
            assert said.startswith(f"pid {holder.pid} (python")
            assert "s3cret" not in said
            assert holder.poll() is None
            holder.kill()


def test_a_connection_that_lingers_is_no_holder():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            served, _ = server.accept()
            served.close()  # the server's side closes first and keeps TIME_WAIT
    assert f":{port:04X}" in Path("/proc/net/tcp").read_text()
    assert port_holder(port) is None


def test_a_port_that_is_bound_but_not_listened_on_is_not_free():
    with socket.socket() as bound:
        bound.bind(("0.0.0.0", 0))
        assert "cannot be seen" in port_holder(bound.getsockname()[1])


def test_a_process_outside_of_units_has_no_unit():
    assert unit_of(os.getpid()) is None or unit_of(os.getpid()).endswith((".service", ".scope"))
