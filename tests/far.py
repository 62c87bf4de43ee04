"""A host behind a real sshd: a box on loopback."""

import shutil
import subprocess
from pathlib import Path

import pytest
from boxes import SSHD, UNPACKED, leave_out, wait_until
from server_lives import free_port

from runbook.hosts import Box


def need_sshd() -> None:
    """Leave the test out without ssh and sshd."""
    if not (SSHD and shutil.which("ssh")):
        leave_out("no ssh or no sshd on this machine: make needs-test")


class Far:
    """A box with an sshd for root, and what the client needs to reach it."""

    def __init__(self, box: Box, folder: Path) -> None:
        self.box, self.port = box, free_port()
        self.address = self.address_of("root")
        for name in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
            subprocess.run(command, check=True)
        self.config = str(folder / "config")
        key = (folder / "host.pub").read_text()
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {key}")
        Path(self.config).write_text(
            f"IdentityFile {folder}/user\nUserKnownHostsFile {folder}/known\n"
            "IdentitiesOnly yes\nStrictHostKeyChecking yes\n"
        )
        box.make_dir("/etc/far")
        box.write("/etc/far/host", (folder / "host").read_bytes(), 0o600)
        box.write("/etc/far/authorized", (folder / "user.pub").read_bytes())

    def address_of(self, user: str) -> str:
        """The address of a user there; all have the same key."""
        return f"ssh://{user}@127.0.0.1:{self.port}"

    def serve(self) -> None:
        """Start the sshd, which ends with the box."""
        box = self.box
        box.run("sh", "-c", "id -u sshd || useradd --system --home-dir /run/sshd sshd")
        box.make_dir("/run/sshd")
        box.remove("/root/.bashrc")  # bash reads it at each command, and some do much in there
        settings = {
            "ListenAddress": "127.0.0.1",
            "HostKey": "/etc/far/host",
            "AuthorizedKeysFile": "/etc/far/authorized",
            "PermitRootLogin": "prohibit-password",
            "UsePAM": "no",
            "PidFile": "none",
        }
        # From OpenSSH 9.8 on sshd starts two programs of its package by their full names.
        for setting, part in (("SshdSessionPath", "session"), ("SshdAuthPath", "auth")):
            if (own := UNPACKED / f"lib/openssh/sshd-{part}").exists():
                settings[setting] = str(own)
        words = [f"-o{name}={value}" for name, value in settings.items()]
        box.run("systemd-run", "--unit=far", SSHD, "-D", "-f/dev/null", f"-p{self.port}", *words)
        wait_until(lambda: "listening" in box.journal("far.service"), 10, self.said)

    def said(self) -> str:
        return self.box.journal("far.service")


@pytest.fixture(scope="module")
def far(machine, tmp_path_factory):
    """The box as a far host, shared by the tests of one file."""
    need_sshd()
    made = Far(machine, tmp_path_factory.mktemp("far"))
    made.serve()
    return made
