"""Where commands run and files lie: this machine, a throw-away systemd (box), or ssh."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from runbook import params
from runbook.errors import NotHere
from runbook.hosts.base import Done, Host
from runbook.hosts.box import Box
from runbook.hosts.box_needs import is_root, not_shown, why_no_box
from runbook.hosts.local import LocalHost
from runbook.hosts.ssh import SshHost
from runbook.rehearsal import model
from runbook.run import clone_root

__all__ = ["Box", "Done", "Host", "LocalHost", "SshHost", "open_for", "open_host", "why_no_box"]


def open_for(
    parameters: params.Params, run_folder: Path, binds: Iterable[Path] = ()
) -> AbstractContextManager[Host]:
    """The host of a deployment; a box keeps its files in ``run_folder/box`` and sees, besides
    ``binds``, the clone and whatever the parameters name that it would not see by itself.

    Raises ``NotHere`` for a user that its box cannot have, and as ``open_host``.
    """
    server = parameters.server
    if parameters.host.kind == "box" and server.user and not is_root():
        raise NotHere(
            f"server.user is {server.user}, and an ordinary user's box has one user id, root's",
            "a box of root's, in which there are others",
            "run as root (sudo), or leave server.user out",
        )
    named = [server.interpreter, server.cwd, server.model, server.draft]
    if server.api_key is not None:
        named.append(server.api_key.file)
    paths = [Path(name) for name in named if name.startswith("/")]
    if server.model.startswith(model.EMBEDDED):
        paths.append(model.cache_folder())
        paths[-1].mkdir(parents=True, exist_ok=True)
    seen = [
        *binds,
        clone_root() or Path(__file__).parents[2],
        *(path for path in paths if path.exists() and not_shown(path)),
    ]
    return open_host(parameters.host, run_folder / "box", seen, server.port)


@contextmanager
def open_host(
    host: params.Host, state: Path, binds: Iterable[Path] = (), port: int | None = None
) -> Iterator[Host]:
    """The host of these parameters, up while the context is entered.

    ``state``: the folder for a box's files. ``binds``: what of this machine a box must see,
    read-only. ``port`` of an ssh host is reached at the same port here. Raises ``NotHere`` with the
    reason where no box can be made, ``HostFailed`` with what ssh says, ``RunBusy`` when
    another process has this box open.
    """
    if host.kind == "local":
        yield LocalHost(host.sudo)
    elif host.kind == "box":
        with Box(state, binds) as box:
            yield box
    else:
        assert host.address is not None
        with SshHost(host.address, port, host.ssh_config, host.sudo) as far:
            yield far
