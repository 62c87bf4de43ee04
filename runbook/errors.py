"""The errors of the runbook: each says what was found, what was wanted, and what to do next.

RunbookError                    exit 70: a fault of ours, when nothing more precise fits
├── BadInput                    exit 2: nothing was started, nothing was changed
│   ├── ParameterError          a value of a parameters file, of ``-p`` or of papermill
│   ├── RunBusy                 another process works in this run folder
│   └── NotHere                 this machine, or this run, lacks what the verb needs
├── Negative                    exit 1: the work was done and the answer is no
│   ├── ServerFailed            a server did not start, or died
│   ├── NotChosen               no clear choice, or not the expected one
│   ├── NotProved               a check or a proof failed
│   └── Blocked                 something is in the way; it was left alone
├── HostFailed                  exit 1: a command on the host failed that had to succeed
└── Interrupted                 exit 130 or 143: Ctrl-C or SIGTERM

2 or 1: input that is wrong or missing is found before anything is started, and is 2. What is found
later is 1: on the host that is to be changed, whether the verb runs alone or at the end of a run,
and in a benchmark once a server was started.
"""

from __future__ import annotations

import errno

from runbook.redaction import redact


class RunbookWarning(UserWarning):
    """Something the user should know that stops nothing."""


class RunbookError(Exception):
    """Base of all errors meant for people; ``exit_code`` is what the command line ends with.

    Secrets that this process has sent to a server are taken out of what it says.
    """

    exit_code = 70

    def __init__(self, found: str, wanted: str = "", do: str = "") -> None:
        found, wanted, do = redact(found), redact(wanted), redact(do)
        super().__init__(found, wanted, do)
        self.found = found
        self.wanted = wanted
        self.do = do

    def __str__(self) -> str:
        parts = [self.found]
        if self.wanted:
            parts.append(f"wanted: {self.wanted}")
        if self.do:
            parts.append(f"next: {self.do}")
        return "\n  ".join(parts)


class BadInput(RunbookError):
    """The input cannot be used; nothing was started and nothing was changed."""

    exit_code = 2


class ParameterError(BadInput):
    """One parameter is wrong; names the file (or ``-p``, or papermill) and the dotted key."""

    def __init__(
        self, source: str, key: str, found: str, wanted: str, near: str | None = None
    ) -> None:
        where, place = (
            (f"{source}: {key}: ", f"{key} in {source}") if key else (f"{source}: ", source)
        )
        hint = f"did you mean {near}?" if near else f"correct {place}"
        super().__init__(f"{where}found {found}", wanted, hint)
        self.source = source
        self.key = key
        self.near = near

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        return RunbookError, (self.found, self.wanted, self.do)


class RunBusy(BadInput):
    """Another process works in this run folder."""


class NotHere(BadInput):
    """This machine, or this run, lacks what the verb needs."""


class Negative(RunbookError):
    """The work was done and the answer is no."""

    exit_code = 1


class ServerFailed(Negative):
    """A server did not start, did not become ready, or died; ``do`` holds the end of its log."""


class NotChosen(Negative):
    """The figures give no clear choice, or another one than expected."""


class NotProved(Negative):
    """A check or a proof failed."""


class Blocked(Negative):
    """Something is in the way: a unit of somebody else, edited by hand, changed since the plan or
    faulty, a port taken meanwhile. It was left alone, and what was there goes on."""


class HostFailed(RunbookError):
    """A command on the host failed that had to succeed."""

    exit_code = 1


def of_the_machine(error: BaseException) -> HostFailed | None:
    """A full or read-only disk as an error for people; ``None`` for everything else."""
    if not isinstance(error, OSError) or error.errno not in _DISK:
        return None
    where = f"{error.filename} cannot be written" if error.filename else "a file was not written"
    return HostFailed(
        f"{where}: {error.strerror}",
        "room, and leave to write there",
        "see df -h, df -i and mount; then go on: runbook run PARAMS --resume",
    )


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Interrupted(RunbookError):
    """Ctrl-C (130) or SIGTERM (143) ended the work."""

    def __init__(self, signal_number: int, during: str, run: str, apply: bool = False) -> None:
        goes_on = f"runbook run '{run}/params.yaml' --resume{apply * ' --apply'} --out '{run}'"
        super().__init__(f"interrupted during {during}", "", f"continue with: {goes_on}")
        self.exit_code = 128 + signal_number
