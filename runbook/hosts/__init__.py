"""Where commands run and files lie: this machine, a throw-away systemd (box), or ssh."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runbook import params
from runbook.errors import BadInput
from runbook.hosts.base import Done, Host
from runbook.hosts.box import Box, why_no_box
from runbook.hosts.local import LocalHost

__all__ = ["Box", "Done", "Host", "LocalHost", "open_host", "why_no_box"]


@contextmanager
def open_host(host: params.Host, state: Path, binds: Iterable[Path] = ()) -> Iterator[Host]:
    """The host of these parameters, up while the context is entered.

    ``state``: the folder for a box's files. ``binds``: what of this machine a box must see,
    read-only. Raises ``NotHere`` with the reason where no box can be made, ``RunBusy`` when
    another process has this box open.
    """
    if host.kind == "local":
        yield LocalHost()
    elif host.kind == "box":
        with Box(state, binds) as box:
            yield box
    else:
        raise BadInput(
            "host.kind is ssh, which this release cannot do yet",
            "local or box",
            "run the runbook on the host itself, with host.kind: local",
        )
