"""The fixtures that boot real boxes, and one test on every kind of host."""

import pytest
from boxes import box, machine
from far import far

from runbook.hosts import LocalHost, SshHost

__all__ = ["box", "far", "machine"]


@pytest.fixture(params=["local", "box", "ssh"])
def host(request):
    """Each kind of host; the far one is the box, behind its sshd."""
    if request.param == "local":
        yield LocalHost()
    elif request.param == "box":
        yield request.getfixturevalue("box")
    else:
        far = request.getfixturevalue("far")
        with SshHost(far.address, config=far.config) as opened:
            yield opened
