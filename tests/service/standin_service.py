"""A stand-in server as a service, in a real box."""

import sys
from pathlib import Path

import pytest
from server_lives import free_port

from runbook.engines import ServerInfo
from runbook.engines.ladder import Endpoint, wait_ready
from runbook.install_service import Measured, plan_service
from runbook.install_service.places import Places
from runbook.launch.spec import LaunchSpec
from runbook.params import from_values

SERVER = str(Path(__file__).parent / "standin_server.py")
UNIT = "standin.service"


class StandIn:
    """The engine protocol over the stand-in server, as far as proofs need it."""

    name = "standin"
    overwrites = frozenset()

    def __init__(self, key_file=None):
        self.key_file = key_file

    def wait_ready(self, url, alive, timeout_s):
        return wait_ready(Endpoint(url, self.key_file), alive, timeout_s)

    def info(self, url):
        said = Endpoint(url, self.key_file).get_json("/info")
        return ServerInfo(said["model"], said["speculation"], None, {})


class Folder:
    """A run folder: artefacts by name."""

    def __init__(self, path):
        self.path = path

    def write(self, name, data):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data)
        return path

    def read_json(self, name, kind=dict):
        return None


def make_params(port, **service):
    """Its parameters; a limit of a start is never below ``start_s``."""
    start_s = min(20, service.get("start_timeout_s") or 20)
    return from_values(
        {
            "name": "standin",
            "server": {
                "engine": "llamacpp",
                "port": port,
                "model": "standin",
                "timeouts": {"start_s": start_s, "stop_s": 3, "request_s": 20},
            },
            "configurations": [{"name": "baseline"}, {"name": "fast"}],
            "benchmark": {"concurrencies": [4]},
            "choose": {"mix": [{"concurrency": 4, "share": 1}]},
            "service": {
                "unit": UNIT,
                "nofile": 4096,
                "memlock": 65536,
                "restart_s": 0.2,
                "burst": 200,
                **service,
            },
        },
        "test",
    )


def make_measured(port, *arguments, speculation="none", env=None):
    spec = LaunchSpec(
        (sys.executable, SERVER, str(port), "--speculation", speculation, *arguments),
        {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1", **(env or {})},
        "/opt",
        nofile=4096,
        memlock=65536,
    )
    return Measured(spec, (0.5, 0.7), ServerInfo("standin", speculation, None, {}), "unit")


class Deployment:
    """One box, one port, and plans of the stand-in service on it."""

    def __init__(self, box):
        self.box = box
        self.params = make_params(free_port())
        self.port = self.params.server.port

    def measured(self, *arguments, **more):
        return make_measured(self.port, *arguments, **more)

    def plan(self, *arguments, configuration="baseline", params=None, **more):
        measured = self.measured(*arguments, **more)
        return plan_service(self.box, params or self.params, configuration, measured, "test-run")

    def show(self, name):
        return self.box.run("systemctl", "show", "-P", name, UNIT).out.strip()

    def serves(self):
        """What the server that answers says of its configuration."""
        return StandIn().info(f"http://127.0.0.1:{self.port}").speculation

    def left(self):
        """Everything of the service that is on the host."""
        places = ["/etc/systemd/system", "/etc/systemd/system/multi-user.target.wants"]
        found = [f"{p}/{n}" for p in places for n in self.box.list(p) or [] if "standin" in n]
        found += [
            p for p in ("/var/lib/golive-runbook", "/run/golive-runbook") if self.box.exists(p)
        ]
        state = self.show("LoadState")
        return found + ([f"LoadState {state}"] if state != "not-found" else [])


@pytest.fixture
def deployment(box):
    """A clean box for each test; what a test leaves is cleared roughly."""
    made = Deployment(box)
    yield made
    places = Places(UNIT)
    for unit in (UNIT, places.boot_unit):
        box.run("systemctl", "disable", "--now", unit, check=False)
    for path in (
        places.unit_file,
        places.boot_file,
        f"/etc/systemd/system/{UNIT}.d",
        "/var/lib/golive-runbook",
        "/run/golive-runbook",
    ):
        box.remove(path)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "reset-failed", check=False)
