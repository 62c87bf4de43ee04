"""What the runbook itself costs, of a run that has ended: from what its journal tells."""

import importlib.util
import sys
from pathlib import Path

import pytest

from runbook.run import Run

SOURCE = Path(__file__).parents[1] / "benchmarks" / "overhead.py"


@pytest.fixture(scope="module")
def overhead():
    spec = importlib.util.spec_from_file_location("overhead", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["overhead"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def line(at_s, boot="a", **more):
    return {"__REALTIME_TIMESTAMP": str(int(at_s * 1e6)), "_BOOT_ID": boot, "MESSAGE": "", **more}


def test_servers_live_from_the_guards_word_to_their_exit_or_the_end_of_their_boot(overhead):
    start = {"MESSAGE_ID": overhead.STARTING}
    ended, killed = ({"MESSAGE_ID": number} for number in overhead.ENDED)
    guard = {"_SYSTEMD_UNIT": "s.service", "MESSAGE": "guard: 8 good"}
    journal = [
        line(1, UNIT="tmp.mount", **start),
        line(2, UNIT="runbook-x.service", **start),
        line(5, UNIT="runbook-x.service", **ended),
        line(6, UNIT="s.service", **start),
        line(7, **guard),
        line(9, UNIT="s.service", **killed),
        line(10, UNIT="s.service", **start),
        line(12),
        line(20, "b", UNIT="s.service", **start),
        line(23, "b"),
    ]
    spans = list(overhead.server_spans(journal, ("runbook-", "s.service")))
    assert spans == [(2, 5), (7, 9), (10, 12), (20, 23)]
    assert overhead.covered(spans) == 10


def test_a_copy_of_a_run_is_refused(overhead, capsys):
    with pytest.raises(SystemExit) as ended:
        overhead.look_back(Run.open(SOURCE.parents[1] / "docs" / "example-run"))
    assert ended.value.code == 2
    assert "not a copy" in capsys.readouterr().out
