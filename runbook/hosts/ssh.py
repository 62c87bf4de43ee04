"""A host behind the ordinary ``ssh`` client: one connection, kept while the host is open.

Nothing but a POSIX shell, coreutils and Python 3 is needed on the far side; keys, aliases and jumps
are those of the user's ssh configuration. The server's port there is reached at the same port here.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from runbook import scratch
from runbook.errors import HostFailed
from runbook.hosts.base import COMMAND_ENV, Done, Host
from runbook.hosts.local import execute_here, why_no_orders

CONNECT_S = 30.0

#: The client's own environment: its agent and its home, nothing else of the caller's.
_CLIENT_KEEPS = ("HOME", "SSH_AUTH_SOCK", "USER", "LOGNAME")


class SshHost(Host):
    """``address``: as ``ssh`` takes it, also ``ssh://user@host:port``. ``config``: an
    ``ssh_config`` file, empty for the user's own. ``port`` is forwarded from here. ``sudo``: every
    command runs through ``sudo -n``."""

    kind = "ssh"

    def __init__(
        self, address: str, port: int | None = None, config: str = "", sudo: bool = False
    ) -> None:
        self.address, self.port, self.config, self.sudo = address, port, config, sudo
        self._scratch = contextlib.ExitStack()
        self._folder: Path | None = None
        self._master: subprocess.Popen[str] | None = None
        self._runner_pid = 0
        self._python = ""

    def __enter__(self) -> Self:
        """Connect. Raises ``HostFailed`` with what ``ssh`` says."""
        self._folder = self._scratch.enter_context(scratch.folder("runbook-ssh-", "/tmp"))
        forward = [] if self.port is None else [f"-L127.0.0.1:{self.port}:127.0.0.1:{self.port}"]
        argv = self._ssh("-M", "-oExitOnForwardFailure=yes", *forward)
        self._master = subprocess.Popen(
            [*argv, "--", self.address, "echo $$; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self._folder / "said").open("w"),
            env=self._client_env(),
            text=True,
            start_new_session=True,
        )
        assert self._master.stdout is not None
        said = self._master.stdout.readline().strip()
        try:
            if not said.isdecimal():
                raise self._not_reached((self._folder / "said").read_text())
            self._runner_pid = int(said)
            asked = self.run("sh", "-c", "command -v python3", check=False)
            self._python = asked.out.strip()
            if self.sudo and not self._python and asked.err:
                raise HostFailed(
                    f"{self.address}: {asked.err.strip().splitlines()[-1]}",
                    "sudo that asks nothing",
                    "give that user NOPASSWD in sudoers, or log in as root",
                )
            if not self._python:
                raise HostFailed(
                    f"{self.address} has no python3 on its PATH",
                    "Python 3.8 or newer there",
                    f"ssh {self.address} sudo apt-get install python3",
                )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._master is not None:
            assert self._master.stdin is not None
            self._master.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._master.wait(5)
            self._master.kill()
            self._master.wait()
        self._scratch.close()

    @property
    def python(self) -> str:
        """The far side's ``python3``."""
        return self._python

    def runner_pid(self) -> int | None:
        """A process there that ends with the connection, and so with the runner."""
        return self._runner_pid

    def execute(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Done:
        """Run ``argv`` there over the one connection; on time-out it is ended there too."""
        env = [f"{name}={value}" for name, value in COMMAND_ENV.items()]
        limit = ["timeout", "--kill-after=5", str(math.ceil(timeout_s) + 1)]
        words = [*(["sudo", "-n"] if self.sudo else []), "env", "-i", *env, *limit, *argv]
        ssh = [*self._ssh(), "--", self.address, shlex.join(words)]
        done = execute_here(ssh, stdin, timeout_s, self._client_env())
        if done.code == 255:
            raise self._not_reached(done.err)
        return Done(tuple(argv), done.code, done.out, done.err)

    def why_no_systemd(self) -> str | None:
        """``None`` where systemd is PID 1 there, answers, and takes orders of this user."""
        try:
            if not self.exists("/run/systemd/system"):
                return f"systemd is not PID 1 on {self.address}"
            root = self.run("id", "-u").out.strip() == "0"
        except HostFailed as error:
            return f"systemd does not answer: {error.found}"
        if (reason := why_no_orders(self)) is not None:
            return reason
        return None if root else "managing units needs root: log in as root, or set host.sudo: true"

    def _ssh(self, *options: str) -> list[str]:
        assert self._folder is not None
        config = ["-F", self.config] if self.config else []
        fixed = ["-oBatchMode=yes", f"-oConnectTimeout={CONNECT_S:.0f}", "-oServerAliveInterval=15"]
        return ["ssh", *config, *fixed, "-T", "-S", f"{self._folder}/socket", *options]

    def _client_env(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _CLIENT_KEEPS if name in os.environ}
        return {**COMMAND_ENV, **kept}

    def _not_reached(self, said: str) -> HostFailed:
        last = (said.strip().splitlines() or ["it said nothing"])[-1]
        return HostFailed(
            f"ssh does not reach {self.address}: {last}",
            "a host that ssh reaches without a question",
            f"try it by hand: ssh {shlex.quote(self.address)} true",
        )
